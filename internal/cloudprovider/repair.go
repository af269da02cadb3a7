// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// RepairPolicies returns the conditions of a Node that core's node repair acts on.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy { return repairPolicies }

// Reboot resets the server of a NodeClaim in place. Core replaces the node where the server is gone or the reboot is
// rejected permanently, and repeats the call with the same operationID after any other error.
func (c *CloudProvider) Reboot(ctx context.Context, claim *karpv1.NodeClaim, operationID string) error {
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok {
		return foreign(claim.Status.ProviderID)
	}
	if err := c.checkClone(ctx, claim); err != nil {
		return err
	}
	err := c.config.Instances.Reboot(ctx, id, operationID)
	if errors.Is(err, instance.ErrRebootRejected) {
		return cloudprovider.NewNodeRebootFailedError(err)
	}
	return notFound(err, "rebooting", id)
}

// repairPolicies are the conditions for which core repairs a node when its NodeRepair gate is on, under the budgets of
// the NodePool and never while more than 20 % of its nodes are unhealthy.
var repairPolicies = []cloudprovider.RepairPolicy{
	// The kubelet is silent: mostly a hung kernel, which a reboot ends where nothing else does, or a server that is
	// stopped, which it starts. Its pods are evicted at the same time, five minutes after the last heartbeat. Core
	// replaces the node when it does not come back, and after two reboots within a day.
	{
		ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, ReasonRegex: ".*",
		TolerationDuration: 5 * time.Minute, TerminationGracePeriod: lo.ToPtr(time.Duration(0)),
		Priority: 10, Action: cloudprovider.RebootNode,
	},
	// node-problem-detector's conditions, which it never resets, so there is nothing to wait for: a hung kernel runs
	// again after a reboot, a file system that was mounted read-only does not.
	{
		ConditionType: "KernelDeadlock", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(time.Minute),
		Priority: 5, Action: cloudprovider.RebootNode,
	},
	// BizFly Cloud's node-problem-detector has two more. It restarts a container runtime itself, for which they wait.
	{
		ConditionType: "ContainerRuntimeUnhealthy", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: 5 * time.Minute, TerminationGracePeriod: lo.ToPtr(time.Minute),
		Priority: 5, Action: cloudprovider.RebootNode,
	},
	{
		ConditionType: "SystemdOffline", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: 5 * time.Minute, TerminationGracePeriod: lo.ToPtr(time.Minute),
		Priority: 5, Action: cloudprovider.RebootNode,
	},
	{
		ConditionType: "ReadonlyFilesystem", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(5 * time.Minute),
		Priority: 5, Action: cloudprovider.ReplaceNode,
	},
	// The fallback. A kubelet that reports NotReady often recovers by itself, and can still end pods.
	{
		ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse,
		TolerationDuration: 15 * time.Minute, TerminationGracePeriod: lo.ToPtr(5 * time.Minute),
		Action: cloudprovider.ReplaceNode,
	},
}
