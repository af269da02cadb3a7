// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repack replaces nodes of a NodePool by cheaper ones where core's consolidation cannot: core replaces nodes by at most one other.
// It only adds. It creates NodeClaims as core's provisioner does, and Jobs that hold the new nodes for a while; which nodes are removed, and
// whose pods are evicted, core's consolidation decides with its budgets and with PodDisruptionBudgets. When it is interrupted, the Jobs end and core
// removes what is empty.
package repack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
)

// MinSaving is the part of a NodePool's bill that a repack must save: moving pods for less is not worth it.
const MinSaving = 0.05

// Options of a proposal.
type Options struct {
	// NodePool may be empty where there is only one.
	NodePool string
	// Time limits each of the few searches for a packing; Iterations does so instead, for results that repeat.
	Time       time.Duration
	Iterations int
	Seed       uint64
}

// Node is a node that is replaced or added.
type Node struct {
	// Name and NodeClaim are empty for a node that does not exist yet.
	Name       string  `json:"name,omitempty"`
	NodeClaim  string  `json:"nodeClaim,omitempty"`
	Flavor     string  `json:"flavor"`
	Zone       string  `json:"zone"`
	VNDPerHour float64 `json:"vndPerHour"`
	// Pods are those of a replaced node, all of which move, and those that a new node has capacity for: the kube-scheduler decides in the end.
	Pods []string `json:"pods"`
}

// Budget is a PodDisruptionBudget of pods that move.
type Budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods is how many of its pods move, and Allowed how many may be evicted at a time now.
	Pods    int   `json:"pods"`
	Allowed int32 `json:"allowed"`
}

// Proposal is what a repack would do. Without replaced nodes it does nothing, and Reason says why.
type Proposal struct {
	NodePool string   `json:"nodePool"`
	Reason   string   `json:"reason,omitempty"`
	Replaced []Node   `json:"replaced"`
	New      []Node   `json:"new"`
	Budgets  []Budget `json:"podDisruptionBudgets,omitempty"`
	// Nodes and NodesAfter count those of the NodePool, and the prices are of all of them.
	Nodes            int     `json:"nodes"`
	NodesAfter       int     `json:"nodesAfter"`
	VNDPerHour       float64 `json:"vndPerHour"`
	VNDPerHourAfter  float64 `json:"vndPerHourAfter"`
	SavesVNDPerMonth float64 `json:"savesVndPerMonth"`
	// Held are the nodes that no pod leaves meanwhile.
	Held []string `json:"held,omitempty"`
	// Disruptions is how many nodes core may remove at a time.
	Disruptions int      `json:"disruptionsAllowed,omitempty"`
	Notes       []string `json:"notes,omitempty"`

	// run names the Jobs and the new nodes.
	run    string
	pool   *karpv1.NodePool
	claims []*karpv1.NodeClaim
	held   []*corev1.Node
	// capacity is what the new nodes count for in the limits of the NodePool.
	capacity corev1.ResourceList
}

// Saves is the part of the bill that is saved, from 0 to 1.
func (p *Proposal) Saves() float64 {
	if p.VNDPerHour <= 0 {
		return 0
	}
	return 1 - p.VNDPerHourAfter/p.VNDPerHour
}

// Hold is for how long new nodes are held: long enough to launch them, and for core to remove so many others as its budgets allow at a time.
func (p *Proposal) Hold() time.Duration {
	rounds := (len(p.Replaced) + max(p.Disruptions, 1) - 1) / max(p.Disruptions, 1)
	wait := time.Duration(0)
	if p.pool != nil {
		wait = lo.FromPtr(p.pool.Spec.Disruption.ConsolidateAfter.Duration)
	}
	return min(15*time.Minute+wait+time.Duration(rounds)*5*time.Minute, 6*time.Hour)
}

