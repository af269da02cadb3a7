// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreevents "sigs.k8s.io/karpenter/pkg/events"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
)

// IdleNode is a node of top, and why it is still there.
type IdleNode struct {
	top.Node
	// UnusedVNDPerHour is the part of the price that no pod requests, of the resource that is requested most.
	UnusedVNDPerHour float64 `json:"unusedVNDPerHour"`
	// Reason is stable, in CamelCase; Detail names the objects, and Until is when it ends by itself, if that is known.
	Reason string    `json:"reason"`
	Detail string    `json:"detail"`
	Until  time.Time `json:"until,omitzero"`
}

// IdleReason is what the nodes of one reason cost, and what ends it.
type IdleReason struct {
	Reason           string  `json:"reason"`
	What             string  `json:"what"`
	Help             string  `json:"help"`
	Nodes            int     `json:"nodes"`
	VNDPerHour       float64 `json:"vndPerHour"`
	UnusedVNDPerHour float64 `json:"unusedVNDPerHour"`
}

// Idle is what is paid for, and what holds it. Reasons and nodes are sorted by money.
type Idle struct {
	Reasons          []IdleReason `json:"reasons"`
	Nodes            []IdleNode   `json:"nodes"`
	VNDPerHour       float64      `json:"vndPerHour"`
	VNDPerMonth      float64      `json:"vndPerMonth"`
	UnusedVNDPerHour float64      `json:"unusedVNDPerHour"`
}

// held is why a node is still there.
type held struct {
	detail string
	until  time.Time
}

func heldBy(format string, args ...any) *held { return &held{detail: fmt.Sprintf(format, args...)} }

func (h *held) till(until time.Time) *held {
	h.until = until
	return h
}

// idleRule is one reason. The first that holds is the reason of a node, so that what no other cure helps against comes
// first; what core found out when nothing was in its way comes last.
type idleRule struct {
	code, what, help string
	needs            []need
	holds            func(f *nodeFacts) *held
}

// repeated is how long an event holds that is repeated every two minutes, such as core's about a nomination.
const repeated = 3 * time.Minute

// drainRules are the reasons of a node that is being deleted.
var drainRules = []idleRule{
	{"HeldByFinalizer", "a finalizer holds it",
		"Let the owner of the finalizer end, or remove the finalizer with kubectl edit.",
		nil, heldByFinalizer},
	{"DoNotDisruptPod", "a pod has do-not-disrupt",
		"Remove the annotation karpenter.sh/do-not-disrupt from the pod, or end the pod.",
		nil, (*nodeFacts).keptByPod},
	{"PodDisruptionBudget", "a PodDisruptionBudget allows no eviction",
		"Let the PodDisruptionBudget allow one eviction: more replicas, or another limit.",
		[]need{factPDBs}, (*nodeFacts).keptByBudget},
	{"Deleting", "it is being deleted", "Wait: it ends when its pods are evicted and its server is deleted.",
		nil, func(f *nodeFacts) *held {
			return heldBy("%s", lo.CoalesceOrEmpty(f.notGone, "its pods are evicted, then its server is deleted"))
		}},
}

// stateRules are about nodes that core does not look at, or has chosen already.
var stateRules = []idleRule{
	{"NotKarpenters", "Karpenter did not launch it",
		"Resize the worker pool that it belongs to (kubectl bizfly pool list).",
		[]need{factNodeClaims}, func(f *nodeFacts) *held {
			return lo.Ternary(f.claim == nil, heldBy("no NodeClaim has this node"), nil)
		}},
	{"Joining", "it is on its way", "Wait: kubectl bizfly why nodeclaim/NAME shows how far it is.",
		nil, func(f *nodeFacts) *held { return lo.Ternary(f.node == nil, heldBy("%s", now(f.claim, nil)), nil) }},
	{"StartupTaint", "a startup taint keeps pods away",
		"Let what removes the taint run on the node, or remove the taint from the node.",
		nil, heldByStartupTaint},
	{"NotInitialized", "it is not initialized", "kubectl bizfly why node/NAME shows what is missing.",
		nil, func(f *nodeFacts) *held {
			initialized := f.claim.StatusConditions().Get(karpv1.ConditionTypeInitialized)
			return lo.Ternary(initialized.IsTrue(), nil, heldBy("%s", now(f.claim, f.node)))
		}},
	{"AccountPaused", "the account accepts no launch",
		"Pay, raise the limit or repair what the ProviderConfig's conditions name.",
		[]need{factProviderConfig}, heldByAccount},
	{"Replacing", "its replacement is on its way", "Wait: it is drained when its replacement is initialized.",
		nil, func(f *nodeFacts) *held {
			reason := lo.FromPtr(f.claim.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason)).Reason
			return lo.Ternary(tainted(f.node), heldBy("Karpenter has chosen it (%s)",
				lo.CoalesceOrEmpty(reason, "its reason is not stored")), nil)
		}},
}

