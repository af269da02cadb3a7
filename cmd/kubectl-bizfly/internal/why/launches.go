// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// limitReached returns what the controller reports of a limit of the whole cluster that holds launches back; empty where none does.
func limitReached(ctx context.Context, s *connect.Session) string {
	config := &v1alpha1.ProviderConfig{}
	if err := s.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config); err != nil {
		if !apierrors.IsNotFound(err) && !connect.IsMissing(err) {
			s.Note("whether a limit of the cluster holds launches back was not looked at: %s", err)
		}
		return ""
	}
	return falseMessage(config.Status.Conditions, v1alpha1.ConditionTypeWithinSpendingLimits)
}

// launchesHeld returns what holds launches of the NodePool back, by what the controller has stored, and marks a NodeClass unavailable with which they
// pause, as the controller does in its memory.
func launchesHeld(ctx context.Context, simulation *sim.Simulation, pool *karpv1.NodePool, limit string) string {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if simulation.Objects.Get(ctx, types.NamespacedName{Name: lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name}, nodeClass) != nil {
		return limit // the NodePool is not ready then
	}
	paused := falseMessage(nodeClass.Status.Conditions, v1alpha1.ConditionTypeLaunchesSucceeding)
	if paused != "" {
		simulation.Capacity.MarkUnavailable(ctx, capacity.Offering{NodeClass: capacity.NodeClassKey(nodeClass)}, "launches pause", time.Hour)
	}
	return lo.CoalesceOrEmpty(paused, limit)
}

// falseMessage returns the message of a condition that is False, and nothing of any other.
func falseMessage(conditions []status.Condition, conditionType string) string {
	found, _ := lo.Find(conditions, func(c status.Condition) bool { return c.Type == conditionType && c.IsFalse() })
	return found.Message
}

// launches are what the cluster shows of launches: its NodeClaims by name, and the events of NodeClaims, also of those that have ended.
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

// nodePoolOf returns the NodePool of a NodeClaim. Core names a NodeClaim after it, which is what is left of one that has ended.
func (l launches) nodePoolOf(name string) string {
	if claim, ok := l.claims[name]; ok {
		return claim.Labels[karpv1.NodePoolLabelKey]
	}
	return name[:max(0, strings.LastIndex(name, "-"))]
}

// failedOffering is how the controller's events name an offering (internal/events).
var failedOffering = regexp.MustCompile(`(?:Insufficient capacity for |create request for |is deleted\. |^Server \S+ \()(\S+) in ([^\s)]+)(?: \(([^)]*)\))?`)

// mark marks the offerings unavailable whose launches lately failed, with the scope that the controller gives its marks, which it keeps in
// memory, and for as long as a first failure does: repeated ones last longer.
func (l launches) mark(ctx context.Context, s *connect.Session, simulation *sim.Simulation, objects memory.Objects, pools []karpv1.NodePool) error {
	list := &v1alpha1.BizflyNodeClassList{}
	if err := simulation.Objects.List(ctx, list); err != nil {
		return err
	}
	nodeClasses := lo.KeyBy(lo.ToSlicePtr(list.Items), func(n *v1alpha1.BizflyNodeClass) string { return n.Name })
	// The simulation's NodeClasses have no managed fields.
	changedAt := lo.SliceToMap(memory.Of[*v1alpha1.BizflyNodeClass](objects), func(n *v1alpha1.BizflyNodeClass) (string, time.Time) { return n.Name, changed(n) })
	ofPool := lo.SliceToMap(pools, func(pool karpv1.NodePool) (string, string) {
		return pool.Name, lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
	})
	for i := range l.events {
		event := &l.events[i]
		name := event.InvolvedObject.Name
		nodeClass := nodeClasses[lo.CoalesceOrEmpty(lo.FromPtr(l.claims[name].Spec.NodeClassRef).Name, ofPool[l.nodePoolOf(name)])]
		parts := failedOffering.FindStringSubmatch(event.Message)
		if nodeClass == nil || parts == nil {
			continue
		}
		scope := capacity.Offering{Flavor: parts[1], Zone: parts[2], BillingPlan: bizfly.PlanWord(nodeClass.EffectiveBillingPlan())}
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
		reason := fmt.Sprintf("%s, until about %s or longer", lo.CoalesceOrEmpty(parts[3], event.Reason), until.Local().Format(time.TimeOnly))
		simulation.Capacity.MarkUnavailable(ctx, scope, reason, time.Until(until))
	}
	return nil
}

// changed is when the spec of a NodeClass was last written: the controller forgets then what failed with the former one.
func changed(nodeClass *v1alpha1.BizflyNodeClass) time.Time {
	return lo.Latest(lo.FilterMap(nodeClass.ManagedFields, func(entry metav1.ManagedFieldsEntry, _ int) (time.Time, bool) {
		return lo.FromPtr(entry.Time).Time, entry.Subresource == ""
	})...)
}

// maxReported bounds what a pod reports of NodeClaims: when one node does not join, hundreds may not.
const maxReported = 10

// report adds which nodes of NodePools that the pod could use are on their way, and which failed lately.
func (p *Pod) report(s *connect.Session, l launches) {
	usable := lo.SliceToMap(p.Pools, func(pool Pool) (string, bool) { return pool.Name, pool.suits() })
	underWay := l.underWay(usable)
	entries := append(l.warnings(usable), lo.Map(underWay, func(claim *karpv1.NodeClaim, _ int) Entry {
		return Entry{Time: claim.CreationTimestamp.Time, From: "NodeClaim " + claim.Name, What: now(claim, nil)}
	})...)
	slices.SortStableFunc(entries, byTime)
	if more := len(entries) - maxReported; more > 0 {
		s.Note("%d earlier lines about NodeClaims are left out (kubectl get nodeclaims; kubectl get events -n default)", more)
		entries = entries[more:]
	}
	p.Events = append(p.Events, entries...)
	slices.SortStableFunc(p.Events, byTime)
	if len(underWay) > 0 {
		server, _ := providerid.Parse(underWay[0].Status.ProviderID)
		p.Help = append(p.Help, help(underWay[0], server)...)
	}
}

// suits reports whether nothing about the pod keeps it from the NodePool: what else fails may pass.
func (p Pool) suits() bool {
	passes := []string{"ready", "static", "limits", "launches", "offerings"}
	return lo.EveryBy(p.Checks, func(c Check) bool { return c.OK || lo.Contains(passes, c.Name) })
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

func registered(claim *karpv1.NodeClaim) bool {
	return claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
}

// warnings returns what went wrong in the last hour with NodeClaims of the NodePools whose nodes have not joined. Of one that does not exist any
// more, only two reasons show that.
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
