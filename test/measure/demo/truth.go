// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// facts are what the sandbox and the API server have at one moment. Nothing in them is the controller's own account of itself.
type facts struct {
	state     cloud.State
	bill      cloud.Bill
	requests  []cloud.Request
	offerings []cloud.Offering

	classes []v1alpha1.BizflyNodeClass
	claims  []karpv1.NodeClaim
	nodes   []corev1.Node
	pods    []corev1.Pod
	events  []corev1.Event

	history history
}

// history is what has existed so far: the flavor and zone of each server, and each NodeClaim. None exists for less than a few seconds.
type history struct {
	servers map[string]string
	claims  sets.Set[types.UID]
}

func newHistory() history {
	return history{servers: map[string]string{}, claims: sets.New[types.UID]()}
}

// witness reads the facts.
type witness struct {
	sandbox *environment.Sandbox
	client  client.Client
	history history
}

func (w *witness) facts(ctx context.Context) (facts, error) {
	var classes v1alpha1.BizflyNodeClassList
	var claims karpv1.NodeClaimList
	var nodes corev1.NodeList
	var pods corev1.PodList
	var events corev1.EventList
	var errs []error
	for _, list := range []client.ObjectList{&classes, &claims, &nodes, &pods, &events} {
		errs = append(errs, w.client.List(ctx, list))
	}
	f := facts{classes: classes.Items, claims: claims.Items, nodes: nodes.Items, pods: pods.Items, events: events.Items, history: w.history}
	for path, into := range map[string]any{"state": &f.state, "bill": &f.bill, "requests": &f.requests, "offerings?plan=" + cloud.PlanOnDemand: &f.offerings} {
		errs = append(errs, w.sandbox.Call(ctx, http.MethodGet, path, nil, into))
	}
	if err := errors.Join(errs...); err != nil {
		return facts{}, fmt.Errorf("reading the ground truth: %w", err)
	}
	f.remember()
	return f, nil
}

// truth is what the panels must show now.
func (w *witness) truth(ctx context.Context) (map[string]numbers, error) {
	f, err := w.facts(ctx)
	return f.panels(), err
}

func (f *facts) remember() {
	for _, server := range f.state.Servers {
		f.history.servers[server.ID] = server.Flavor.Name + " " + server.ZoneName
	}
	for i := range f.claims {
		f.history.claims.Insert(f.claims[i].UID)
	}
}

// numbers are those of a panel by the names of its series; "" alone is the sum of all series.
type numbers map[string]float64

func one[T int | float64](number T) numbers { return numbers{"": float64(number)} }

// panels is the ground truth: what the panels of the dashboards must show, by their titles. What counts something counts from the
// beginning. test/e2e/monitoring/panels.yaml says how each is compared, and why the others have no truth outside of the controller.
func (f *facts) panels() map[string]numbers {
	panels := map[string]numbers{}
	for _, add := range []func(map[string]numbers){f.addRequests, f.addFleet, f.addCost, f.addShares, f.addOfferings, f.addLaunches} {
		add(panels)
	}
	return panels
}

func (f *facts) addRequests(panels map[string]numbers) {
	all := float64(len(f.requests))
	outcomes := tally(f.requests, outcome)
	panels["Requests per second"] = one(all)
	panels["Success"] = numbers{"part": outcomes["success"] + outcomes["NotFound"], "all": all}
	panels["Requests by outcome"] = outcomes
	panels["Requests by route"] = tally(f.requests, route)
	panels["Rejected logins"] = one(f.sent(http.MethodPost, "/token", failed))
	panels["Logins"] = numbers{"success": f.sent(http.MethodPost, "/token", accepted), "refused": f.sent(http.MethodPost, "/token", failed)}
	panels["Configuration applied"] = one(lo.Ternary(accepted(f.lastAnswer("/token")), 1, 0))
	panels["Quota rejections"] = one(lo.CountBy(f.requests, func(r cloud.Request) bool {
		return r.Status == http.StatusForbidden || r.Status == http.StatusPaymentRequired
	}))
	panels["Changes of the catalog"] = one(0) // nothing in a demo changes what the sandbox offers
}

