// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hash stamps each BizflyNodeClass with the hash of what cannot change on a running server. NodeClaims carry the
// stamp that their NodeClass had when they were launched; a difference is drift.
package hash

import (
	"context"
	"errors"
	"fmt"

	"github.com/samber/lo"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller is nodeclass.hash.
type Controller struct {
	kubeClient client.Client
}

// NewController returns the controller.
func NewController(kubeClient client.Client) *Controller { return &Controller{kubeClient: kubeClient} }

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.hash" }

// Reconcile stamps one NodeClass and, when the hash function has changed since it was last stamped, first its NodeClaims.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// NodeClaims come first: if this ends halfway, the old version on the NodeClass makes the next run continue.
	if nodeClass.Annotations[v1alpha1.AnnotationNodeClassHashVersion] != v1alpha1.NodeClassHashVersion {
		if err := c.restamp(ctx, nodeClass); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := c.stamp(ctx, nodeClass, stampOf(nodeClass)); err != nil {
		return reconcile.Result{}, fmt.Errorf("stamping the NodeClass: %w", err)
	}
	return reconcile.Result{}, nil
}

// restamp gives the NodeClaims of a NodeClass hashes of the new version, since those of another version prove nothing: an
// upgrade of the controller must not roll a single node. A NodeClaim that has drifted already keeps its old hash, so that it
// stays drifted.
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
		if err := c.stamp(ctx, nodeClaim, annotations); err != nil {
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

// stamp writes annotations where they differ. An object that is gone needs none.
func (c *Controller) stamp(ctx context.Context, object client.Object, annotations map[string]string) error {
	if lo.EveryBy(lo.Entries(annotations), func(e lo.Entry[string, string]) bool { return object.GetAnnotations()[e.Key] == e.Value }) {
		return nil
	}
	stored := object.DeepCopyObject().(client.Object)
	object.SetAnnotations(lo.Assign(object.GetAnnotations(), annotations))
	return client.IgnoreNotFound(c.kubeClient.Patch(ctx, object, client.MergeFrom(stored)))
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
