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
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

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
	simulation *simulation
	launches   launches
}

// simulation is a sim.Simulation of which pods can be asked one at a time.
type simulation struct{ *sim.Simulation }

var factWorld = newFact("copy of the cluster", func(ctx context.Context, r *reading) (*world, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{session: r.Session, cloud: cloud, launches: readLaunches(ctx, r.Session)}
	if w.objects, err = r.Copy(ctx); err != nil {
		return nil, err
	}
	if w.simulation, err = w.simulate(ctx, w.objects, true); err != nil {
		return nil, err
	}
	list := &karpv1.NodePoolList{}
	if err := w.simulation.Objects.List(ctx, list); err != nil {
		return nil, err
	}
	w.pools = lo.ToSlicePtr(list.Items)
	return w, nil
})

// simulate makes a simulation of the objects, in which what lately failed is unavailable where the user wants that.
func (w *world) simulate(ctx context.Context, objects memory.Objects, marked bool) (*simulation, error) {
	made, err := sim.New(ctx, w.cloud, objects)
	if err != nil || !marked {
		return &simulation{made}, err
	}
	pools, nodeClasses := &karpv1.NodePoolList{}, memory.Of[*v1alpha1.BizflyNodeClass](objects)
	if err := made.Objects.List(ctx, pools); err != nil {
		return nil, err
	}
	if err := w.launches.mark(ctx, w.session, made, objects, pools.Items); err != nil {
		return nil, err
	}
	for _, stored := range nodeClasses {
		// The copy's NodeClass has what the controller's code has resolved, which is part of its key.
		resolved := &v1alpha1.BizflyNodeClass{}
		if falseMessage(stored.Status.Conditions, v1alpha1.ConditionTypeLaunchesSucceeding) != "" &&
			made.Objects.Get(ctx, types.NamespacedName{Name: stored.Name}, resolved) == nil {
			made.Providers.Capacity.MarkUnavailable(ctx, capacity.Offering{NodeClass: capacity.NodeClassKey(resolved)},
				"launches pause", time.Hour)
		}
	}
	return &simulation{made}, nil
}

// waitAlone lets no other pod wait than this one.
func (s *simulation) waitAlone(ctx context.Context, pod *corev1.Pod) error {
	pods := &corev1.PodList{}
	if err := s.Objects.List(ctx, pods); err != nil {
		return err
	}
	bound := lo.FilterMap(pods.Items, func(other corev1.Pod, _ int) (*corev1.Pod, bool) {
		return &other, other.Spec.NodeName != ""
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

func readLaunches(ctx context.Context, s *connect.Session) launches {
	claims, events := &karpv1.NodeClaimList{}, &corev1.EventList{}
	if err := s.List(ctx, claims); err != nil {
		s.Note("NodeClaims were not looked at: %s", err)
	}
	if err := s.List(ctx, events, connect.EventsOf("NodeClaim")...); err != nil {
		s.Note("failed launches were not looked at: %s", err)
	}
	return launches{lo.KeyBy(claims.Items, func(claim karpv1.NodeClaim) string { return claim.Name }), events.Items}
}

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

// mark marks the offerings unavailable whose launches lately failed, with the scope that the controller gives its
// marks, which it keeps in memory, and for as long as a first failure does: repeated ones last longer.
func (l launches) mark(ctx context.Context, s *connect.Session, simulation *sim.Simulation, objects memory.Objects,
	pools []karpv1.NodePool) error {
	list := &v1alpha1.BizflyNodeClassList{}
	if err := simulation.Objects.List(ctx, list); err != nil {
		return err
	}
	nodeClasses := lo.KeyBy(lo.ToSlicePtr(list.Items), func(n *v1alpha1.BizflyNodeClass) string { return n.Name })
	// The simulation's NodeClasses have no managed fields.
	changedAt := lo.SliceToMap(memory.Of[*v1alpha1.BizflyNodeClass](objects), func(n *v1alpha1.BizflyNodeClass) (string,
		time.Time) {
		return n.Name, lastChanged(n)
	})
	ofPool := lo.SliceToMap(pools, func(pool karpv1.NodePool) (string, string) {
		return pool.Name, lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
	})
	for i := range l.events {
		event := &l.events[i]
		name := event.InvolvedObject.Name
		if event.Reason == ourevents.ReasonQuotaTooSmall {
			l.markSizes(ctx, s, simulation, event, pools)
			continue
		}
		nodeClass := nodeClasses[lo.CoalesceOrEmpty(lo.FromPtr(l.claims[name].Spec.NodeClassRef).Name,
			ofPool[l.nodePoolOf(name)])]
		parts := failedOffering.FindStringSubmatch(event.Message)
		if nodeClass == nil || parts == nil {
			continue
		}
		scope := capacity.Offering{Flavor: parts[1], Zone: parts[2],
			BillingPlan: bizfly.PlanWord(nodeClass.EffectiveBillingPlan())}
		launched, until := lastSeen(event), lastSeen(event).Add(s.Settings.UnavailableOfferingTTL)
		switch event.Reason {
		case ourevents.ReasonOfferingUnavailable:
		case ourevents.ReasonLaunchRejected, ourevents.ReasonLaunchFailed:
			scope.NodeClass = capacity.NodeClassKey(nodeClass)
		case ourevents.ReasonNodeNotRegistered:
			scope.NodeClass = capacity.NodeClassKey(nodeClass)
			launched, until = launched.Add(-ttl.Registration), launched.Add(ttl.NotRegistered)
		default:
			continue
		}
		if scope.NodeClass != "" && launched.Before(changedAt[nodeClass.Name]) {
			continue
		}
		reason := fmt.Sprintf("%s, until about %s or longer", lo.CoalesceOrEmpty(parts[3], event.Reason),
			until.Local().Format(time.TimeOnly))
		simulation.Providers.Capacity.MarkUnavailable(ctx, scope, reason, time.Until(until))
	}
	return nil
}

// tooBig is how the controller's event names the size that the quota does not allow.
var tooBig = regexp.MustCompile(`a server of (\d+) vCPUs and (\d+) MiB`)

// markSizes marks what is as big as a server that the quota did not allow, for as long as the controller does.
func (l launches) markSizes(ctx context.Context, s *connect.Session, simulation *sim.Simulation, event *corev1.Event,
	pools []karpv1.NodePool) {
	parts := tooBig.FindStringSubmatch(event.Message)
	until := lastSeen(event).Add(s.Settings.AccountPause)
	if parts == nil || time.Now().After(until) {
		return
	}
	cpu, memory := resource.MustParse(parts[1]), resource.MustParse(parts[2])
	for i := range pools {
		all, err := simulation.Provider.GetInstanceTypes(ctx, &pools[i])
		if err != nil {
			continue // the rule about flavors says so
		}
		for _, it := range all {
			sold, _ := strconv.ParseInt(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Any(), 10, 64)
			if it.Capacity.Cpu().Cmp(cpu) >= 0 && sold >= memory.Value() {
				simulation.Providers.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: it.Name},
					fmt.Sprintf("quota exceeded, until about %s or longer", until.Local().Format(time.TimeOnly)), time.Until(until))
			}
		}
	}
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