// Compute finds the repack of a NodePool that core's scheduler and consolidation confirm in a copy of the cluster.
func Compute(ctx context.Context, s *session.Session, o Options) (*Proposal, error) {
	if s.Cluster == nil {
		return nil, s.ClusterErr
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := s.List(ctx, budgets); err != nil {
		return nil, fmt.Errorf("which pods may be evicted is not known: %w", err)
	}
	objects = objects.With(lo.Map(budgets.Items, func(b policyv1.PodDisruptionBudget, _ int) client.Object { return &b })...)
	pool, err := choose(memory.Of[*karpv1.NodePool](objects), o.NodePool)
	if err != nil {
		return nil, err
	}
	c := &computation{session: s, cloud: cloud, objects: objects, pool: pool, options: o}
	p := &Proposal{NodePool: pool.Name, Replaced: []Node{}, New: []Node{}, pool: pool}
	if err := Eligible(pool, memory.Of[*karpv1.NodeClaim](objects), memory.Of[*corev1.Pod](objects)); err != nil {
		p.Reason = err.Error()
		return p, nil
	}
	return p, c.propose(ctx, p)
}

// choose returns the NodePool of a name, or the only one.
func choose(pools []*karpv1.NodePool, name string) (*karpv1.NodePool, error) {
	names := lo.Map(pools, func(pool *karpv1.NodePool, _ int) string { return pool.Name })
	slices.Sort(names)
	switch {
	case name == "" && len(pools) == 1:
		return pools[0], nil
	case name == "" && len(pools) > 1:
		return nil, fmt.Errorf("there are several NodePools; name one of %s", strings.Join(names, ", "))
	}
	pool, ok := lo.Find(pools, func(pool *karpv1.NodePool) bool { return pool.Name == name })
	if !ok {
		return nil, fmt.Errorf("there is no NodePool %q (there are: %s)", name, strings.Join(names, ", "))
	}
	return pool, nil
}

// Eligible returns why a NodePool is left alone; nil if it is not.
func Eligible(pool *karpv1.NodePool, claims []*karpv1.NodeClaim, pods []*corev1.Pod) error {
	d := pool.Spec.Disruption
	claims = lo.Filter(claims, func(c *karpv1.NodeClaim, _ int) bool { return c.Labels[karpv1.NodePoolLabelKey] == pool.Name })
	switch {
	case !pool.DeletionTimestamp.IsZero():
		return errors.New("the NodePool is being deleted")
	case pool.Spec.Replicas != nil:
		return errors.New("the NodePool is static: its nodes are those that spec.replicas asks for")
	case d.ConsolidateAfter.Duration == nil:
		return errors.New("consolidation is off (spec.disruption.consolidateAfter is Never), and a repack leaves every eviction to it")
	case d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty:
		return errors.New("spec.disruption.consolidationPolicy is WhenEmpty, so Karpenter evicts no pod to save cost")
	case lo.ContainsBy(lo.Values(pool.Spec.Limits), func(q resource.Quantity) bool { return q.IsZero() }):
		return errors.New("the NodePool is paused: one of its limits is 0")
	case pool.MustGetAllowedDisruptions(clock.RealClock{}, len(claims), karpv1.DisruptionReasonUnderutilized) == 0 && len(claims) > 0:
		return errors.New("the NodePool is paused: its disruption budgets allow no node to be replaced now")
	case len(pool.Status.Conditions) > 0 && !pool.StatusConditions().Root().IsTrue():
		return fmt.Errorf("the NodePool is not ready: %s", pool.StatusConditions().Root().Message)
	case lo.ContainsBy(pool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }):
		return errors.New("the NodePool has minValues, and a repack narrows a NodeClaim to one flavor")
	case len(claims) == 0:
		return errors.New("the NodePool has no nodes")
	}
	for _, claim := range claims {
		if !claim.DeletionTimestamp.IsZero() || !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			return fmt.Errorf("NodeClaim %s is being launched or removed; try again when it is done", claim.Name)
		}
	}
	waiting, holds := 0, 0
	for _, pod := range pods {
		if plan.Counts(pod) && pod.Spec.NodeName == "" {
			waiting++
		}
		if plan.Counts(pod) && pod.Labels[HoldLabel] != "" {
			holds++
		}
	}
	switch {
	case holds > 0:
		return errors.New("a repack is under way: pods of its Jobs still hold nodes")
	case waiting > 0:
		return fmt.Errorf("%d pods have no node yet and would take the new ones; try again when they run", waiting)
	}
	return nil
}

// exceeds returns the error of a NodePool's limits once more capacity was added to its NodeClaims.
func exceeds(pool *karpv1.NodePool, claims []*karpv1.NodeClaim, added corev1.ResourceList) error {
	total := added
	for _, claim := range claims {
		if claim.Labels[karpv1.NodePoolLabelKey] == pool.Name {
			total = resources.Merge(total, claim.Status.Capacity, corev1.ResourceList{resources.Node: resource.MustParse("1")})
		}
	}
	return pool.Spec.Limits.ExceededBy(total)
}

// budgetsOf returns the PodDisruptionBudgets of pods.
func budgetsOf(budgets []*policyv1.PodDisruptionBudget, pods []*corev1.Pod) []Budget {
	var found []Budget
	for _, budget := range budgets {
		selected := lo.CountBy(pods, func(pod *corev1.Pod) bool {
			return pod.Namespace == budget.Namespace && plan.Selects(budget.Namespace, corev1.PodAffinityTerm{LabelSelector: budget.Spec.Selector}, pod)
		})
		if selected > 0 {
			found = append(found, Budget{Namespace: budget.Namespace, Name: budget.Name, Pods: selected, Allowed: budget.Status.DisruptionsAllowed})
		}
	}
	slices.SortFunc(found, func(a, b Budget) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return found
}
