// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	ourevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// world is a copy of the cluster in which the offerings are unavailable whose launches lately failed.
type world struct {
	session    *connect.Session
	cloud      *connect.Cloud
	objects    memory.Objects
	pools      []*karpv1.NodePool
	simulation *sim.Simulation
	launches   launches
}

var factWorld = newFact("copy of the cluster", func(ctx context.Context, r *reading) (*world, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{session: r.Session, cloud: cloud}
	w.launches, _ = factLaunches.in(ctx, r)
	if w.objects, err = r.Copy(ctx); err != nil {
		return nil, err
	}
	if w.simulation, err = w.simulate(ctx, w.objects, true); err != nil {
		return nil, err
	}
	w.pools = memory.All[*karpv1.NodePool](w.simulation.Objects)
	return w, nil
})

// Simulate makes a copy of the cluster in which the offerings are unavailable whose launches lately failed.
func Simulate(ctx context.Context, s *connect.Session) (*sim.Simulation, error) {
	w, err := factWorld.in(ctx, newReading(s))
	if err != nil {
		return nil, err
	}
	return w.simulation, nil
}

// simulate makes a simulation of the objects, in which what lately failed is unavailable where the user wants that.
func (w *world) simulate(ctx context.Context, objects memory.Objects, marked bool) (*sim.Simulation, error) {
	made, err := sim.New(ctx, w.cloud, objects)
	if err != nil || !marked {
		return made, err
	}
	// The simulation's NodeClasses have no managed fields, which say when they were changed.
	pools, nodeClasses := memory.All[*karpv1.NodePool](made.Objects), memory.Of[*v1alpha1.BizflyNodeClass](objects)
	unavailable := w.launches.unavailable(w.session, nodeClasses, pools, func() []*corecloudprovider.InstanceType {
		return lo.FlatMap(pools, func(pool *karpv1.NodePool, _ int) []*corecloudprovider.InstanceType {
			all, _ := made.Provider.GetInstanceTypes(ctx, pool) // where it fails, the rule about flavors says so
			return all
		})
	})
	keys := map[string]string{}
	for _, stored := range nodeClasses {
		// The copy's NodeClass has what the controller's code has resolved, which is part of its key.
		resolved, _ := memory.Find[*v1alpha1.BizflyNodeClass](made.Objects, client.ObjectKeyFromObject(stored))
		key := capacity.NodeClassKey(resolved)
		if falseMessage(stored.Status.Conditions, v1alpha1.ConditionTypeLaunchesSucceeding) != "" {
			made.Providers.Capacity.MarkUnavailable(ctx, capacity.Offering{NodeClass: key}, "launches pause", time.Hour)
		}
		keys[stored.Name] = key
	}
	for _, u := range unavailable {
		scope, why := u.Offering, fmt.Sprintf("%s, until about %s or longer", u.why, u.until.Local().Format(time.TimeOnly))
		scope.NodeClass = keys[u.NodeClass]
		made.Providers.Capacity.MarkUnavailable(ctx, scope, why, time.Until(u.until))
	}
	return made, nil
}

// waitAlone lets no other pod wait than this one.
func waitAlone(ctx context.Context, s *sim.Simulation, pod *corev1.Pod) error {
	bound := lo.Filter(memory.All[*corev1.Pod](s.Objects), func(other *corev1.Pod, _ int) bool {
		return other.Spec.NodeName != ""
	})
	s.Objects.SetPods(append(bound, pod))
	return s.Observe(ctx)
}

// launches are what the cluster shows of launches: its NodeClaims by name, and the events of NodeClaims, also of those
// that have ended.
type launches struct {
	claims map[string]karpv1.NodeClaim
	events []corev1.Event
}