// poolRules are what a NodePool says of consolidation, which does not keep core from replacing what has drifted.
var poolRules = []idleRule{
	{"StaticNodePool", "its NodePool is static", "Lower spec.replicas of the NodePool (kubectl scale nodepool).",
		[]need{factNodePools}, func(f *nodeFacts) *held {
			if f.pool == nil || f.pool.Spec.Replicas == nil {
				return nil
			}
			return heldBy("NodePool %s keeps %d nodes (spec.replicas)", f.pool.Name, *f.pool.Spec.Replicas)
		}},
	{"ConsolidationOff", "its NodePool is not consolidated",
		"Set spec.disruption.consolidateAfter of the NodePool to a time.",
		[]need{factNodePools}, func(f *nodeFacts) *held {
			if f.pool == nil || f.pool.Spec.Disruption.ConsolidateAfter.Duration != nil {
				return nil
			}
			return heldBy("consolidateAfter of NodePool %s is Never", f.pool.Name)
		}},
	{"OnlyWhenEmpty", "its NodePool is consolidated only when empty",
		"Set spec.disruption.consolidationPolicy of the NodePool to Balanced.",
		[]need{factNodePools}, func(f *nodeFacts) *held {
			if f.pool == nil || f.pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty || f.empty {
				return nil
			}
			return heldBy("NodePool %s has the policy WhenEmpty, and pods run on the node", f.pool.Name)
		}},
}

var idleRules = []idleRule{
	{"HourPaid", "its hour is paid",
		"Wait for the end of the hour, or set billingPeriod of the tuning to 1s.", nil, heldByOurs("HourPaid")},
	{"ZoneClosed", "its zone is closed",
		"Open the zone: take it out of closedZones of the tuning.", nil, heldByOurs("ZoneClosed")},
	{"DoNotDisruptNode", "the node has do-not-disrupt",
		"kubectl annotate node NAME karpenter.sh/do-not-disrupt-", nil, heldByOurs("")},
	drainRules[1], drainRules[2],
	{"DisruptionBudget", "its NodePool's budget is used up",
		"Wait for the end of the window, or raise spec.disruption.budgets of the NodePool.",
		[]need{factNodePools}, heldByPoolBudget},
	{"ReplacementFailed", "its replacement fails",
		"Cure what the event says; kubectl bizfly why nodepool/NAME shows how often.",
		nil, heldByFailures},
	{"Drifted", "it has drifted",
		"Wait: Karpenter replaces such nodes one after another. Cure what it says of pods that fit nowhere.",
		nil, heldByDrift},
	{"ConsolidateAfter", "it waits for consolidateAfter",
		"Wait, or lower spec.disruption.consolidateAfter of the NodePool.",
		[]need{factNodePools}, heldByConsolidateAfter},
	{"PriceUnknown", "its price is not known to Karpenter",
		"Restore the label, with the value that the NodeClaim has.", nil, heldByPrice},
	{"CheaperUnavailable", "a cheaper offering is unavailable",
		"Wait: it is tried again then. Or allow further flavors or zones.",
		[]need{factCoreEvents, factEvents, factNodeClasses}, heldByUnavailable},
	{"NoCheaperOffering", "no cheaper offering can run its pods",
		"Allow further flavors in the NodePool, or lower the pods' requests.",
		[]need{factCoreEvents}, func(f *nodeFacts) *held {
			return f.saidOf(coreevents.Unconsolidatable, "Can't replace with", "Filtering by price")
		}},
	{"Needed", "it is needed", "Nothing: its pods fit on no other node. Fewer or smaller pods need fewer nodes.",
		[]need{factCoreEvents}, heldByNeed},
	{"NotWorthIt", "moving its pods costs more than it saves",
		"Set spec.disruption.consolidationPolicy to WhenEmptyOrUnderutilized, or wait.",
		[]need{factCoreEvents}, func(f *nodeFacts) *held { return f.saidOf(coreevents.ConsolidationRejected, "") }},
	{"Starved", "Karpenter does not get to it",
		"Give the NodePool that takes the time smaller budgets, or a longer consolidateAfter.",
		[]need{factCoreEvents}, heldByOthers},
	{"NotKnown", "not known", "kubectl bizfly why node/NAME, and the log of the controller.",
		[]need{factCoreEvents}, func(f *nodeFacts) *held {
			since := f.claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable)
			if !since.IsTrue() {
				return heldBy("Karpenter has not looked yet whether it may be consolidated")
			}
			return heldBy("Karpenter may consolidate it since %s, and has not said why it does not",
				hour(since.LastTransitionTime.Time))
		}},
}

