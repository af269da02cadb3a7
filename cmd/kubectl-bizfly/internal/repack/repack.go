// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repack replaces nodes of a NodePool by cheaper ones where core's consolidation cannot: core replaces nodes by at most one other.
// It only adds. It creates NodeClaims as core's provisioner does, and pods that request nothing, end by themselves, and keep pods away from nodes that
// these are not planned for; which nodes are removed, and whose pods are evicted, core's consolidation decides with its budgets and with
// PodDisruptionBudgets. When it is interrupted, its pods end and core removes what is empty.
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
	"sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// MinSaving is the part of a NodePool's bill that a repack must save: moving pods for less is not worth it.
const MinSaving = 0.05

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

	node *corev1.Node
	pods []*corev1.Pod
	// claim is that of a new node.
	claim *karpv1.NodeClaim
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
	Held  []string `json:"held,omitempty"`
	Notes []string `json:"notes,omitempty"`

	// run names the Jobs and the new nodes.
	run  string
	pool *karpv1.NodePool
	// held are the nodes that stay, with the pods that come there.
	held []Node
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

// moving are the pods that move.
func (p *Proposal) moving() []*corev1.Pod {
	return lo.FlatMap(p.Replaced, func(n Node, _ int) []*corev1.Pod { return n.pods })
}

// pause is for how long core leaves the replaced nodes alone: until all new nodes are ready, or core has removed those that are.
func (p *Proposal) pause() time.Duration {
	return launching + margin + p.wait() + 5*time.Minute + time.Duration(len(p.New))*time.Minute
}

// wait is how long core waits before it consolidates a node.
func (p *Proposal) wait() time.Duration {
	return lo.FromPtr(p.pool.Spec.Disruption.ConsolidateAfter.Duration)
}

// Hold is for how long the new nodes are held: for the pause, and for as long as core may take to remove the others one
// at a time.
func (p *Proposal) Hold() time.Duration {
	return min(p.pause()+p.wait()+time.Duration(1+len(p.Replaced))*5*time.Minute, 12*time.Hour)
}

