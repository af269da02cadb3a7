// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
)

// drain returns nil once no pod runs on the node that core would drain, and no other can come; errDraining while core
// drains it. Core drains any Node that is deleted with its finalizer and a NodeClass of its providers, also one without
// a NodeClaim.
func (c *Controller) drain(ctx context.Context, node *corev1.Node, nodeClass string) error {
	// The API server itself is asked, for the Node as for its pods: a cache may lack the pods that were bound a moment
	// ago.
	if err := c.apiReader.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.closeNode(ctx, node); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := c.apiReader.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return fmt.Errorf("listing the pods of node %s: %w", node.Name, err)
	}
	if lo.NoneBy(pods.Items, func(pod corev1.Pod) bool {
		return podutils.IsWaitingEviction(&pod, c.clock) && !podutils.IsOwnedByDaemonSet(&pod)
	}) {
		return nil
	}
	if !node.DeletionTimestamp.IsZero() {
		return errDraining
	}
	stored := node.DeepCopy()
	controllerutil.AddFinalizer(node, karpv1.TerminationFinalizer)
	node.Labels = lo.Assign(map[string]string{cloudprovider.NodeClassLabel: nodeClass}, node.Labels)
	if err := c.kubeClient.Patch(ctx, node, controllers.Locked(stored)); err != nil {
		return fmt.Errorf("preparing node %s to be drained: %w", node.Name, err)
	}
	if err := c.deleteNode(ctx, node); err != nil {
		return err
	}
	return errDraining
}

// closeNode keeps further pods off the node, by the taint with which core begins a drain.
func (c *Controller) closeNode(ctx context.Context, node *corev1.Node) error {
	closed := lo.ContainsBy(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.MatchTaint(&karpv1.UnregisteredNoExecuteTaint) || taint.MatchTaint(&karpv1.DisruptedNoScheduleTaint)
	})
	if closed {
		return nil
	}
	stored := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, karpv1.DisruptedNoScheduleTaint)
	if err := c.kubeClient.Patch(ctx, node, controllers.Locked(stored)); err != nil {
		return fmt.Errorf("keeping pods off node %s: %w", node.Name, err)
	}
	return nil
}
