// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage shows on a BizflyNodeClass what its launches and NodePools reveal about it: whether launches pause, and whether
// its billing plan suits the NodePools. Ready depends on none of them, and no request to the cloud is needed.
package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller writes the conditions.
type Controller struct {
	kubeClient    client.Client
	recorder      karpevents.Recorder
	clock         clock.Clock
	cloudProvider *cloudprovider.CloudProvider
}

// NewController returns a Controller. The client is the manager's, whose cache has NodeClaims and NodePools by NodeClass.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock, cloudProvider *cloudprovider.CloudProvider) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk, cloudProvider: cloudProvider}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.usage" }

// Reconcile brings the conditions up to date.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodeClass.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	updated := nodeClass.DeepCopy()
	conditions := updated.StatusConditions(opstatus.WithClock(c.clock))
	c.checkFailures(updated, conditions)
	if err := c.checkBillingPlan(ctx, updated, conditions); err != nil {
		return reconcile.Result{}, err
	}
	updated.Status.Conditions = merged(nodeClass.Status.Conditions, updated.Status.Conditions)
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return reconcile.Result{RequeueAfter: ttl.NodeClassConditions}, nil
	}
	// The status controller writes the same list, hence the lock.
	result, err := controllers.AfterLocked(c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(nodeClass)))
	if err != nil {
		return result, fmt.Errorf("patching the status: %w", err)
	}
	return reconcile.Result{RequeueAfter: lo.CoalesceOrEmpty(result.RequeueAfter, ttl.NodeClassConditions)}, nil
}

// ConditionTypes are the conditions that this controller writes, and no other.
var ConditionTypes = []string{v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ConditionTypeLaunchesSucceeding}

// merged returns the stored conditions with this controller's own of the updated ones. Setting one recomputes Ready, which
// would put "UnhealthyDependents" in the place of the reasons that the status controller has written there.
func merged(stored, updated []opstatus.Condition) []opstatus.Condition {
	ours := lo.PickByKeys(lo.KeyBy(updated, func(c opstatus.Condition) string { return c.Type }), ConditionTypes)
	var all []opstatus.Condition
	// Each keeps its place, or this and a client that sorts them would take turns indefinitely.
	for _, condition := range stored {
		if changed, isOurs := ours[condition.Type]; isOurs {
			condition = changed
			delete(ours, condition.Type)
		}
		all = append(all, condition)
	}
	return append(all, lo.Values(ours)...)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(controllers.NodeClassOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// reasonNotPaused says that launches are not paused.
const reasonNotPaused = "LaunchesNotPaused"

// checkFailures reports that launches with the NodeClass pause. Ready does not depend on it: what the NodeClass refers
// to exists, and only another launch shows whether it works again.
func (c *Controller) checkFailures(nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) {
	reason, until, cause := c.cloudProvider.LaunchesBlocked(nodeClass)
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

// checkBillingPlan warns of a saving plan for nodes that are launched and deleted dynamically: each is prepaid at its launch. BizFly's pages
// refund what remains of a subscription, and nobody has seen whether that is true of the API's saving_plan (docs/contribute/first-contact.md). If
// it is not, every consolidation, which saves by the price per hour, costs money.
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
		"spec.billingPlan is %s, which is prepaid at each create, and perhaps not refunded at a delete, but NodePools %v launch and delete nodes with demand; "+
			"use %s for them, or give them spec.replicas, whose nodes stay", v1alpha1.BillingPlanSavingPlan, lookup.Shorten(dynamic), v1alpha1.BillingPlanOnDemand)) {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypeBillingPlanSuitable)))
	}
	return nil
}
