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

// Package usage shows on a BizflyNodeClass what its NodeClaims and NodePools reveal about it: whether a node of this spec and
// image has ever registered, whether launches keep failing, whether its billing plan suits them, and whether the cluster may
// have another node. Ready depends on none of them, and no request to the cloud is needed.
package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Failures knows which NodeClasses pause; *cloudprovider.Outcomes is one.
type Failures interface {
	// LaunchesBlocked returns the reason and the cause of the pause, from when on one launch at a time is tried, and a nil
	// cause without a pause.
	LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error)
}

// Controller writes the conditions.
type Controller struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
	catalog    catalog.Provider
	failures   Failures
}

// NewController returns a Controller. The client is the manager's, whose cache has NodeClaims and NodePools by NodeClass.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock, known catalog.Provider, failures Failures) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk, catalog: known, failures: failures}
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
	for _, check := range []func(context.Context, *v1alpha1.BizflyNodeClass, opstatus.ConditionSet) error{c.checkLaunch, c.checkBillingPlan, c.checkPackage} {
		if err := check(ctx, updated, conditions); err != nil {
			return reconcile.Result{}, err
		}
	}
	updated.Status.Conditions = merged(nodeClass.Status.Conditions, updated.Status.Conditions)
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return reconcile.Result{RequeueAfter: ttl.NodeClassConditions}, nil
	}
	// The status controller writes the same list, hence the lock.
	result, err := controllers.Patched(c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(nodeClass)))
	if err != nil {
		return result, fmt.Errorf("patching the status: %w", err)
	}
	return reconcile.Result{RequeueAfter: lo.CoalesceOrEmpty(result.RequeueAfter, ttl.NodeClassConditions)}, nil
}

// ConditionTypes are the conditions that this controller writes, and no other.
var ConditionTypes = []string{
	v1alpha1.ConditionTypeLaunchVerified, v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ConditionTypePackageRoomAvailable,
	v1alpha1.ConditionTypeLaunchesSucceeding,
}

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
		// Hundreds of nodes register, and only the first one of a spec and an image changes anything; Reconcile knows which, and
		// lists no NodeClaims once it is verified.
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(controllers.NodeClassOf), builder.WithPredicates(registering())).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(controllers.NodeClassOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.everyNodeClass), builder.WithPredicates(counted())).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// registering passes NodeClaims whose node registers, and those whose node had when this process started.
func registering() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return registered(e.Object.(*karpv1.NodeClaim)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return registered(e.ObjectNew.(*karpv1.NodeClaim)) && !registered(e.ObjectOld.(*karpv1.NodeClaim))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// counted passes nodes that are created and deleted.
func counted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

func registered(claim *karpv1.NodeClaim) bool {
	return controllers.IsTrue(claim, karpv1.ConditionTypeRegistered)
}

// Reasons of the condition LaunchVerified.
const (
	// reasonNodeRegistered says that a node of this spec and image has registered.
	reasonNodeRegistered = "NodeRegistered"
	// reasonUnknownUntilFirstLaunch says that no node has registered yet, and only that shows whether servers boot and join.
	reasonUnknownUntilFirstLaunch = "UnknownUntilFirstLaunch"
)

// checkLaunch reports whether a node has registered that was launched with this spec and image. What has been seen stays in
// the status, so that it is still known when the last node is gone.
func (c *Controller) checkLaunch(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	image := nodeClass.Status.Image()
	if image == nil {
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch,
			"unknown until first launch, for which there is no image yet")
		return nil
	}
	current := v1alpha1.VerifiedLaunchStatus{Hash: nodeClass.Hash(), ImageID: image.ID}
	if lo.FromPtr(nodeClass.Status.VerifiedLaunch) != current {
		claims := &karpv1.NodeClaimList{}
		if err := c.kubeClient.List(ctx, claims, nodeclaimutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing NodeClaims: %w", err)
		}
		if !lo.ContainsBy(claims.Items, func(claim karpv1.NodeClaim) bool { return verifies(&claim, current) }) {
			conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch, fmt.Sprintf(
				"unknown until first launch: no node of this spec and image %s (%s) has registered yet, and only that shows that the image boots, that its user data "+
					"joins, and that flavors are available with these disks",
				image.Name, image.ID))
			return nil
		}
		nodeClass.Status.VerifiedLaunch = &current
	}
	conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonNodeRegistered,
		fmt.Sprintf("a node of this spec and image %s (%s) has registered", image.Name, image.ID))
	return nil
}

// verifies reports whether the NodeClaim was launched with this spec and image and its node has registered. Hashes of another
// version prove nothing.
func verifies(claim *karpv1.NodeClaim, current v1alpha1.VerifiedLaunchStatus) bool {
	return claim.Annotations[v1alpha1.AnnotationNodeClassHashVersion] == v1alpha1.NodeClassHashVersion &&
		claim.Annotations[v1alpha1.AnnotationNodeClassHash] == current.Hash &&
		claim.Status.ImageID == current.ImageID && registered(claim)
}