// allReasons are those of all nodes, once each.
var allReasons = lo.UniqBy(slices.Concat(stateRules, poolRules, idleRules, drainRules), func(r idleRule) string {
	return r.code
})

// Reasons are the reasons of top --idle, as the page of the plugin lists them.
func Reasons() []Described {
	return lo.Map(allReasons, func(r idleRule, _ int) Described {
		return Described{Code: r.code, About: r.what, Why: r.help}
	})
}

// reasonFor is the first reason that holds. A fact that is missing makes it not known, unless an earlier one holds.
func reasonFor(ctx context.Context, r *reading, f *nodeFacts) (idleRule, *held) {
	all := slices.Concat(stateRules, lo.Ternary(f.drifted() == "", poolRules, nil), idleRules)
	for _, rule := range lo.Ternary(f.deleting(), drainRules, all) {
		for _, need := range rule.needs {
			if err := need.want(ctx, r); err != nil {
				return lo.LastOrEmpty(idleRules), heldBy("%s: %s", need.called(), err)
			}
		}
		if why := rule.holds(f); why != nil {
			return rule, why
		}
	}
	return idleRule{}, heldBy("no reason was found") // the last rule always holds
}

func (f *nodeFacts) deleting() bool {
	return f.node != nil && f.node.DeletionTimestamp != nil || f.claim != nil && f.claim.DeletionTimestamp != nil
}

// drifted is why core wants to replace the node; empty where it does not.
func (f *nodeFacts) drifted() string {
	if f.claim == nil || !f.claim.StatusConditions().IsTrue(karpv1.ConditionTypeDrifted) {
		return ""
	}
	drifted := f.claim.StatusConditions().Get(karpv1.ConditionTypeDrifted)
	return lo.CoalesceOrEmpty(drifted.Message, drifted.Reason, "its NodeClaim says so")
}

// replaceable reports whether core may replace the node for its drift, as far as budgets of its NodePool decide.
func (f *nodeFacts) replaceable() bool {
	return f.drifted() != "" && !f.deleting() && f.pool != nil && f.exhausted(karpv1.DisruptionReasonDrifted) == nil
}

func (f *nodeFacts) keptByPod() *held {
	return f.keptBy(func(p *corev1.Pod) (string, bool) { return "", !podutils.IsDisruptable(p, f, nil) })
}

// keptByBudget asks core of each pod alone, since it names only the budgets of the first one that may not be evicted.
func (f *nodeFacts) keptByBudget() *held {
	return f.keptBy(func(p *corev1.Pod) (string, bool) {
		keys, can := f.limits.CanEvictPods([]*corev1.Pod{p}, f, nil)
		names := lo.Map(keys, func(k types.NamespacedName, _ int) string { return k.String() })
		return fmt.Sprintf(" (PodDisruptionBudget %s)", strings.Join(names, " and ")), !can
	})
}

