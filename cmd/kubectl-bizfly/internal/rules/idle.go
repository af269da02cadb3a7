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
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coreevents "sigs.k8s.io/karpenter/pkg/events"
	disruptionutils "sigs.k8s.io/karpenter/pkg/utils/disruption"
	"sigs.k8s.io/karpenter/pkg/utils/pdb"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	ourevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
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

// nodeFacts are what decides why a node is still there.
type nodeFacts struct {
	stoppedClock
	node  *corev1.Node
	claim *karpv1.NodeClaim
	pods  []*corev1.Pod
	// empty is what core takes for empty.
	empty bool
	pool  *karpv1.NodePool
	// members is how many initialized nodes the NodePool has, and disrupting how many of them core counts as disrupted.
	members, disrupting int
	limits              pdb.Limits
	// week are the windows of the NodePool's budgets, made once for all of its nodes.
	week func(karpv1.DisruptionReason) []Window
	// said is what core has said about the node, the latest first, and others how many nodes of other NodePools it has
	// spoken of meanwhile.
	said   []corev1.Event
	others map[string]int
	// paused is what holds all launches back, and failed are the failed launches of the NodePool in the last hour.
	paused string
	failed []corev1.Event
	// flavors are BizFly Cloud's by name; nil where it was not asked. unavailable are the offerings that lately failed.
	flavors     map[string]*corecloudprovider.InstanceType
	unavailable []unavailableOffering
	// notGone is why the server of a node that is being deleted still exists.
	notGone string
}

// unavailableOffering is one whose launch failed, and when it is tried again.
type unavailableOffering struct {
	flavor, zone string
	until        time.Time
}

// stoppedClock shows one moment, so that all facts are about it.
type stoppedClock struct {
	clock.RealClock
	now time.Time
}