// reasonNotPaused is the reason of the condition LaunchesSucceeding while launches are not paused.
const reasonNotPaused = "LaunchesNotPaused"

// checkFailures reports that launches with the NodeClass keep failing. Ready does not depend on it: what the NodeClass refers
// to exists, and only another launch shows whether it works again.
func (c *Controller) checkFailures(nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) {
	reason, until, cause := c.failures.LaunchesBlocked(nodeClass)
	if cause == nil {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchesSucceeding, reasonNotPaused, "launches with this NodeClass are not paused")
		return
	}
	conditions.SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, reason, fmt.Sprintf(
		"launches keep failing for a reason other than capacity: they pause until %s, and then one at a time is tried until one succeeds. A change of the spec "+
			"or the image ends the pause. The last failure: %s",
		until.UTC().Format(time.RFC3339), cause))
}

// Reasons of the condition BillingPlanSuitable.
const (
	// reasonStaticNodePools says that every NodePool of the NodeClass has spec.replicas, so that its nodes stay.
	reasonStaticNodePools = "StaticNodePools"
	// reasonSavingPlanDynamicNodePool says that NodePools without spec.replicas buy and forfeit saving plans all the time.
	reasonSavingPlanDynamicNodePool = "SavingPlanOnDynamicNodePool"
)

// checkBillingPlan warns of a saving plan for nodes that are launched and deleted dynamically: each is prepaid at its launch and
// forfeited at its deletion, so that every consolidation, which saves by the price per hour, costs money.
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
		"spec.billingPlan is %s, which is prepaid at each create and forfeited at each delete, but NodePools %v launch and delete nodes with demand; "+
			"use %s for them, or give them spec.replicas, whose nodes stay", v1alpha1.BillingPlanSavingPlan, lookup.Shorten(dynamic), v1alpha1.BillingPlanOnDemand)) {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypeBillingPlanSuitable)))
	}
	return nil
}

// Reasons of the condition PackageRoomAvailable.
const (
	// reasonPackageHasRoom says that the package of the BKE cluster allows more nodes than there are.
	reasonPackageHasRoom = "PackageHasRoom"
	// reasonPackageLimit says that there are as many nodes as the package of the BKE cluster allows.
	reasonPackageLimit = "PackageLimitReached"
)

// checkPackage reports whether the package of the BKE cluster allows another node. It prevents no launch, since it is not
// documented which nodes count; ENFORCE_CLUSTER_MAX_NODES does.
func (c *Controller) checkPackage(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	snapshot, err := c.catalog.Snapshot()
	if errors.Is(err, catalog.ErrNotReady) {
		return nil // what was known before the process started stays
	}
	if err != nil {
		return fmt.Errorf("reading what the package allows: %w", err)
	}
	if snapshot.MaxNodes <= 0 || nodeClass.EffectiveBootstrapMode() != v1alpha1.BootstrapModeBKE {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypePackageRoomAvailable, v1alpha1.ReasonNotApplicable,
			"no package of a BKE cluster is known to limit the nodes")
		return nil
	}
	count, err := cloudprovider.CountNodes(ctx, c.kubeClient, "")
	if err != nil {
		return err
	}
	if count < snapshot.MaxNodes {
		// Without the count, or every created or deleted node would be a write.
		conditions.SetTrueWithReason(v1alpha1.ConditionTypePackageRoomAvailable, reasonPackageHasRoom,
			fmt.Sprintf("the cluster has fewer nodes than the %d that the package of the BKE cluster allows", snapshot.MaxNodes))
		return nil
	}
	known := conditions.Get(v1alpha1.ConditionTypePackageRoomAvailable).IsFalse()
	conditions.SetFalse(v1alpha1.ConditionTypePackageRoomAvailable, reasonPackageLimit, fmt.Sprintf(
		"the cluster has %d nodes and the package of the BKE cluster allows %d, so another server may cost money and never join; "+
			"choose a bigger package in BizFly's console, or keep NodePools below it with spec.limits", count, snapshot.MaxNodes))
	if !known {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypePackageRoomAvailable)))
	}
	return nil
}

// everyNodeClass maps any Node event to all NodeClasses, because the package limit counts all nodes.
func (c *Controller) everyNodeClass(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.BizflyNodeClassList{}
	if err := c.kubeClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).V(1).Info("listing NodeClasses to count nodes for", "error", err.Error())
		return nil
	}
	return lo.Map(list.Items, func(nodeClass v1alpha1.BizflyNodeClass, _ int) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&nodeClass)}
	})
}