// keptBy names the pods that keep a node. They do not keep one that has drifted where the NodeClaim has a
// terminationGracePeriod, and core waits for them, or for its end, once the node is being deleted.
func (f *nodeFacts) keptBy(keeps func(*corev1.Pod) (how string, kept bool)) *held {
	if f.replaceable() && f.claim.Spec.TerminationGracePeriod != nil {
		return nil
	}
	names := lo.FilterMap(f.pods, func(p *corev1.Pod, _ int) (string, bool) {
		how, kept := keeps(p)
		return p.Namespace + "/" + p.Name + how, kept && (!f.deleting() || podutils.IsWaitingEviction(p, f))
	})
	if len(names) == 0 {
		return nil
	}
	why := heldBy("pod %s", list(names))
	if ends := lo.FromPtr(f.claim).Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; ends != "" {
		why.until, _ = time.Parse(time.RFC3339, ends)
		why.detail += ", until " + hour(why.until) + " at the latest"
	}
	return why
}

// startupTaint is one of the NodeClaim's that nobody has removed from the node yet.
func startupTaint(claim *karpv1.NodeClaim, node *corev1.Node) (corev1.Taint, bool) {
	return lo.Find(node.Spec.Taints, func(t corev1.Taint) bool {
		return lo.ContainsBy(claim.Spec.StartupTaints, func(startup corev1.Taint) bool { return startup.MatchTaint(&t) })
	})
}

// saidOf is what core has said last about consolidation of the node, if it has this reason and one of the beginnings.
func (f *nodeFacts) saidOf(reason string, beginnings ...string) *held {
	last, ok := lo.Find(f.said, func(e corev1.Event) bool { return e.Reason != coreevents.DisruptionBlocked })
	said := func(beginning string) bool { return strings.HasPrefix(last.Message, beginning) }
	if !ok || last.Reason != reason || !lo.ContainsBy(beginnings, said) {
		return nil
	}
	return heldBy("%s (Karpenter at %s)", strings.TrimSuffix(last.Message, "."), hour(lastSeen(&last)))
}

// hour is a time as the lines of this page show it.
func hour(t time.Time) string {
	layout := lo.Ternary(time.Until(t).Abs() < 20*time.Hour, "15:04", "2006-01-02 15:04")
	return t.Local().Format(layout)
}

// ForIdle says of each node what it costs and why it is still there.
func ForIdle(ctx context.Context, s *connect.Session) (*Idle, error) {
	r := newReading(s)
	cluster, facts, err := factsOf(ctx, r)
	if err != nil {
		return nil, err
	}
	idle := &Idle{Nodes: []IdleNode{}, VNDPerHour: cluster.VNDPerHour, VNDPerMonth: cluster.VNDPerMonth}
	groups := map[string]*IdleReason{}
	for _, row := range cluster.Nodes {
		rule, why := reasonFor(ctx, r, facts(row))
		code := rule.code
		unused := row.VNDPerHour * max(0, 1-max(row.CPU, row.Memory))
		idle.Nodes = append(idle.Nodes, IdleNode{row, unused, code, why.detail, why.until})
		idle.UnusedVNDPerHour += unused
		if groups[code] == nil {
			groups[code] = &IdleReason{Reason: code, What: rule.what, Help: rule.help}
		}
		groups[code].Nodes++
		groups[code].VNDPerHour += row.VNDPerHour
		groups[code].UnusedVNDPerHour += unused
	}
	idle.Reasons = lo.MapToSlice(groups, func(_ string, g *IdleReason) IdleReason { return *g })
	slices.SortFunc(idle.Reasons, func(a, b IdleReason) int {
		return cmp.Or(cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortStableFunc(idle.Nodes, func(a, b IdleNode) int {
		return cmp.Or(cmp.Compare(groups[b.Reason].VNDPerHour, groups[a.Reason].VNDPerHour), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(b.VNDPerHour, a.VNDPerHour))
	})
	return idle, nil
}
