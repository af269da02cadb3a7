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
	moving, _ := lo.Find(claims, func(c *karpv1.NodeClaim) bool {
		return !c.DeletionTimestamp.IsZero() || !c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
	})
	waiting := lo.CountBy(pods, func(pod *corev1.Pod) bool { return input.Counts(pod) && pod.Spec.NodeName == "" })
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
