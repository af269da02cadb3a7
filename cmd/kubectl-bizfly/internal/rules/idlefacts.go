// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coredisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	corestate "sigs.k8s.io/karpenter/pkg/controllers/state"
	coreevents "sigs.k8s.io/karpenter/pkg/events"
	disruptionutils "sigs.k8s.io/karpenter/pkg/utils/disruption"
	"sigs.k8s.io/karpenter/pkg/utils/pdb"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	ourevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// nodeFacts are what decides why a node is still there.
type nodeFacts struct {
	stoppedClock
	node  *corev1.Node
	claim *karpv1.NodeClaim
	pods  []*corev1.Pod
	// empty is what core takes for empty.
	empty bool
	pool  *karpv1.NodePool
	// members and disrupting are what budgets of the NodePool are compared with (countForBudgets).
	members, disrupting int
	limits              pdb.Limits
	// week are the windows of the NodePool's budgets, made once for all of its nodes.
	week func(karpv1.DisruptionReason) []Window
	// said is what core has said about the node, the latest first, and others how many nodes of other NodePools it has
	// spoken of meanwhile.
	said   []corev1.Event
	others map[string]int
	// paused is what holds all launches back, failed are the failed launches of the NodePool in the last hour, and
	// registered is when the last node of it registered.
	paused     string
	failed     []corev1.Event
	registered time.Time
	// flavors are BizFly Cloud's by name; nil where it was not asked. unavailable are the offerings that lately failed.
	flavors     map[string]*corecloudprovider.InstanceType
	unavailable []unavailableOffering
	// notGone is why the server of a node that is being deleted still exists.
	notGone string
}

// stoppedClock shows one moment, so that all facts are about it.
type stoppedClock struct {
	clock.RealClock
	now time.Time
}

func (c stoppedClock) Now() time.Time                  { return c.now }
func (c stoppedClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

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
)

// factsOf reads the rows of top, and how to get the facts of a row. What could not be read is empty there, and the
// rules that need it do not apply.
func factsOf(ctx context.Context, r *reading) (*top.Cluster, func(top.Node) *nodeFacts, error) {
	cluster, err := top.Read(ctx, r.Session)
	if err != nil {
		return nil, nil, err
	}
	// What was read is not read again.
	claims := &karpv1.NodeClaimList{}
	claims.Items = lo.FilterMap(cluster.Nodes, func(n top.Node, _ int) (karpv1.NodeClaim, bool) {
		return lo.FromPtr(n.Claim), n.Claim != nil
	})
	claimsErr := lo.Ternary(connect.IsMissing(cluster.ClaimsErr), nil, cluster.ClaimsErr)
	r.facts[factNodeClaims.name] = read{claims, claimsErr, time.Now()}
	pools, _ := factNodePools.in(ctx, r)
	limits, _ := factPDBs.in(ctx, r)
	said, _ := factCoreEvents.in(ctx, r)
	launches, _ := factLaunches.in(ctx, r)
	nodeClasses, _ := factNodeClasses.in(ctx, r)
	config, _ := factProviderConfig.in(ctx, r)
	paused := lo.FirstOrEmpty(heldBack(config, nil).findings).What
	at := stoppedClock{now: time.Now()}
	byPool := map[string]*karpv1.NodePool{}
	for i := range lo.FromPtr(pools).Items {
		byPool[pools.Items[i].Name] = &pools.Items[i]
	}
	flavors := lo.KeyBy(cluster.Flavors, func(it *corecloudprovider.InstanceType) string { return it.Name })
	members, disrupting := countForBudgets(cluster)
	looked := lo.CountValuesBy(lo.Filter(cluster.Nodes, func(row top.Node, _ int) bool {
		last, ok := lo.First(said[row.Name])
		return ok && at.Since(lastSeen(&last)) < 20*time.Minute
	}), func(row top.Node) string { return row.NodePool })
	weeks := map[string][]Window{}
	classes := lo.KeyBy(lo.ToSlicePtr(lo.FromPtr(nodeClasses).Items), func(n *v1alpha1.BizflyNodeClass) string {
		return n.Name
	})
	failed, lastRegistered := launches.failures(at.now), map[string]time.Time{}
	for i := range claims.Items {
		claim, pool := &claims.Items[i], claims.Items[i].Labels[karpv1.NodePoolLabelKey]
		if condition := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered); condition.IsTrue() {
			lastRegistered[pool] = lo.Latest(lastRegistered[pool], condition.LastTransitionTime.Time)
		}
	}
	unavailable := launches.unavailable(r.Session, lo.Values(classes), lo.ToSlicePtr(lo.FromPtr(pools).Items),
		func() []*corecloudprovider.InstanceType { return cluster.Flavors })
	slices.SortStableFunc(unavailable, func(a, b unavailableOffering) int { return a.until.Compare(b.until) })
	return cluster, func(row top.Node) *nodeFacts {
		f := &nodeFacts{stoppedClock: at, node: row.Object, claim: row.Claim, pods: row.Running, pool: byPool[row.NodePool],
			members: members[row.NodePool], disrupting: disrupting[row.NodePool], limits: limits, said: said[row.Name],
			others: lo.OmitByKeys(looked, []string{row.NodePool}), paused: paused, failed: failed[row.NodePool],
			registered: lastRegistered[row.NodePool], flavors: flavors}
		if f.pool != nil {
			class := classes[lo.FromPtr(f.pool.Spec.Template.Spec.NodeClassRef).Name]
			f.unavailable = lo.Filter(unavailable, func(u unavailableOffering, _ int) bool { return u.concerns(class) })
		}
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
	}, nil
}

// countForBudgets counts with core's own code how many nodes of each NodePool its budgets are parts of, and how many
// of them are disrupted or not ready. Core remembers which nodes it has chosen; their taint shows it.
func countForBudgets(cluster *top.Cluster) (members, disrupting map[string]int) {
	return coredisruption.NodePoolStatsFromNodes(lo.FilterMap(cluster.Nodes, func(row top.Node,
		_ int) (*corestate.StateNode, bool) {
		if row.Object == nil || row.Claim == nil {
			return nil, false
		}
		claim := row.Claim.DeepCopy()
		if tainted(row.Object) {
			claim.DeletionTimestamp = lo.ToPtr(metav1.Now())
		}
		return &corestate.StateNode{Node: row.Object, NodeClaim: claim}, true
	}), karpv1.DisruptionReasonUnderutilized)
}

func tainted(node *corev1.Node) bool {
	return lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}
