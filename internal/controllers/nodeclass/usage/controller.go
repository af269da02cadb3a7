// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage does for a BizflyNodeClass what NodeClaims and NodePools that use it need: it holds one that is being
// deleted until no NodeClaim uses it any more, stamps the hash that NodeClaims are compared with, and shows whether
// launches pause. No request to the cloud is needed, so that none of it waits for a cloud that does not answer, as
// nodeclass.status does.
package usage

import (
	"context"
	"errors"
	"fmt"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller is nodeclass.usage.
type Controller struct {
	kubeClient    client.Client
	recorder      karpevents.Recorder
	clock         clock.Clock
	cloudProvider *cloudprovider.CloudProvider
}

// NewController returns a Controller. The client is the manager's, whose cache has NodeClaims by NodeClass.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock,
	cloudProvider *cloudprovider.CloudProvider) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk, cloudProvider: cloudProvider}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.usage" }

// Reconcile brings finalizer, hash and conditions of a NodeClass up to date, or ends one that is being deleted. A
// failed step stops no other.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodeClass.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, nodeClass)
	}
	result, err := controllers.AfterLocked(errors.Join(c.stamp(ctx, nodeClass), c.updateConditions(ctx, nodeClass)))
	if err != nil {
		return result, err
	}
	return reconcile.Result{RequeueAfter: lo.CoalesceOrEmpty(result.RequeueAfter, ttl.NodeClassConditions)}, nil
}

// finalize takes our finalizer off a NodeClass that is being deleted and that nothing uses.
func (c *Controller) finalize(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
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
	stored := nodeClass.DeepCopy()
	controllerutil.RemoveFinalizer(nodeClass, v1alpha1.TerminationFinalizer)
	// The lock, because a merge patch replaces the list of finalizers and would drop one that was added meanwhile.
	return controllers.AfterLocked(c.kubeClient.Patch(ctx, nodeClass, controllers.Locked(stored)))
}

// stamp puts our finalizer and the hash of what cannot change on a running server on a NodeClass. NodeClaims carry the
// hash that their NodeClass had when they were launched; a difference is drift. When the hash function has changed
// since, NodeClaims are stamped first: if this ends halfway, the old version on the NodeClass makes the next run
// continue.
func (c *Controller) stamp(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	stored := nodeClass.DeepCopy()
	controllerutil.AddFinalizer(nodeClass, v1alpha1.TerminationFinalizer)
	var failed error
	if nodeClass.Annotations[v1alpha1.AnnotationNodeClassHashVersion] != v1alpha1.NodeClassHashVersion {
		failed = c.restamp(ctx, nodeClass)
	}
	if failed == nil {
		nodeClass.Annotations = lo.Assign(nodeClass.Annotations, stampOf(nodeClass))
	}
	if equality.Semantic.DeepEqual(stored.ObjectMeta, nodeClass.ObjectMeta) {
		return failed
	}
	return errors.Join(failed, c.kubeClient.Patch(ctx, nodeClass, controllers.Locked(stored)))
}

// restamp gives the NodeClaims of a NodeClass hashes of the new version, since those of another version prove nothing:
// an upgrade of the controller must not roll a single node. A NodeClaim that has drifted already keeps its old hash, so
// that it stays drifted.
func (c *Controller) restamp(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	// The reference is by group, kind and name, so NodeClaims of other providers are never seen here.
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, nodeClaims, nodeclaimutils.ForNodeClass(nodeClass)); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	var errs []error
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		if nodeClaim.Annotations[v1alpha1.AnnotationNodeClassHashVersion] == v1alpha1.NodeClassHashVersion {
			continue
		}
		annotations := stampOf(nodeClass)
		if nodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() {
			delete(annotations, v1alpha1.AnnotationNodeClassHash)
		}
		stored := nodeClaim.DeepCopy()
		nodeClaim.Annotations = lo.Assign(nodeClaim.Annotations, annotations)
		// A NodeClaim that is gone needs none.
		if err := client.IgnoreNotFound(c.kubeClient.Patch(ctx, nodeClaim, client.MergeFrom(stored))); err != nil {
			errs = append(errs, fmt.Errorf("stamping NodeClaim %s: %w", nodeClaim.Name, err))
		}
	}
	return errors.Join(errs...)
}

func stampOf(nodeClass *v1alpha1.BizflyNodeClass) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationNodeClassHash:        nodeClass.Hash(),
		v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
	}
}

// retries are never later than the next reconciliation would be: a back-off of up to 17 minutes would put off every
// step because of one.
var retries = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
	ttl.Conflict, ttl.NodeClassConditions)

// nodeClassOf maps a NodeClaim to its NodeClass, and to none where that is another provider's.
func nodeClassOf(_ context.Context, object client.Object) []reconcile.Request {
	ref := object.(*karpv1.NodeClaim).Spec.NodeClassRef
	if !v1alpha1.IsOurs(ref) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: ref.Name}}}
}

// Register adds the controller to the manager. The last NodeClaim's deletion frees the NodeClass at once.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(nodeClassOf),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false },
				UpdateFunc: func(event.UpdateEvent) bool { return false },
			})).
		WithOptions(controller.Options{RateLimiter: retries}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
