// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package termination holds a BizflyNodeClass that is being deleted until no NodeClaim uses it any more.
package termination

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller is nodeclass.termination.
type Controller struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
}

// NewController returns the Controller.
func NewController(kubeClient client.Client, recorder karpevents.Recorder) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.termination" }

// Reconcile puts our finalizer on a NodeClass, and takes it off one that is being deleted and that nothing uses.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	stored := nodeClass.DeepCopy()
	if nodeClass.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(nodeClass, v1alpha1.TerminationFinalizer)
		return c.patch(ctx, stored, nodeClass)
	}
	if !controllerutil.ContainsFinalizer(nodeClass, v1alpha1.TerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, nodeClaims, nodeclaimutils.ForNodeClass(nodeClass)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	if len(nodeClaims.Items) > 0 {
		names := lo.Map(nodeClaims.Items, func(nc karpv1.NodeClaim, _ int) string { return nc.Name })
		c.recorder.Publish(events.WaitingOnNodeClaimTermination(nodeClass, names))
		return reconcile.Result{RequeueAfter: ttl.NodeClassInUse}, nil
	}
	controllerutil.RemoveFinalizer(nodeClass, v1alpha1.TerminationFinalizer)
	return c.patch(ctx, stored, nodeClass)
}

func (c *Controller) patch(ctx context.Context, stored, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	if len(stored.Finalizers) == len(nodeClass.Finalizers) {
		return reconcile.Result{}, nil
	}
	// The lock, because a merge patch replaces the list of finalizers and would drop one that was added meanwhile.
	result, err := controllers.AfterLocked(c.kubeClient.Patch(ctx, nodeClass, controllers.Locked(stored)))
	if err != nil {
		return result, fmt.Errorf("patching finalizers: %w", err)
	}
	return result, nil
}

// Register adds the controller to the manager. The last NodeClaim's deletion frees the NodeClass at once.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(controllers.NodeClassOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
