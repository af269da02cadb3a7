// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coreevents "sigs.k8s.io/karpenter/pkg/events"
	disruptionutils "sigs.k8s.io/karpenter/pkg/utils/disruption"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// heldByFinalizer holds once the server is gone: before, core's own finalizer is there, and another reason holds.
func heldByFinalizer(f *nodeFacts) *held {
	if f.node == nil || top.StatusOf(f.node) != top.Deleted || len(f.node.Finalizers) == 0 {
		return nil
	}
	return heldBy("%s of the Node, whose server is deleted", list(f.node.Finalizers))
}

func heldByStartupTaint(f *nodeFacts) *held {
	taint, waits := startupTaint(f.claim, f.node)
	return lo.Ternary(waits, heldBy("taint %s", taint.ToString()), nil)
}

// heldByAccount holds where servers may be stopped, and where a replacement cannot be launched.
func heldByAccount(f *nodeFacts) *held {
	if lo.HasKey(f.node.Annotations, v1alpha1.AnnotationDoNotRepairReason) {
		return heldBy("%s", lo.CoalesceOrEmpty(f.paused, "it was unpaid, and its server is not started yet"))
	}
	wanted := tainted(f.node) || f.replaceable() || f.saidOf(coreevents.ConsolidationCandidate, "") != nil
	return lo.Ternary(f.paused != "" && wanted, heldBy("%s", f.paused), nil)
}

// heldByOurs is about do-not-disrupt of the Node: the controller writes why it has, and a user does not.
func heldByOurs(reason string) func(*nodeFacts) *held {
	return func(f *nodeFacts) *held {
		why := f.node.Annotations[v1alpha1.AnnotationDoNotDisruptReason]
		word, rest, _ := strings.Cut(why, ":")
		if f.node.Annotations[karpv1.DoNotDisruptAnnotationKey] != "true" || reason != "" && word != reason {
			return nil
		}
		until, err := time.Parse(time.RFC3339, strings.TrimPrefix(strings.TrimSpace(rest), "until "))
		if err == nil {
			return heldBy("until %s", hour(until)).till(until)
		}
		return heldBy("%s", lo.CoalesceOrEmpty(strings.TrimSpace(rest), why, "annotation "+karpv1.DoNotDisruptAnnotationKey))
	}
}

func heldByConsolidateAfter(f *nodeFacts) *held {
	if f.replaceable() || !disruptionutils.IsUnderConsolidateAfter(f.pool, f.claim, f) {
		return nil
	}
	since := f.claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).LastTransitionTime.Time
	if !f.claim.Status.LastPodEventTime.IsZero() {
		since = f.claim.Status.LastPodEventTime.Time
	}
	after := *f.pool.Spec.Disruption.ConsolidateAfter.Duration
	until := since.Add(after)
	return heldBy("until %s, %s after the last change of its pods", hour(until), after).till(until)
}

// heldByPoolBudget holds where budgets allow none of the reasons for which core would disrupt the node.
func heldByPoolBudget(f *nodeFacts) *held {
	if f.pool == nil {
		return nil
	}
	var reasons []karpv1.DisruptionReason
	if f.drifted() != "" {
		reasons = append(reasons, karpv1.DisruptionReasonDrifted)
	}
	if lo.NoneBy(poolRules, func(r idleRule) bool { return r.holds(f) != nil }) {
		reasons = append(reasons, lo.Ternary(f.empty, karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonUnderutilized))
	}
	if lo.SomeBy(reasons, func(r karpv1.DisruptionReason) bool { return f.exhausted(r) == nil }) {
		return nil
	}
	return f.exhausted(reasons[0])
}

// exhausted says that budgets of the NodePool allow no disruption for a reason; nil where they do.
func (f *nodeFacts) exhausted(reason karpv1.DisruptionReason) *held {
	allowed := f.pool.MustGetAllowedDisruptions(f, f.members, reason)
	if allowed > f.disrupting {
		return nil
	}
	if allowed > 0 {
		return heldBy("NodePool %s allows %d at a time (%s), and %d are under way%s", f.pool.Name, allowed, reason,
			f.disrupting, lo.Ternary(top.StatusOf(f.node) == "NotReady", " or not ready, as this one", ""))
	}
	why := heldBy("NodePool %s allows 0 (%s)", f.pool.Name, reason)
	if next, ok := lo.Find(f.week(reason), func(w Window) bool { return w.Allowed > 0 }); ok {
		why.detail += " until " + hour(next.From)
		return why.till(next.From)
	}
	return why
}

// heldByDrift holds until core has found a place for the pods, or says that there is none.
func heldByDrift(f *nodeFacts) *held {
	if !f.replaceable() {
		return nil
	}
	if last, ok := lo.First(f.said); ok && last.Reason == coreevents.DisruptionBlocked {
		return heldBy("%s; %s (Karpenter at %s)", f.drifted(), strings.TrimSuffix(last.Message, "."), hour(lastSeen(&last)))
	}
	return heldBy("%s", f.drifted())
}