func (f *facts) addFleet(panels map[string]numbers) {
	panels["Nodes"] = one(len(f.state.Servers))
	panels["Nodes by flavor"] = tally(f.state.Servers, func(s cloud.Server) string { return s.Flavor.Name })
	panels["Nodes by zone"] = tally(f.state.Servers, func(s cloud.Server) string { return s.ZoneName })
	panels["Nodes removed, by reason"] = f.disruptions()
	// Each pod of a demo fits on a flavor.
	panels["Unschedulable pods"] = one(lo.CountBy(f.pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" && f.bill.At.Sub(p.CreationTimestamp.Time) > time.Minute
	}))
}

func (f *facts) addLaunches(panels map[string]numbers) {
	launched, rejected := f.sent(http.MethodPost, "/servers", accepted), f.sent(http.MethodPost, "/servers", failed)
	panels["Launched"], panels["Failed"] = one(launched), one(rejected)
	panels["Launches by outcome"] = numbers{"launched": launched, "rejected": rejected}
	panels["Failures by reason"] = one(rejected)
	panels["Launches by flavor"] = tally(lo.Values(f.history.servers), func(of string) string { return of })
	panels["Deletions by outcome"] = numbers{
		"server accepted": f.sent(http.MethodDelete, "/servers/{id}", accepted), "disk accepted": f.sent(http.MethodDelete, "/volumes/{id}", accepted),
	}
	created := f.history.claims.Len()
	panels["NodeClaims created and deleted"] = numbers{"created": float64(created), "deleted": float64(created - len(f.claims))}
	panels["NodeClaims by registration"] = tally(f.claims, func(c karpv1.NodeClaim) string {
		return string(c.StatusConditions().Get(karpv1.ConditionTypeRegistered).GetStatus())
	})
	orphans := lo.CountBy(f.state.Servers, func(s cloud.Server) bool {
		return !slices.ContainsFunc(f.claims, func(c karpv1.NodeClaim) bool { return strings.HasSuffix(c.Status.ProviderID, "/"+s.ID) })
	})
	panels["Without a NodeClaim"] = one(orphans)
	// Where none is ever there, none is deleted, and there is no reason to suspend that.
	panels["Garbage collected"], panels["Collection suspended"] = one(orphans), one(orphans)
}

// addCost adds what the one NodePool costs. A disk costs where it is.
func (f *facts) addCost(panels map[string]numbers) {
	perHour := f.bill.VNDPerHour
	panels["Cost per hour"], panels["Cost per month"], panels["Cost by NodePool"] = one(perHour), one(720*perHour), numbers{"default": perHour}
	panels["Nodes without a price"] = one(lo.CountBy(f.state.Servers, func(s cloud.Server) bool {
		return !slices.ContainsFunc(f.bill.Lines, func(l cloud.BillLine) bool { return l.ID == s.ID })
	}))
}

// addShares adds what pods request of the nodes, which are all of one NodePool.
func (f *facts) addShares(panels map[string]numbers) {
	sum := func(resource corev1.ResourceName, of func(corev1.Node) corev1.ResourceList) (total float64) {
		for _, node := range f.nodes {
			quantity := of(node)[resource]
			total += quantity.AsApproximateFloat64()
		}
		return total
	}
	requested := func(resource corev1.ResourceName) (total float64) {
		for _, pod := range f.pods {
			for _, container := range pod.Spec.Containers {
				if quantity := container.Resources.Requests[resource]; pod.Spec.NodeName != "" {
					total += quantity.AsApproximateFloat64()
				}
			}
		}
		return total
	}
	panels["Resources by NodePool"] = numbers{"default": f.counted()}
	if len(f.nodes) == 0 || requested(corev1.ResourceCPU) == 0 {
		return // shares of nothing
	}
	allocatable := func(n corev1.Node) corev1.ResourceList { return n.Status.Allocatable }
	panels["Requested share of the nodes"] = numbers{
		"CPU default":    requested(corev1.ResourceCPU) / sum(corev1.ResourceCPU, allocatable),
		"memory default": requested(corev1.ResourceMemory) / sum(corev1.ResourceMemory, allocatable),
	}
}

// counted are the CPUs that core counts against the limits of the NodePool: from the launch on, and no more once it is removing the node.
func (f *facts) counted() (cpus float64) {
	removing := sets.New[string]()
	for _, node := range f.nodes {
		if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }) {
			removing.Insert(node.Name)
		}
	}
	for i := range f.claims {
		if claim := &f.claims[i]; claim.DeletionTimestamp.IsZero() && !removing.Has(claim.Status.NodeName) {
			cpus += claim.Status.Capacity.Cpu().AsApproximateFloat64()
		}
	}
	return cpus
}

