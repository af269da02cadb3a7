// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ConditionTypes are the conditions that this controller writes, and no other.
var ConditionTypes = []string{v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ConditionTypeLaunchesSucceeding}

// updateConditions brings the conditions up to date. Ready depends on none of them.
func (c *Controller) updateConditions(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	updated := nodeClass.DeepCopy()
	conditions := updated.StatusConditions(opstatus.WithClock(c.clock), opstatus.WithObservedOnly())
	ready := conditions.Root()
	c.checkFailures(updated, conditions)
	if err := c.checkBillingPlan(ctx, updated, conditions); err != nil {
		return err
	}
	// Setting one recomputes Ready, which would put "UnhealthyDependents" in the place of the reasons that the status
	// controller has written there, or create it.
	updated.Status.Conditions = lo.FilterMap(updated.Status.Conditions, func(condition opstatus.Condition, _ int) (opstatus.Condition, bool) {
		if condition.Type == opstatus.ConditionReady {
			return lo.FromPtr(ready), ready != nil
		}
		return condition, true
	})
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return nil
	}
	// The status controller writes the same list, hence the lock.
	if err := c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(nodeClass)); err != nil {
		return fmt.Errorf("patching the status: %w", err)
	}
	return nil
}

// reasonNotPaused says that launches are not paused.
const reasonNotPaused = "LaunchesNotPaused"

// checkFailures reports that launches with the NodeClass pause. Ready does not depend on it: what the NodeClass refers
// to exists, and only another launch shows whether it works again.
func (c *Controller) checkFailures(nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) {
	reason, until, cause := c.cloudProvider.Launches.LaunchesPaused(nodeClass)
	if cause == nil {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchesSucceeding, reasonNotPaused, "launches with this NodeClass are not paused")
		return
	}
	conditions.SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, reason, fmt.Sprintf(
		"launches with this NodeClass fail whatever the offering, and pause until %s. Where nodes did not register, one launch at a time is then tried until one "+
			"does. A change of the spec or the image ends the pause. The last failure: %s",
		until.UTC().Format(time.RFC3339), cause))
}

// Reasons of the condition BillingPlanSuitable.
const (
	// reasonStaticNodePools says that all NodePools of the NodeClass have spec.replicas.
	reasonStaticNodePools = "StaticNodePools"
	// reasonSavingPlanDynamicNodePool says that NodePools without spec.replicas buy saving plans all the time.
	reasonSavingPlanDynamicNodePool = "SavingPlanOnDynamicNodePool"
)

// checkBillingPlan warns of a saving plan for nodes that are launched and deleted dynamically: each is prepaid at its
// launch. BizFly's pages refund what remains of a subscription, and nobody has seen whether that is true of the API's
// saving_plan (docs/contribute/first-contact.md). If it is not, every consolidation, which saves by the price per hour,
// costs money.
func (c *Controller) checkBillingPlan(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	if nodeClass.EffectiveBillingPlan() != v1alpha1.BillingPlanSavingPlan {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ReasonNotApplicable, "servers are paid for on demand")
		return nil
	}
	pools := &karpv1.NodePoolList{}
	if err := c.kubeClient.List(ctx, pools, nodepoolutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePools: %w", err)
	}
	dynamic := lo.FilterMap(pools.Items, func(pool karpv1.NodePool, _ int) (string, bool) {
		return pool.Name, pool.Spec.Replicas == nil && pool.DeletionTimestamp.IsZero()
	})
	if len(dynamic) == 0 {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeBillingPlanSuitable, reasonStaticNodePools, "every NodePool is static")
		return nil
	}
	slices.Sort(dynamic)
	if conditions.SetFalse(v1alpha1.ConditionTypeBillingPlanSuitable, reasonSavingPlanDynamicNodePool, fmt.Sprintf(
		"spec.billingPlan is %s, which is prepaid at each create, and perhaps not refunded at a delete, but NodePools %v are not static, "+
			"so that nothing is launched for them; use %s for them, or give them spec.replicas, whose nodes stay",
		v1alpha1.BillingPlanSavingPlan, lookup.Shorten(dynamic), v1alpha1.BillingPlanOnDemand)) {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypeBillingPlanSuitable)))
	}
	return nil
}
