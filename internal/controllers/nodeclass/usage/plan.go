/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package usage

import (
	"context"
	"fmt"
	"slices"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the condition BillingPlanSuitable.
const (
	// reasonStaticNodePools says that every NodePool of the NodeClass has spec.replicas, so that its nodes stay.
	reasonStaticNodePools = "StaticNodePools"
	// reasonSavingPlanDynamicNodePool says that a NodePool without spec.replicas buys and forfeits saving plans all day.
	reasonSavingPlanDynamicNodePool = "SavingPlanOnDynamicNodePool"
)

// judgePlan warns of a saving plan for nodes that come and go: each is prepaid when it comes and forfeited when it goes, so
// that every consolidation, which saves by the price per hour, costs money.
func (c *Controller) judgePlan(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	if nodeClass.Spec.BillingPlan != v1alpha1.BillingPlanSavingPlan {
		return conditions.Clear(v1alpha1.ConditionTypeBillingPlanSuitable)
	}
	pools := &karpv1.NodePoolList{}
	if err := c.kubeClient.List(ctx, pools, nodepoolutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	dynamic := lo.FilterMap(pools.Items, func(pool karpv1.NodePool, _ int) (string, bool) {
		return pool.Name, pool.Spec.Replicas == nil && pool.DeletionTimestamp.IsZero()
	})
	if len(dynamic) == 0 {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeBillingPlanSuitable, reasonStaticNodePools, "no NodePool makes and removes nodes by itself")
		return nil
	}
	slices.Sort(dynamic)
	if conditions.SetFalse(v1alpha1.ConditionTypeBillingPlanSuitable, reasonSavingPlanDynamicNodePool, fmt.Sprintf(
		"spec.billingPlan is %s, which is prepaid at each create and forfeited at each delete, but NodePools %v make and remove nodes as pods come and go; "+
			"use %s for them, or give them spec.replicas, whose nodes stay", v1alpha1.BillingPlanSavingPlan, lookup.Shorten(dynamic), v1alpha1.BillingPlanOnDemand)) {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypeBillingPlanSuitable)))
	}
	return nil
}