// factLaunches notes what it could not read, since the rest is worth knowing.
var factLaunches = newFact("launches", func(ctx context.Context, r *reading) (launches, error) {
	claims, err := factNodeClaims.in(ctx, r)
	if err != nil {
		r.Note("NodeClaims were not looked at: %s", err)
	}
	all, err := factEvents.in(ctx, r)
	if err != nil {
		r.Note("failed launches were not looked at: %s", err)
	}
	byName := lo.KeyBy(lo.FromPtr(claims).Items, func(claim karpv1.NodeClaim) string { return claim.Name })
	return launches{byName, all}, nil
})

// nodePoolOf returns the NodePool of a NodeClaim. Core names a NodeClaim after it, which is what is left of one that
// has ended.
func (l launches) nodePoolOf(name string) string {
	if claim, ok := l.claims[name]; ok {
		return claim.Labels[karpv1.NodePoolLabelKey]
	}
	return name[:max(0, strings.LastIndex(name, "-"))]
}

// failedOffering is how the controller's events name an offering (internal/events).
var failedOffering = regexp.MustCompile(`(?:Insufficient capacity for |create request for |is deleted\. |^Server \S+ \()(\S+) in ([^\s)]+)(?: \(([^)]*)\))?`)

// failures are the launches of each NodePool that failed within an hour.
func (l launches) failures(now time.Time) map[string][]corev1.Event {
	return lo.GroupBy(lo.Filter(failedLaunches(l.events, now), func(e corev1.Event, _ int) bool {
		return now.Sub(lastSeen(&e)) < ttl.NotRegistered && e.InvolvedObject.Kind == "NodeClaim"
	}), func(e corev1.Event) string { return l.nodePoolOf(e.InvolvedObject.Name) })
}

// tooBig is how the controller's event names the size that the quota does not allow.
var tooBig = regexp.MustCompile(`a server of (\d+) vCPUs and (\d+) MiB`)

// unavailableOffering is one that the controller has marked since its launch failed, why, and when it is tried again.
// The scope of the mark has the name of the NodeClass, where that is part of it.
type unavailableOffering struct {
	capacity.Offering
	why   string
	until time.Time
}

// unavailable are the offerings whose launches lately failed, with the scope that the controller gives its marks, which
// it keeps in memory, and for as long as a first failure does: repeated ones last longer. A size that the quota does
// not allow is all flavors of that size or bigger ones.
func (l launches) unavailable(s *connect.Session, nodeClasses []*v1alpha1.BizflyNodeClass, pools []*karpv1.NodePool,
	types func() []*corecloudprovider.InstanceType) []unavailableOffering {
	byName := lo.KeyBy(nodeClasses, func(n *v1alpha1.BizflyNodeClass) string { return n.Name })
	ofPool := lo.SliceToMap(pools, func(pool *karpv1.NodePool) (string, string) {
		return pool.Name, lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
	})
	var found []unavailableOffering
	for i := range l.events {
		event := &l.events[i]
		name, launched := event.InvolvedObject.Name, lastSeen(event)
		if size := tooBig.FindStringSubmatch(event.Message); size != nil && event.Reason == ourevents.ReasonQuotaTooSmall {
			cpu, memory := resource.MustParse(size[1]), resource.MustParse(size[2])
			for _, it := range types() {
				sold, _ := strconv.ParseInt(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Any(), 10, 64)
				if it.Capacity.Cpu().Cmp(cpu) >= 0 && sold >= memory.Value() {
					found = append(found, unavailableOffering{capacity.Offering{Flavor: it.Name}, "quota exceeded",
						launched.Add(s.Settings.AccountPause)})
				}
			}
			continue
		}
		nodeClass := byName[lo.CoalesceOrEmpty(lo.FromPtr(l.claims[name].Spec.NodeClassRef).Name, ofPool[l.nodePoolOf(name)])]
		parts := failedOffering.FindStringSubmatch(event.Message)
		if nodeClass == nil || parts == nil {
			continue
		}
		u := unavailableOffering{capacity.Offering{Flavor: parts[1], Zone: parts[2],
			BillingPlan: bizfly.PlanWord(nodeClass.EffectiveBillingPlan()), NodeClass: nodeClass.Name},
			lo.CoalesceOrEmpty(parts[3], event.Reason), launched.Add(s.Settings.UnavailableOfferingTTL)}
		switch event.Reason {
		case ourevents.ReasonOfferingUnavailable:
			u.NodeClass = ""
		case ourevents.ReasonLaunchRejected, ourevents.ReasonLaunchFailed:
		case ourevents.ReasonNodeNotRegistered:
			launched, u.until = launched.Add(-ttl.Registration), launched.Add(ttl.NotRegistered)
		default:
			continue
		}
		if u.NodeClass == "" || !launched.Before(lastChanged(nodeClass)) {
			found = append(found, u)
		}
	}
	return found
}

