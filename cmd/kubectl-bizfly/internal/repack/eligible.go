// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// Eligible returns why a NodePool is left alone; nil if it is not. The namespace is that of a repack's own pods.
func Eligible(pool *karpv1.NodePool, claims []*karpv1.NodeClaim, pods []*corev1.Pod, namespace string) error {
	claims = lo.Filter(claims, func(c *karpv1.NodeClaim, _ int) bool { return c.Labels[karpv1.NodePoolLabelKey] == pool.Name })
	if err := errors.Join(allows(pool), paused(pool, len(claims))); err != nil {
		return err
	}
	if len(claims) == 0 {
		return errors.New("the NodePool has no nodes")
	}
	return rests(claims, pods, namespace)
}

// allows returns why the settings of a NodePool allow no repack.
func allows(pool *karpv1.NodePool) error {
	d := pool.Spec.Disruption
	switch {
	case !pool.DeletionTimestamp.IsZero():
		return errors.New("the NodePool is being deleted")
	case pool.Spec.Replicas != nil:
		return errors.New("the NodePool is static: its nodes are those that spec.replicas asks for")
	case d.ConsolidateAfter.Duration == nil:
		return errors.New("consolidation is off (spec.disruption.consolidateAfter is Never), and a repack leaves every eviction to it")
	case d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty:
		return errors.New("spec.disruption.consolidationPolicy is WhenEmpty, so Karpenter evicts no pod to save cost")
	case lo.ContainsBy(pool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }):
		return errors.New("the NodePool has minValues, and a repack narrows a NodeClaim to one flavor")
	}
	return nil
}

// paused returns why no node of a NodePool is launched or replaced now.
func paused(pool *karpv1.NodePool, nodes int) error {
	switch {
	case sim.Paused(pool):
		return errors.New("the NodePool is paused: one of its limits is 0")
	case nodes > 0 && pool.MustGetAllowedDisruptions(clock.RealClock{}, nodes, karpv1.DisruptionReasonUnderutilized) == 0:
		return errors.New("the NodePool is paused: its disruption budgets allow no node to be replaced now")
	case len(pool.Status.Conditions) > 0 && !pool.StatusConditions().Root().IsTrue():
		return fmt.Errorf("the NodePool is not ready: %s", pool.StatusConditions().Root().Message)
	}
	return nil
}

// rests returns what is under way, so that a repack would not be what it was planned to be.
func rests(claims []*karpv1.NodeClaim, pods []*corev1.Pod, namespace string) error {
	for _, claim := range claims {
		if !claim.DeletionTimestamp.IsZero() || !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			return fmt.Errorf("NodeClaim %s is being launched or removed; try again when it is done", claim.Name)
		}
	}
	// In another namespace anybody could have given a pod the label.
	if lo.ContainsBy(pods, func(pod *corev1.Pod) bool {
		return pod.Namespace == namespace && pod.Labels[HoldLabel] != "" && !podutils.IsTerminal(pod)
	}) {
		return errors.New("a repack is under way: its pods still hold nodes")
	}
	if waiting := lo.CountBy(pods, func(pod *corev1.Pod) bool { return input.Counts(pod) && pod.Spec.NodeName == "" }); waiting > 0 {
		return fmt.Errorf("%d pods have no node yet and would take the new ones; try again when they run", waiting)
	}
	return nil
}