// Compute finds the repack of a NodePool that core's scheduler and consolidation confirm in a copy of the cluster. Its
// name may be empty where there is only one; the namespace is that of the pods which a repack adds.
func Compute(ctx context.Context, s *connect.Session, name, namespace string) (*Proposal, error) {
	if s.Cluster == nil {
		return nil, s.ClusterErr
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	// The copy leaves out what may not be read.
	for _, needed := range []client.ObjectList{&karpv1.NodePoolList{}, &karpv1.NodeClaimList{}} {
		if err := s.List(ctx, needed, client.Limit(1)); err != nil {
			return nil, fmt.Errorf("which nodes may be replaced is not known: %w", err)
		}
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
	pool, err := nodePool(memory.Of[*karpv1.NodePool](objects), name)
	if err != nil {
		return nil, err
	}
	p := &Proposal{NodePool: pool.Name, Replaced: []Node{}, New: []Node{}, pool: pool}
	if err := Eligible(pool, memory.Of[*karpv1.NodeClaim](objects), memory.Of[*corev1.Pod](objects), namespace); err != nil {
		p.Reason = err.Error()
		return p, nil //nolint:nilerr // why nothing is done is the answer
	}
	return (&search{cloud: cloud, objects: objects}).propose(ctx, p)
}

// nodePool returns the NodePool of a name, or the only one.
func nodePool(pools []*karpv1.NodePool, name string) (*karpv1.NodePool, error) {
	names := lo.Map(pools, func(pool *karpv1.NodePool, _ int) string { return pool.Name })
	slices.Sort(names)
	if name == "" && len(pools) > 1 {
		return nil, fmt.Errorf("there are several NodePools; name one of %s", strings.Join(names, ", "))
	}
	pool, ok := lo.Find(pools, func(pool *karpv1.NodePool) bool { return pool.Name == name || name == "" })
	if !ok {
		return nil, fmt.Errorf("there is no NodePool %q (there are: %s)", name, strings.Join(names, ", "))
	}
	return pool, nil
}

// exceeds returns the error of a NodePool's limits once the new nodes were added to its NodeClaims.
func (p *Proposal) exceeds(pool *karpv1.NodePool, claims []*karpv1.NodeClaim) error {
	total := p.capacity
	for _, claim := range claims {
		if claim.Labels[karpv1.NodePoolLabelKey] == pool.Name {
			total = resources.Merge(total, claim.Status.Capacity, oneNode)
		}
	}
	return pool.Spec.Limits.ExceededBy(total)
}

// oneNode is what a node counts for in limits of nodes.
var oneNode = corev1.ResourceList{resources.Node: resource.MustParse("1")}

// budgetsOf returns the PodDisruptionBudgets of pods.
func budgetsOf(budgets []*policyv1.PodDisruptionBudget, pods []*corev1.Pod) (found []Budget) {
	for _, budget := range budgets {
		selected := lo.CountBy(pods, func(pod *corev1.Pod) bool {
			return pod.Namespace == budget.Namespace && sim.Selects(budget.Namespace, corev1.PodAffinityTerm{LabelSelector: budget.Spec.Selector}, pod)
		})
		if selected > 0 {
			found = append(found, Budget{Namespace: budget.Namespace, Name: budget.Name, Pods: selected, Allowed: budget.Status.DisruptionsAllowed})
		}
	}
	slices.SortFunc(found, func(a, b Budget) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return found
}

// Eligible returns why a NodePool is left alone; nil if it is not. The namespace is that of a repack's own pods.
func Eligible(pool *karpv1.NodePool, claims []*karpv1.NodeClaim, pods []*corev1.Pod, namespace string) error {
	claims = lo.Filter(claims, func(c *karpv1.NodeClaim, _ int) bool { return c.Labels[karpv1.NodePoolLabelKey] == pool.Name })
	moving, _ := lo.Find(claims, func(c *karpv1.NodeClaim) bool {
		return !c.DeletionTimestamp.IsZero() || !c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
	})
	// The second replica of the controller waits as long as there is one node that is not Karpenter's.
	waiting := lo.CountBy(pods, func(pod *corev1.Pod) bool {
		elsewhere := scheduling.NewPodRequirements(pod).Get(karpv1.NodePoolLabelKey).Operator() == corev1.NodeSelectorOpDoesNotExist
		return pod.Spec.NodeName == "" && input.Counts(pod) && !input.Gated(pod) && !elsewhere
	})
	d, reported := pool.Spec.Disruption, len(pool.Status.Conditions) > 0
	ready := pool.DeepCopy().StatusConditions().Root()
	for _, reason := range []struct {
		applies bool
		text    string
	}{
		{!pool.DeletionTimestamp.IsZero(), "the NodePool is being deleted"},
		{pool.Spec.Replicas != nil, "the NodePool is static: its nodes are those that spec.replicas asks for"},
		{d.ConsolidateAfter.Duration == nil,
			"consolidation is off (spec.disruption.consolidateAfter is Never), and a repack leaves every eviction to it"},
		{d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty,
			"spec.disruption.consolidationPolicy is WhenEmpty, so Karpenter evicts no pod to save cost"},
		{lo.ContainsBy(pool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }),
			"the NodePool has minValues, and a repack narrows a NodeClaim to one flavor"},
		{sim.Paused(pool), "the NodePool is paused: one of its limits is 0"},
		{len(claims) > 0 && pool.MustGetAllowedDisruptions(clock.RealClock{}, len(claims), karpv1.DisruptionReasonUnderutilized) == 0,
			"the NodePool is paused: its disruption budgets allow no node to be replaced now"},
		{reported && !ready.IsTrue(), "the NodePool is not ready: " + lo.FromPtr(ready).Message},
		{len(claims) == 0, "the NodePool has no nodes"},
		// What is under way would make it another one than was planned.
		{moving != nil, fmt.Sprintf("NodeClaim %s is being launched or removed; try again when it is done", lo.FromPtr(moving).Name)},
		// In another namespace anybody could have given a pod the label.
		{lo.ContainsBy(pods, func(pod *corev1.Pod) bool {
			return pod.Namespace == namespace && pod.Labels[HoldLabel] != "" && !podutils.IsTerminal(pod)
		}), "a repack is under way: its pods still hold nodes"},
		{waiting > 0, fmt.Sprintf("%d pods have no node yet and would take the new ones; try again when they run", waiting)},
	} {
		if reason.applies {
			return errors.New(reason.text)
		}
	}
	return nil
}