// concerns reports whether launches with the NodeClass meet the mark.
func (u unavailableOffering) concerns(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass != nil && lo.Contains([]string{"", nodeClass.Name}, u.NodeClass) &&
		lo.Contains([]string{"", bizfly.PlanWord(nodeClass.EffectiveBillingPlan())}, u.BillingPlan)
}

// lastChanged is when the spec of a NodeClass was last written: the controller forgets then what failed with the former
// one.
func lastChanged(nodeClass *v1alpha1.BizflyNodeClass) time.Time {
	return lo.Latest(lo.FilterMap(nodeClass.ManagedFields, func(entry metav1.ManagedFieldsEntry, _ int) (time.Time, bool) {
		return lo.FromPtr(entry.Time).Time, entry.Subresource == ""
	})...)
}

// maxReported bounds what a pod reports of NodeClaims: when one node does not join, hundreds may not.
const maxReported = 10

// report adds which nodes of NodePools that the pod could use are on their way, and which failed lately.
func (p *Pod) report(ctx context.Context, s *connect.Session, l launches, nodes *corev1.NodeList) {
	usable := lo.SliceToMap(p.Pools, func(pool Pool) (string, bool) { return pool.Name, pool.suits() })
	underWay := l.underWay(usable)
	entries := append(l.warnings(usable), lo.Map(underWay, func(claim *karpv1.NodeClaim, _ int) Entry {
		return Entry{Time: claim.CreationTimestamp.Time, From: "NodeClaim " + claim.Name, What: now(claim, nil)}
	})...)
	entries = append(entries, l.tainted(usable, nodes)...)
	slices.SortStableFunc(entries, byTime)
	if more := len(entries) - maxReported; more > 0 {
		s.Note("%d earlier lines about NodeClaims are left out (kubectl get nodeclaims; kubectl get events -n default)", more)
		entries = entries[more:]
	}
	p.Events = append(p.Events, entries...)
	slices.SortStableFunc(p.Events, byTime)
	if len(underWay) > 0 {
		server, _ := providerid.Parse(underWay[0].Status.ProviderID)
		p.Help = append(p.Help, help(ctx, s, underWay[0], server)...)
	}
}

// suits reports whether nothing about the pod keeps it from the NodePool: what else fails may pass.
func (p Pool) suits() bool {
	passes := []string{"ready", "static", "limits", "launches", "offerings"}
	return lo.EveryBy(p.Checks, func(c Check) bool { return !c.failed() || lo.Contains(passes, c.Name) })
}