// heldByPrice names the label without which core compares no prices.
func heldByPrice(f *nodeFacts) *held {
	if f.empty {
		return nil
	}
	for _, label := range []string{corev1.LabelInstanceTypeStable, karpv1.CapacityTypeLabelKey, corev1.LabelTopologyZone} {
		if f.node.Labels[label] == "" {
			return heldBy("the Node has no label %s", label)
		}
	}
	name := f.node.Labels[corev1.LabelInstanceTypeStable]
	if it := f.flavors[name]; it != nil && disruptionutils.ResolveOfferingPrice(f.node.Labels, it) == 0 {
		return heldBy("flavor %s has no price with the Node's labels %s and %s", name, corev1.LabelTopologyZone,
			karpv1.CapacityTypeLabelKey)
	}
	return f.saidOf(coreevents.Unconsolidatable, "Instance Type ")
}

// heldByUnavailable names the first offering that would be cheaper, and that a launch has lately not got.
func heldByUnavailable(f *nodeFacts) *held {
	own := f.flavors[f.node.Labels[corev1.LabelInstanceTypeStable]]
	if f.saidOf(coreevents.Unconsolidatable, "Can't replace with") == nil || own == nil || f.pool == nil {
		return nil
	}
	price, requests := disruptionutils.ResolveOfferingPrice(f.node.Labels, own), resources.RequestsForPods(f.pods...)
	wanted := requirementsOf(f.pool)
	for _, u := range f.unavailable {
		it := f.flavors[u.Flavor]
		if it == nil || !u.until.After(f.now) || len(compatibleWith([]*corecloudprovider.InstanceType{it}, wanted)) == 0 {
			continue
		}
		zone := lo.CoalesceOrEmpty(u.Zone, f.node.Labels[corev1.LabelTopologyZone])
		other, ok := it.OfferingPrice(zone, f.node.Labels[karpv1.CapacityTypeLabelKey])
		if ok && other < price && resources.Fits(requests, it.Allocatable()) {
			return heldBy("%s in %s, until about %s", u.Flavor, zone, hour(u.until)).till(u.until)
		}
	}
	return nil
}

// heldByNeed is the rest of what core says where it has looked for another place.
func heldByNeed(f *nodeFacts) *held {
	if last, ok := lo.First(f.said); ok && strings.Contains(last.Message, "nominated for a pending pod") &&
		f.Since(lastSeen(&last)) < repeated {
		return heldBy("a pending pod is planned on it")
	}
	stale := []string{"NodePool ", "Instance Type ", "Node does not have label"} // what the state shows otherwise
	last, ok := lo.Find(f.said, func(e corev1.Event) bool { return e.Reason != coreevents.DisruptionBlocked })
	if ok && lo.ContainsBy(stale, func(b string) bool { return strings.HasPrefix(last.Message, b) }) {
		return nil
	}
	why := f.saidOf(coreevents.Unconsolidatable, "")
	if why != nil && strings.HasPrefix(why.detail, "Can't remove without creating") {
		why.detail += ", with the pods that were pending" // core counts them, and repeats itself after 15 minutes
	}
	return why
}

// heldByFailures holds where core last chose the node, or where it replaces the node and launches failed since it has
// drifted and since the last one that came to a node.
func heldByFailures(f *nodeFacts) *held {
	last, ok := lo.Last(f.failed)
	if !ok || f.pool == nil || heldByConsolidateAfter(f) != nil {
		return nil
	}
	since := lo.Latest(lo.FromPtr(f.claim.StatusConditions().Get(karpv1.ConditionTypeDrifted)).LastTransitionTime.Time, f.registered)
	if f.saidOf(coreevents.ConsolidationCandidate, "") == nil && (!f.replaceable() || lastSeen(&last).Before(since)) {
		return nil
	}
	return heldBy("%d launches of NodePool %s failed within an hour, the last at %s: %s", len(f.failed), f.pool.Name,
		hour(lastSeen(&last)), last.Message)
}

// heldByOthers holds after several of core's passes, each of which says something at least every 15 minutes.
func heldByOthers(f *nodeFacts) *held {
	const passes = 20 * time.Minute
	since := f.claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable)
	if !since.IsTrue() || f.Since(since.LastTransitionTime.Time) < passes || len(f.others) == 0 ||
		len(f.said) > 0 && f.Since(lastSeen(&f.said[0])) < passes {
		return nil
	}
	names := sortedKeys(f.others)
	most := lo.MaxBy(names, func(a, b string) bool { return f.others[a] > f.others[b] })
	return heldBy("by NodePool %s: Karpenter looked at %d of its nodes in 20 minutes, and not at this one", most,
		f.others[most])
}