// addOfferings adds what the NodeClass can be served with. An offering that was rejected is unavailable for longer than a demo takes. A
// price has the root disk in it, which all servers have alike: it is known from the first one.
func (f *facts) addOfferings(panels map[string]numbers) {
	if len(f.classes) != 1 || !f.classes[0].StatusConditions().Root().IsTrue() {
		return
	}
	available := lo.Filter(f.offerings, func(o cloud.Offering, _ int) bool { return o.Rejected == 0 })
	panels["Available offerings"] = one(len(available))
	panels["Available offerings by zone"] = tally(available, func(o cloud.Offering) string { return o.Zone })
	panels["Available share"] = one(float64(len(available)) / float64(len(f.offerings)))
	panels["Flavors"] = one(len(lo.UniqBy(f.offerings, func(o cloud.Offering) string { return o.Flavor })))
	panels["Marks"] = one(lo.CountBy(f.offerings, func(o cloud.Offering) bool { return o.Rejected > 0 }))
	panels["Marks by reason"] = panels["Marks"]
	disk, known := lo.Find(f.bill.Lines, func(l cloud.BillLine) bool { return l.State == cloud.BilledDisk })
	if !known {
		return
	}
	price := func(o cloud.Offering) float64 { return o.VNDPerHour + disk.VNDPerHour }
	cheapest := slices.SortedFunc(slices.Values(available), func(a, b cloud.Offering) int { return cmp.Compare(price(a), price(b)) })
	// Which of several with the same price are shown is open.
	panels["The ten cheapest available"] = one(lo.SumBy(cheapest[:min(10, len(cheapest))], price))
	zones := numbers{}
	for _, o := range f.offerings {
		perCPU := price(o) / float64(o.VCPUs)
		zones[o.Zone] = min(perCPU, cmp.Or(zones[o.Zone], perCPU))
	}
	panels["Cheapest vCPU hour by zone"] = zones
}

// disruptions counts the NodeClaims that Karpenter has reported to disrupt, by reason.
func (f *facts) disruptions() numbers {
	reasons := numbers{}
	for i := range f.events {
		event := &f.events[i]
		if reason, found := strings.CutPrefix(event.Message, "Disrupting NodeClaim: "); found && event.Reason == "DisruptionTerminating" {
			reasons[strings.ToLower(reason)]++
		}
	}
	return reasons
}

// sent counts the requests to a route whose status is such.
func (f *facts) sent(method, to string, such func(status int) bool) float64 {
	return float64(lo.CountBy(f.requests, func(r cloud.Request) bool { return route(r) == method+" "+to && such(r.Status) }))
}

func accepted(status int) bool { return status > 0 && status < http.StatusBadRequest }

func failed(status int) bool { return !accepted(status) }

// lastAnswer is the status of the last request to a route.
func (f *facts) lastAnswer(to string) int {
	last, _, _ := lo.FindLastIndexOf(f.requests, func(r cloud.Request) bool { return strings.HasSuffix(route(r), " "+to) })
	return last.Status
}

// route is the method and the route below the URL of its service.
func route(r cloud.Request) string {
	path := r.Route
	for _, service := range []string{"/iaas-cloud/api", "/api/kubernetes-engine", "/api/account", "/api"} {
		if below, found := strings.CutPrefix(path, service+"/"); found {
			path = "/" + below
			break
		}
	}
	return r.Method + " " + path
}

// outcome is the word of docs/reference/metrics.md for what the sandbox has answered.
func outcome(r cloud.Request) string {
	switch {
	case accepted(r.Status):
		return "success"
	case r.Status == http.StatusNotFound:
		return "NotFound"
	case r.Fault == string(cloud.EffectNoCapacity):
		return "Capacity"
	case r.Status >= http.StatusInternalServerError:
		return "Outage"
	}
	return http.StatusText(r.Status)
}

// tally counts by name.
func tally[T any](all []T, name func(T) string) numbers {
	counts := numbers{}
	for _, each := range all {
		counts[name(each)]++
	}
	return counts
}
