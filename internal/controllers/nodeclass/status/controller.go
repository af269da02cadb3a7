// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status resolves the spec of a BizflyNodeClass to what there is in the cloud, and reports in one condition per
// sub-reconciler what is right, what is wrong, and what to do about it.
package status

import (
	"context"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ReasonDeleting is the reason of Ready of a NodeClass that is being deleted.
const ReasonDeleting = "Deleting"

const (
	// concurrency bounds how many NodeClasses are resolved at once: each may list half a dozen things in the cloud.
	concurrency = 5

	// requeueFine is how late a newer image or a removed firewall is noticed while all is well.
	requeueFine = 5 * time.Minute
)

// Controller is nodeclass.status.
type Controller struct {
	kubeClient client.Client
	clock      clock.Clock
	catalog    catalog.Provider
	images     *image.DefaultProvider
	networks   *network.DefaultProvider
	bootstraps *bootstrap.DefaultProvider
	flavors    *flavor.DefaultProvider
}

// NewController returns the controller.
func NewController(
	kubeClient client.Client, clk clock.Clock,
	catalog catalog.Provider, images *image.DefaultProvider, networks *network.DefaultProvider,
	bootstraps *bootstrap.DefaultProvider, flavors *flavor.DefaultProvider,
) *Controller {
	return &Controller{
		kubeClient: kubeClient, clock: clk, catalog: catalog, images: images, networks: networks,
		bootstraps: bootstraps, flavors: flavors,
	}
}

// subReconciler resolves one part of the spec. Ready depends on all of them but the last two.
type subReconciler struct {
	// conditionType is the condition that reports the result.
	conditionType string
	// resolve looks things up, writes what it found into the NodeClass's status, and leaves the status as it is where
	// it found nothing: running nodes are compared with what was resolved last, and neither a typo nor an outage may
	// replace them.
	resolve func(context.Context, *v1alpha1.BizflyNodeClass) result
}

// subReconcilers are in this order: zones depend on networks, disks on zones and image, and flavors on zones and disks.
// Pod access is that of the user data which the bootstrap was resolved to.
func (c *Controller) subReconcilers() []subReconciler {
	var resolution *bootstrap.Output
	return []subReconciler{
		{v1alpha1.ConditionTypeNetworksReady, c.resolveNetworks},
		{v1alpha1.ConditionTypeZonesReady, c.resolveZones},
		{v1alpha1.ConditionTypeImagesReady, c.resolveImage},
		{v1alpha1.ConditionTypeFirewallsReady, c.resolveFirewalls},
		{v1alpha1.ConditionTypeSSHKeyReady, c.resolveSSHKey},
		{v1alpha1.ConditionTypeBootstrapReady, func(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (found result) {
			resolution, found = c.resolveBootstrap(ctx, nodeClass)
			return found
		}},
		{v1alpha1.ConditionTypeDisksReady, c.resolveDisks},
		{v1alpha1.ConditionTypeFlavorsReady, c.resolveFlavors},
		{v1alpha1.ConditionTypeEgressAvailable, c.resolveEgress},
		{v1alpha1.ConditionTypePodAccessEnforced, func(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
			return c.resolvePodAccess(ctx, nodeClass, resolution)
		}},
	}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.status" }

// Reconcile resolves one NodeClass and patches its status once.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	stored := nodeClass.DeepCopy()
	if !nodeClass.DeletionTimestamp.IsZero() {
		// Nothing is resolved any more, and kubectl get shows why the NodeClass is still there.
		conditions := nodeClass.StatusConditions(opstatus.WithClock(c.clock), opstatus.WithObservedOnly())
		conditions.SetFalse(opstatus.ConditionReady, ReasonDeleting,
			"It is being deleted, and stays until its last NodeClaim is gone")
		nodeClass.Status.Summary = summaryOf(nodeClass, conditions.Root())
		return controllers.AfterLocked(c.patch(ctx, stored, nodeClass))
	}
	conditions := nodeClass.StatusConditions(opstatus.WithClock(c.clock))
	requeue, named := requeueFine, map[error]string{}
	for _, part := range c.subReconcilers() {
		found := part.resolve(ctx, nodeClass).orStale(v1alpha1.Resolved(nodeClass, part.conditionType)).
			nameOnce(named, part.conditionType)
		found.apply(conditions, part.conditionType)
		requeue = min(requeue, lo.CoalesceOrEmpty(found.retryAfter, requeueFine))
	}
	explain(conditions, lo.Map(c.subReconcilers(), func(part subReconciler, _ int) string { return part.conditionType }))
	nodeClass.Status.Summary = summaryOf(nodeClass, conditions.Root())
	if err := c.patch(ctx, stored, nodeClass); err != nil {
		return controllers.AfterLocked(err)
	}
	return reconcile.Result{RequeueAfter: requeue}, nil
}

// patch writes the status if it has changed.
func (c *Controller) patch(ctx context.Context, stored, nodeClass *v1alpha1.BizflyNodeClass) error {
	if equality.Semantic.DeepEqual(stored.Status, nodeClass.Status) {
		return nil
	}
	// The lock, because a merge patch replaces the complete list of conditions.
	return c.kubeClient.Status().Patch(ctx, nodeClass, controllers.Locked(stored))
}

// Register adds the controller to the manager. A change of the spec starts it, and not its own writes.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