// underWay returns the NodeClaims of the NodePools whose nodes have not joined yet, the oldest first.
func (l launches) underWay(pools map[string]bool) []*karpv1.NodeClaim {
	claims := lo.FilterMapToSlice(l.claims, func(_ string, claim karpv1.NodeClaim) (*karpv1.NodeClaim, bool) {
		return &claim, pools[claim.Labels[karpv1.NodePoolLabelKey]] && claim.DeletionTimestamp == nil && !registered(&claim)
	})
	slices.SortFunc(claims, func(a, b *karpv1.NodeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return claims
}

// tainted are the nodes of the NodePools that have joined and take no pod yet, since nobody has removed a startup
// taint.
func (l launches) tainted(pools map[string]bool, nodes *corev1.NodeList) []Entry {
	return lo.FilterMap(lo.FromPtr(nodes).Items, func(node corev1.Node, _ int) (Entry, bool) {
		claim, ok := lo.Find(lo.Values(l.claims), func(c karpv1.NodeClaim) bool { return c.Status.NodeName == node.Name })
		taint, waits := startupTaint(&claim, &node)
		return Entry{Time: node.CreationTimestamp.Time, From: "node " + node.Name, Problem: true,
				What: fmt.Sprintf("it has joined, and takes no pod until someone removes its startup taint %s", taint.ToString())},
			ok && waits && pools[claim.Labels[karpv1.NodePoolLabelKey]]
	})
}

func registered(claim *karpv1.NodeClaim) bool {
	return claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
}

// warnings returns what went wrong in the last hour with NodeClaims of the NodePools whose nodes have not joined. Of
// one that does not exist any more, only two reasons show that.
func (l launches) warnings(pools map[string]bool) []Entry {
	return lo.FilterMap(l.events, func(event corev1.Event, _ int) (Entry, bool) {
		name, at := event.InvolvedObject.Name, lastSeen(&event)
		failed := event.Reason == ourevents.ReasonLaunchFailed || event.Reason == ourevents.ReasonNodeNotRegistered
		if claim, exists := l.claims[name]; exists {
			failed = event.Type == corev1.EventTypeWarning && !registered(&claim)
		}
		return Entry{Time: at, From: "NodeClaim " + name, What: event.Reason + ": " + event.Message, Problem: true},
			failed && pools[l.nodePoolOf(name)] && time.Since(at) < ttl.NotRegistered
	})
}

// recently is how far back events are looked at.
const recently = 24 * time.Hour

var launchRules = []rule{
	{code: "QuotaRejected", about: "rejected launches", severity: Warning,
		why: "pods stay pending, or run on flavors that cost more",
		fix: "raise the project's quota in the BizFly Cloud console, or top up the balance",
		given: given2(factEvents, factTime, func(all []corev1.Event, now time.Time) outcome {
			quota := lo.Filter(failedLaunches(all, now), func(e corev1.Event, _ int) bool { return ofQuota(&e) })
			return failsIf(len(quota) > 0, "%d launches were rejected by quota or balance within a day; the last one: %s",
				len(quota), lo.LastOrEmpty(quota).Message)
		})},
	{code: "LaunchesFailed", about: "rejected launches", severity: Warning,
		why: "nodes come late, and each attempt is paid for",
		fix: "kubectl get events --namespace default --field-selector type=Warning",
		given: given2(factEvents, factTime, func(all []corev1.Event, now time.Time) outcome {
			other := lo.Reject(failedLaunches(all, now), func(e corev1.Event, _ int) bool { return ofQuota(&e) })
			return failsIf(len(other) > 0, "%d launches failed within a day; the last one: %s", len(other),
				lo.LastOrEmpty(other).Message)
		})},
}

// failedLaunches are the events of the last day that report one, the oldest first.
func failedLaunches(all []corev1.Event, now time.Time) []corev1.Event {
	of := lo.Filter(all, func(e corev1.Event, _ int) bool {
		return now.Sub(lastSeen(&e)) <= recently && (ofQuota(&e) || lo.Contains([]string{ourevents.ReasonLaunchesPaused,
			ourevents.ReasonLaunchRejected,
			ourevents.ReasonLaunchFailed, ourevents.ReasonNodeNotRegistered}, e.Reason))
	})
	slices.SortStableFunc(of, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	return of
}

// ofQuota reports whether a launch was rejected by quota or balance.
func ofQuota(e *corev1.Event) bool {
	return e.Reason == ourevents.ReasonAccountLimit || e.Reason == ourevents.ReasonQuotaTooSmall ||
		e.Reason == ourevents.ReasonLaunchesPaused && strings.Contains(e.Message, capacity.ReasonQuotaExceeded)
}