func (c stoppedClock) Now() time.Time                  { return c.now }
func (c stoppedClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

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

const (
	notKnownCode = "NotKnown"
	// repeated is how long an event holds that is repeated every two minutes, such as core's about a nomination.
	repeated = 3 * time.Minute
)

// drainRules are the reasons of a node that is being deleted, and idleRules those of any other.
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

var idleRules = []idleRule{
	{"NotKarpenters", "Karpenter did not launch it",
		"Resize the worker pool that it belongs to (kubectl bizfly pool list).",
		[]need{factAnyNodeClaims}, func(f *nodeFacts) *held {
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
		"Pay, raise the quota or repair what the ProviderConfig's conditions name.",
		nil, heldByAccount},
	{"Replacing", "its replacement is on its way", "Wait: it is drained when its replacement is initialized.",
		nil, func(f *nodeFacts) *held {
			return lo.Ternary(tainted(f.node), heldBy("Karpenter has chosen it for disruption"), nil)
		}},
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
	{"HourPaid", "its hour is paid",
		"Wait for the end of the hour, or set billingPeriod of the tuning to 1s.", nil, heldByOurs("HourPaid")},
	{"ZoneClosed", "its zone is closed",
		"Open the zone: take it out of closedZones of the tuning.", nil, heldByOurs("ZoneClosed")},
	{"DoNotDisruptNode", "the node has do-not-disrupt",
		"kubectl annotate node NAME karpenter.sh/do-not-disrupt-", nil, heldByOurs("")},
	drainRules[1], drainRules[2],
	{"ConsolidateAfter", "it waits for consolidateAfter",
		"Wait, or lower spec.disruption.consolidateAfter of the NodePool.",
		[]need{factNodePools}, heldByConsolidateAfter},
	{"DisruptionBudget", "its NodePool's budget is used up",
		"Wait for the end of the window, or raise spec.disruption.budgets of the NodePool.",
		[]need{factNodePools}, heldByPoolBudget},
	{"PriceUnknown", "its price is not known to Karpenter",
		"Restore the label, with the value that the NodeClaim has.", nil, heldByPrice},
	{"CheaperUnavailable", "a cheaper offering is unavailable",
		"Wait: it is tried again then. Or allow further flavors or zones.",
		[]need{factCoreEvents, factEvents}, heldByUnavailable},
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
	{"ReplacementFailed", "its replacement fails",
		"Cure what the event says; kubectl bizfly why nodepool/NAME shows how often.",
		[]need{factCoreEvents, factPaused}, heldByFailures},
	{"Starved", "Karpenter does not get to it",
		"Give the NodePool that takes the time smaller budgets, or a longer consolidateAfter.",
		[]need{factCoreEvents}, heldByOthers},
	{notKnownCode, "not known", "kubectl bizfly why node/NAME, and the log of the controller.",
		[]need{factCoreEvents}, func(f *nodeFacts) *held {
			since := f.claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable)
			if !since.IsTrue() {
				return heldBy("Karpenter has not looked yet whether it may be consolidated")
			}
			return heldBy("Karpenter may consolidate it since %s, and has not said why it does not",
				hour(since.LastTransitionTime.Time))
		}},
}

// allReasons are those of both, once each.
var allReasons = lo.UniqBy(slices.Concat(idleRules, drainRules), func(r idleRule) string { return r.code })

// Reasons are the reasons of top --idle, as the page of the plugin lists them.
func Reasons() []Described {
	return lo.Map(allReasons, func(r idleRule, _ int) Described {
		return Described{Code: r.code, About: r.what, Why: r.help}
	})
}

// reasonFor is the first reason that holds. A fact that is missing makes it not known, unless an earlier one holds.
func reasonFor(ctx context.Context, r *reading, f *nodeFacts) (code string, why *held) {
	for _, rule := range lo.Ternary(f.deleting(), drainRules, idleRules) {
		for _, need := range rule.needs {
			if err := need.want(ctx, r); err != nil {
				return notKnownCode, heldBy("%s: %s", need.called(), err)
			}
		}
		if why = rule.holds(f); why != nil {
			return rule.code, why
		}
	}
	return notKnownCode, heldBy("no reason was found") // the last rule always holds
}

func (f *nodeFacts) deleting() bool {
	return f.node != nil && f.node.DeletionTimestamp != nil || f.claim != nil && f.claim.DeletionTimestamp != nil
}

func (f *nodeFacts) keptByPod() *held {
	names := lo.FilterMap(f.pods, func(p *corev1.Pod, _ int) (string, bool) {
		return p.Namespace + "/" + p.Name, !podutils.IsDisruptable(p, f, nil)
	})
	return lo.Ternary(len(names) > 0, heldBy("pod %s", list(names)), nil)
}

func (f *nodeFacts) keptByBudget() *held {
	keys, can := f.limits.CanEvictPods(f.pods, f, nil)
	names := lo.Map(keys, func(k types.NamespacedName, _ int) string { return k.String() })
	return lo.Ternary(can, nil, heldBy("PodDisruptionBudget %s", strings.Join(names, " and ")))
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

var (
	factPDBs = newFact("PodDisruptionBudgets", func(ctx context.Context, r *reading) (pdb.Limits, error) {
		all := &policyv1.PodDisruptionBudgetList{}
		if err := r.List(ctx, all); err != nil {
			return nil, err
		}
		objects := lo.Map(all.Items, func(_ policyv1.PodDisruptionBudget, i int) client.Object { return &all.Items[i] })
		return pdb.NewLimits(ctx, memory.New(objects))
	})

	// factCoreEvents are what core says of nodes, by their names, the latest first.
	factCoreEvents = newFact("events of Karpenter", func(ctx context.Context,
		r *reading) (map[string][]corev1.Event, error) {
		all := &corev1.EventList{}
		if err := r.List(ctx, all, connect.EventsOf("Node")...); err != nil {
			return nil, err
		}
		said := lo.Filter(all.Items, func(e corev1.Event, _ int) bool {
			return lo.Contains([]string{coreevents.Unconsolidatable, coreevents.DisruptionBlocked, coreevents.ConsolidationCandidate,
				coreevents.ConsolidationRejected, ourevents.ReasonServerDeletionFailed}, e.Reason)
		})
		slices.SortStableFunc(said, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
		return lo.GroupBy(said, func(e corev1.Event) string { return e.InvolvedObject.Name }), nil
	})

	// factPaused is what holds all launches back, as the controller has stored and reported it.
	factPaused = newFact("state of the account", func(ctx context.Context, r *reading) (string, error) {
		config, err := factProviderConfig.in(ctx, r)
		if err != nil {
			return "", err
		}
		all, err := factEvents.in(ctx, r)
		if err != nil {
			return "", err
		}
		if unpaid := falseMessage(lo.FromPtr(config).Status.Conditions, v1alpha1.ConditionTypeAccountAccepted); unpaid != "" {
			return unpaid, nil
		}
		limit, _ := factLimit.in(ctx, r)
		for _, o := range []outcome{heldBack(config, nil, limit), accountRejects(all, setup{r.Session}, time.Now())} {
			if o.state == fails {
				return o.findings[0].What, nil
			}
		}
		return "", nil
	})
)

// ForIdle says of each node what it costs and why it is still there.
func ForIdle(ctx context.Context, s *connect.Session) (*Idle, error) {
	cluster, err := top.Read(ctx, s)
	if err != nil {
		return nil, err
	}
	r := newReading(s)
	// What was read is not read again.
	claims := &karpv1.NodeClaimList{}
	claims.Items = lo.FilterMap(cluster.Nodes, func(n top.Node, _ int) (karpv1.NodeClaim, bool) {
		return lo.FromPtr(n.Claim), n.Claim != nil
	})
	claimsErr := lo.Ternary(connect.IsMissing(cluster.ClaimsErr), nil, cluster.ClaimsErr)
	r.facts[factAnyNodeClaims.name] = read{claims, claimsErr, time.Now()}
	all := factsOf(ctx, r, cluster)
	idle := &Idle{Nodes: []IdleNode{}, VNDPerHour: cluster.VNDPerHour, VNDPerMonth: cluster.VNDPerMonth}
	groups := map[string]*IdleReason{}
	for i, row := range cluster.Nodes {
		code, why := reasonFor(ctx, r, all[i])
		unused := row.VNDPerHour * max(0, 1-max(row.CPU, row.Memory))
		idle.Nodes = append(idle.Nodes, IdleNode{row, unused, code, why.detail, why.until})
		idle.UnusedVNDPerHour += unused
		if groups[code] == nil {
			rule, _ := lo.Find(allReasons, func(r idleRule) bool { return r.code == code })
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

// factsOf are the facts of each row. What could not be read is empty here, and the rules that need it do not apply.
func factsOf(ctx context.Context, r *reading, cluster *top.Cluster) []*nodeFacts {
	pools, _ := factNodePools.in(ctx, r)
	limits, _ := factPDBs.in(ctx, r)
	said, _ := factCoreEvents.in(ctx, r)
	launches, _ := factEvents.in(ctx, r)
	paused, _ := factPaused.in(ctx, r)
	at := stoppedClock{now: time.Now()}
	byPool := map[string]*karpv1.NodePool{}
	for i := range lo.FromPtr(pools).Items {
		byPool[pools.Items[i].Name] = &pools.Items[i]
	}
	flavors := lo.KeyBy(cluster.Flavors, func(it *corecloudprovider.InstanceType) string { return it.Name })
	members, disrupting, looked := map[string]int{}, map[string]int{}, map[string]int{}
	for _, row := range cluster.Nodes {
		if row.Object == nil || row.Object.Labels[karpv1.NodeInitializedLabelKey] != "true" {
			continue
		}
		members[row.NodePool]++
		if !lo.Contains([]string{"Ready", "Cordoned"}, row.Status) {
			disrupting[row.NodePool]++ // as core counts: also those that are not ready
		}
		if last, ok := lo.First(said[row.Name]); ok && at.Since(lastSeen(&last)) < 20*time.Minute {
			looked[row.NodePool]++
		}
	}
	weeks := map[string][]Window{}
	failed, unavailable := failures(launches, r.Settings.UnavailableOfferingTTL, at.now)
	return lo.Map(cluster.Nodes, func(row top.Node, _ int) *nodeFacts {
		f := &nodeFacts{stoppedClock: at, node: row.Object, claim: row.Claim, pods: row.Running, pool: byPool[row.NodePool],
			members: members[row.NodePool], disrupting: disrupting[row.NodePool], limits: limits, said: said[row.Name],
			others: lo.OmitByKeys(looked, []string{row.NodePool}), paused: paused, failed: failed[row.NodePool],
			flavors: flavors, unavailable: unavailable}
		f.week = func(reason karpv1.DisruptionReason) []Window {
			key := row.NodePool + "/" + string(reason)
			if _, made := weeks[key]; !made {
				weeks[key] = week(f.pool, f.members, reason, f.now)
			}
			return weeks[key]
		}
		movable := lo.Filter(f.pods, func(p *corev1.Pod, _ int) bool { return podutils.IsReschedulable(p) })
		f.empty = disruptionutils.ComputeRescheduleDisruptionCost(ctx, movable) <= disruptionutils.PerNodeBaseDisruptionCost
		ours, cores := lo.FilterReject(f.said, func(e corev1.Event, _ int) bool {
			return e.Reason == ourevents.ReasonServerDeletionFailed
		})
		f.notGone, f.said = lo.FirstOrEmpty(ours).Message, cores
		return f
	})
}

// failures are the launches of each NodePool that failed within an hour, and the offerings that are unavailable since.
func failures(all []corev1.Event, lasts time.Duration, now time.Time) (map[string][]corev1.Event,
	[]unavailableOffering) {
	failed, unavailable := map[string][]corev1.Event{}, []unavailableOffering{}
	for _, event := range failedLaunches(all, now) {
		at, name := lastSeen(&event), event.InvolvedObject.Name
		if now.Sub(at) < ttl.NotRegistered && event.InvolvedObject.Kind == "NodeClaim" {
			pool := launches{}.nodePoolOf(name)
			failed[pool] = append(failed[pool], event)
		}
	}
	for _, event := range all {
		parts := failedOffering.FindStringSubmatch(event.Message)
		until := lastSeen(&event).Add(lo.Ternary(event.Reason == ourevents.ReasonNodeNotRegistered, ttl.NotRegistered, lasts))
		if parts != nil && event.Reason != ourevents.ReasonServerLaunched && until.After(now) {
			unavailable = append(unavailable, unavailableOffering{parts[1], parts[2], until})
		}
	}
	slices.SortStableFunc(unavailable, func(a, b unavailableOffering) int { return a.until.Compare(b.until) })
	return failed, unavailable
}
