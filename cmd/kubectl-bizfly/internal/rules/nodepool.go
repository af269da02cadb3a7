// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
)

// NodePool is the answer about a NodePool.
type NodePool struct {
	Pool
	Weight int32 `json:"weight"`
	// Filters are how many flavors are left after each requirement.
	Filters []string `json:"filters,omitempty"`
	// Unavailable are its offerings that are unavailable, and until when.
	Unavailable []string `json:"unavailable,omitempty"`
	// Week are the windows of its budgets in the next seven days by reason, and Impossible what can hardly be meant.
	Week       map[karpv1.DisruptionReason][]Window `json:"week"`
	Impossible []string                             `json:"impossible,omitempty"`
	// Failures are its NodeClaims that failed within an hour, and Elsewhere why the last pods went to other NodePools.
	Failures  []string `json:"failures,omitempty"`
	Elsewhere []string `json:"elsewhere,omitempty"`
}

// ForNodePool explains a NodePool.
func ForNodePool(ctx context.Context, s *connect.Session, name string) (*NodePool, error) {
	r := newReading(s)
	pools, _, err := poolsIn(ctx, r)
	if err != nil {
		return nil, err
	}
	pool, exists := lo.Find(pools, func(p *karpv1.NodePool) bool { return p.Name == name })
	if !exists {
		return nil, fmt.Errorf("there is no NodePool %q", name)
	}
	about := r.ask(question{undemanding, pool})
	asked := askPool(ctx, about)
	asked.Checks = lo.Reject(asked.Checks, func(c Check, _ int) bool {
		return c.Name == "taints" || c.Name == "static" || c.Name == "size" && c.OK
	})
	asked.Fits = lo.EveryBy(asked.Checks, func(c Check) bool { return c.OK })
	answer := &NodePool{Pool: asked, Weight: lo.FromPtr(pool.Spec.Weight), Week: map[karpv1.DisruptionReason][]Window{}}
	if fits, err := factFit.in(ctx, about); err == nil {
		answer.Filters = []string{fmt.Sprintf("%d flavors that the BizflyNodeClass can launch", len(fits.all))}
		for _, f := range fits.filters {
			answer.Filters = append(answer.Filters, fmt.Sprintf("%d left after %s", len(f.left), f.text))
		}
		answer.Unavailable = fits.unavailable
	}
	cluster, err := top.Read(ctx, s)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	nodes, _ := countForBudgets(cluster)
	for _, reason := range []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty,
		karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonDrifted} {
		answer.Week[reason] = week(pool, max(nodes[name], 1), reason, now)
	}
	answer.Impossible = impossible(pool, now)
	all, _ := factLaunches.in(ctx, r)
	byReason := lo.GroupBy(all.failures(now)[name], func(e corev1.Event) string { return e.Reason })
	for _, reason := range sortedKeys(byReason) {
		last := lo.LastOrEmpty(byReason[reason])
		answer.Failures = append(answer.Failures, fmt.Sprintf("%s of NodeClaims, the last at %s: %s: %s",
			output.Plural(len(byReason[reason]), "failure"), hour(lastSeen(&last)), reason, last.Message))
	}
	answer.elsewhere(ctx, r, pool, pools, cluster)
	return answer, nil
}

// impossible names budgets that are never what a schedule is written for. That none allows anything, the week shows.
func impossible(pool *karpv1.NodePool, now time.Time) []string {
	var texts []string
	for _, budget := range pool.Spec.Disruption.Budgets {
		if budget.Schedule == nil {
			continue
		}
		alone := &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Disruption: karpv1.Disruption{Budgets: []karpv1.Budget{{
			Nodes: "0", Schedule: budget.Schedule, Duration: budget.Duration}}}}}
		if windows := week(alone, 1, karpv1.DisruptionReasonEmpty, now); len(windows) == 1 && windows[0].Allowed == 0 {
			texts = append(texts, fmt.Sprintf("the budget of %s nodes with schedule %q is always active: its "+
				"duration is as long as its period, or its date never comes, which Karpenter takes for always",
				budget.Nodes, *budget.Schedule))
		}
	}
	return texts
}

// elsewhere says why the pods that were created last run on nodes of other NodePools.
func (n *NodePool) elsewhere(ctx context.Context, r *reading, pool *karpv1.NodePool, pools []*karpv1.NodePool,
	cluster *top.Cluster) {
	const most = 3
	byPool := map[*corev1.Pod]string{}
	for _, node := range cluster.Nodes {
		if node.NodePool == "" || node.NodePool == pool.Name {
			continue
		}
		for _, pod := range node.Running {
			if podutils.IsReschedulable(pod) && time.Since(pod.CreationTimestamp.Time) < time.Hour {
				byPool[pod] = node.NodePool
			}
		}
	}
	pods := lo.Keys(byPool)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range pods[:min(most, len(pods))] {
		why := "nothing that is known keeps it from " + pool.Name
		other, _ := lo.Find(pools, func(p *karpv1.NodePool) bool { return p.Name == byPool[pod] })
		if lo.FromPtr(lo.FromPtr(other).Spec.Weight) > n.Weight {
			why = fmt.Sprintf("its weight is higher (%d)", *other.Spec.Weight)
		}
		if failed, ok := lo.Find(askPool(ctx, r.ask(question{pod: pod, pool: pool})).Checks, Check.failed); ok {
			why = fmt.Sprintf("%s cannot run it: %s: %s", pool.Name, failed.Name, failed.Detail)
		}
		n.Elsewhere = append(n.Elsewhere, fmt.Sprintf("pod %s/%s runs on NodePool %s: %s", pod.Namespace, pod.Name,
			byPool[pod], why))
	}
}

// Window is a time in which a NodePool's budgets allow as many disruptions for a reason.
type Window struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Allowed int       `json:"allowed"`
}

// week are the windows of the next seven days. Schedules and durations of budgets have minutes, so each is asked.
func week(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, now time.Time) []Window {
	const days = 7 * 24 * time.Hour
	step := days
	if lo.ContainsBy(pool.Spec.Disruption.Budgets, func(b karpv1.Budget) bool { return b.Schedule != nil }) {
		step = time.Minute
	}
	var windows []Window
	from := now.Truncate(time.Minute)
	for at := from; at.Before(from.Add(days)); at = at.Add(step) {
		allowed := min(pool.MustGetAllowedDisruptions(stoppedClock{now: at}, nodes, reason), nodes)
		if last := len(windows) - 1; last < 0 || windows[last].Allowed != allowed {
			windows = append(windows, Window{From: at, Allowed: allowed})
		}
		windows[len(windows)-1].To = at.Add(step)
	}
	return windows
}
