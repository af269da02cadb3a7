// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Create launches a server for the NodeClaim, or finds the one that was launched before. It returns as soon as the
// server has an id. A create request whose outcome is unknown is never repeated.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	if err := c.checkClone(ctx, claim); err != nil {
		return nil, err
	}
	launched, err := c.create(ctx, claim)
	if err != nil {
		return c.Launches.EndOrKeep(ctx, claim, err)
	}
	return c.nodeClaimOf(launched), nil
}

func (c *CloudProvider) create(ctx context.Context, claim *karpv1.NodeClaim) (*launch.Result, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if apierrors.IsNotFound(err) {
		return nil, c.endUnresolved(ctx, err)
	} else if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass: %w", err)
	}
	l, err := c.Launches.Load(ctx, claim, nodeClass)
	if err != nil {
		return nil, err
	}
	if l.ServerMayExist() {
		if l.Types, err = c.instanceTypes(ctx, claim, nodeClass); err != nil {
			return nil, launch.Keep(launch.ReasonInstanceTypesUnavailable, err)
		}
		return c.Launches.Resume(ctx, l)
	}
	if err := c.checkLaunchable(ctx, claim, nodeClass); err != nil {
		return nil, err
	}
	if l.Types, err = c.instanceTypes(ctx, claim, nodeClass); cloudprovider.IsUnevaluatedNodePoolError(err) {
		// Only for a moment: core evaluates the overlays of a NodePool just after a start, and after the NodePool is
		// new. It creates the NodeClaims of a static NodePool without waiting for that, and may wait a minute before it
		// replaces one that has ended.
		return nil, launch.Keep(launch.ReasonInstanceTypesUnavailable, err)
	} else if err != nil {
		return nil, c.Launches.End(ctx, launch.ReasonInstanceTypesUnavailable, err)
	}
	if err := c.Launches.AdmitLaunch(ctx, claim, nodeClass); err != nil {
		return nil, err
	}
	candidates, err := c.selectCandidates(ctx, l)
	if err != nil {
		return nil, c.Launches.End(ctx, launch.ReasonNoOffering, err)
	}
	return c.Launches.Launch(ctx, l, candidates)
}

// endUnresolved ends a NodeClaim whose NodeClass does not exist, or not for long.
func (c *CloudProvider) endUnresolved(ctx context.Context, err error) error {
	return c.Launches.End(ctx, launch.ReasonNodeClassUnresolved,
		fmt.Errorf("resolving the NodeClass: %w; correct nodeClassRef of the NodePool, or create it", err))
}

// checkLaunchable ends a NodeClaim that can launch nothing now, by its NodeClass, its capacity type or the time that is
// left.
func (c *CloudProvider) checkLaunchable(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) error {
	if err := c.checkNodeClass(ctx, claim, nodeClass); err != nil {
		return err
	}
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	capacityType := requirements.Get(karpv1.CapacityTypeLabelKey)
	if !capacityType.Has(karpv1.CapacityTypeOnDemand) {
		return c.Launches.End(ctx, launch.ReasonCapacityTypeUnsupported, fmt.Errorf(
			"the requirement is %s, but BizFly Cloud has neither spot nor reserved capacity: allow %s. "+
				"To pay another way, set spec.billingPlan of "+
				"the BizflyNodeClass; use %s only with static NodePools (spec.replicas), since it is prepaid at each create",
			capacityType, karpv1.CapacityTypeOnDemand, v1alpha1.BillingPlanSavingPlan))
	}
	if err := c.checkBillingPlan(ctx, claim, nodeClass); err != nil {
		return err
	}
	if c.Launches.TimeLeft(claim) <= 0 {
		return c.Launches.EndOutOfTime(ctx, claim,
			errors.New("less than the time that a server needs is left of core's launch timeout"))
	}
	return nil
}

// checkBillingPlan ends a NodeClaim that would buy a saving plan for a NodePool that is not static: each launch is
// prepaid, and consolidation would forget what is left of it. A NodeClaim without a NodePool is what a user asked for.
func (c *CloudProvider) checkBillingPlan(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) error {
	name := claim.Labels[karpv1.NodePoolLabelKey]
	if name == "" || nodeClass.EffectiveBillingPlan() != v1alpha1.BillingPlanSavingPlan {
		return nil
	}
	pool := &karpv1.NodePool{}
	if err := c.config.KubeClient.Get(ctx, client.ObjectKey{Name: name}, pool); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading NodePool %q, which must be static for a saving plan: %w", name, err)
	}
	if pool.Spec.Replicas != nil {
		return nil
	}
	return c.Launches.End(ctx, launch.ReasonSavingPlanNotStatic, fmt.Errorf(
		"spec.billingPlan of BizflyNodeClass %q is %s, which is prepaid at each create, and NodePool %q is not static: "+
			"use %s, or give the NodePool spec.replicas",
		nodeClass.Name, v1alpha1.BillingPlanSavingPlan, name, v1alpha1.BillingPlanOnDemand))
}

// checkNodeClass ends a NodeClaim whose NodeClass cannot launch anything now. Core schedules nothing as long as the
// NodeClaim exists, so that of a NodePool is not kept waiting for the NodeClass: core creates another one.
func (c *CloudProvider) checkNodeClass(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) error {
	condition := nodeClass.StatusConditions().Root()
	switch {
	case !nodeClass.DeletionTimestamp.IsZero():
		return c.endUnresolved(ctx, nodeClassNotFound(nodeClass.Name+" (being deleted)"))
	case v1alpha1.Resolved(nodeClass, status.ConditionReady):
		return nil
	case claim.Labels[karpv1.NodePoolLabelKey] == "" &&
		(condition.IsUnknown() || condition.ObservedGeneration != nodeClass.Generation):
		// A NodeClaim without a NodePool is not created again by core, which retries until its launch timeout.
		return launch.Keep(launch.ReasonNodeClassReadinessUnknown,
			fmt.Errorf("BizflyNodeClass %q is being resolved: %s", nodeClass.Name, condition.Message))
	case condition.IsTrue():
		return c.Launches.End(ctx, launch.ReasonNodeClassNotReady,
			fmt.Errorf("the last change of BizflyNodeClass %q has not been resolved yet", nodeClass.Name))
	}
	return c.Launches.End(ctx, launch.ReasonNodeClassNotReady,
		fmt.Errorf("BizflyNodeClass %q is not ready: %s: %s", nodeClass.Name, condition.Reason, condition.Message))
}

// instanceTypes returns the instance types of the NodePool, at the prices that core has planned with.
func (c *CloudProvider) instanceTypes(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) (
	cloudprovider.InstanceTypes, error) {
	instanceTypes, err := c.config.Flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, fmt.Errorf("listing instance types: %w", err)
	}
	// A standalone NodeClaim belongs to no NodePool, and overlays are evaluated per NodePool.
	pool := claim.Labels[karpv1.NodePoolLabelKey]
	if c.config.Overlay == nil || pool == "" {
		return instanceTypes, nil
	}
	overlaid, err := c.config.Overlay.ApplyAll(pool, instanceTypes)
	if cloudprovider.IsUnevaluatedNodePoolError(err) &&
		apierrors.IsNotFound(c.config.KubeClient.Get(ctx, client.ObjectKey{Name: pool}, &karpv1.NodePool{})) {
		return instanceTypes, nil // core never evaluates a NodePool that is gone
	}
	if err != nil {
		return nil, fmt.Errorf("applying NodeOverlays: %w", err)
	}
	return overlaid, nil
}
