// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// Trial lets the simulation go on with the nodes of the copy. From now on evicted pods run where the kube-scheduler would put them, one at a time
// and in a random order, and not where core's simulation did: what a trial comes to does not depend on luck alone. Nodes that are old
// enough to be consolidated soon are treated as if they were already.
func (s *Simulation) Trial(ctx context.Context, seed uint64) error {
	s.random, s.Moved = rand.New(rand.NewPCG(seed, 2)), map[types.UID]int{} //nolint:gosec // a seed is tried again
	for _, m := range s.members() {
		pool, err := s.pool(ctx, m.claim.Labels[karpv1.NodePoolLabelKey])
		if err != nil {
			return err
		}
		if pool.Spec.Disruption.ConsolidateAfter.Duration != nil && m.claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			m.claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
			s.Objects.Put(m.claim)
		}
	}
	return s.Observe(ctx)
}

// RunPod makes a pod run on a node, besides those that are there.
func (s *Simulation) RunPod(ctx context.Context, pod *corev1.Pod, node string) error {
	pod = pod.DeepCopy()
	pod.UID = lo.CoalesceOrEmpty(pod.UID, types.UID(fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)))
	pod.Spec.NodeName = node
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: s.Now()}}
	return s.put(ctx, pod)
}

// EndPods ends the pods of which a function says so. They leave no others behind.
func (s *Simulation) EndPods(ends func(*corev1.Pod) bool) {
	for _, pod := range memory.All[*corev1.Pod](s.Objects) {
		if ends(pod) {
			s.remove(pod)
		}
	}
}

// Now is the simulated time.
func (s *Simulation) Now() time.Time { return s.clock.Now() }

// Nodes is how many nodes there are that core manages, and what they cost, in VND per hour.
func (s *Simulation) Nodes(ctx context.Context) (count int, vndPerHour float64, err error) {
	result := &Result{}
	err = s.fill(ctx, result, nil)
	return len(result.Nodes), result.VNDPerHour, err
}

// Managed is a node that core manages.
type Managed struct {
	Claim *karpv1.NodeClaim
	Node  *corev1.Node
	// Pods are those that would move, in the order of their names, and Daemons is what all others on the node request.
	Pods    []*corev1.Pod
	Daemons corev1.ResourceList
	// VNDPerHour is its price, and Used by resource the part of the allocatable amount that is requested, from 0 to 1.
	VNDPerHour float64
	Used       map[corev1.ResourceName]float64
	// Disruptable is true where core may evict its pods now: no annotation and no PodDisruptionBudget forbids it.
	Disruptable bool
}

// Managed returns the nodes that core manages, in the order of their names.
func (s *Simulation) Managed(ctx context.Context) ([]*Managed, error) {
	candidates, err := disruption.GetCandidates(ctx, s.Cluster, s.Objects, s.record, s.clock, s.Provider,
		func(context.Context, *disruption.Candidate) bool { return true }, disruption.GracefulDisruptionClass, s.deciders.Queue)
	if err != nil {
		return nil, err
	}
	disruptable := lo.SliceToMap(candidates, func(c *disruption.Candidate) (string, bool) { return c.NodeClaim.Name, true })
	var all []*Managed
	for _, m := range s.members() {
		described, err := s.describe(ctx, m)
		if err != nil {
			return nil, err
		}
		pods := m.movable()
		all = append(all, &Managed{
			Claim: m.claim, Node: m.node, Pods: pods, Daemons: daemonsOf(m.requests(), pods),
			VNDPerHour: described.VNDPerHour, Used: described.Used,
			Disruptable: disruptable[m.claim.Name] && !m.node.Spec.Unschedulable,
		})
	}
	slices.SortFunc(all, func(a, b *Managed) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return all, nil
}
