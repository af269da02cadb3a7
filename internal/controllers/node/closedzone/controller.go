// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package closedzone keeps the nodes of zones that the tuning closes. Core leaves a node alone that has its annotation
// karpenter.sh/do-not-disrupt, so this controller writes it, beside one of its own that tells it from a user's. Both go when the zone opens.
package closedzone

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller annotates nodes.
type Controller struct{ kubeClient client.Client }

// NewController returns a Controller.
func NewController(kubeClient client.Client) *Controller { return &Controller{kubeClient: kubeClient} }

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.closedzone" }

// Reconcile brings the annotations of a node in line with its zone. Which zones are closed it reads from the status of the ProviderConfig: there
// they stand from the first moment of a process, before the ConfigMap has been read. One that is gone, or new and without a status, opens nothing.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	config := &v1alpha1.ProviderConfig{}
	if err := c.kubeClient.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the ProviderConfig: %w", err)
	}
	if len(config.Status.Conditions) == 0 {
		return reconcile.Result{}, nil
	}
	stored := node.DeepCopy()
	zone := node.Labels[corev1.LabelTopologyZone]
	closed := zone != "" && slices.Contains(options.ClosedZones(config.Status.Tuning), zone)
	kept := lo.HasKey(node.Annotations, v1alpha1.AnnotationClosedZone)
	switch {
	case closed && !lo.HasKey(node.Annotations, karpv1.DoNotDisruptAnnotationKey):
		node.Annotations = lo.Assign(node.Annotations, map[string]string{karpv1.DoNotDisruptAnnotationKey: "true", v1alpha1.AnnotationClosedZone: zone})
	case !closed && kept:
		delete(node.Annotations, karpv1.DoNotDisruptAnnotationKey)
		delete(node.Annotations, v1alpha1.AnnotationClosedZone)
	default:
		return reconcile.Result{}, nil
	}
	// Locked: a do-not-disrupt that a user has written meanwhile is the user's and stays when the zone is opened.
	return controllers.AfterLocked(c.kubeClient.Patch(ctx, node, controllers.Locked(stored)))
}

// ours reports whether the node is of a NodePool of this provider, or was kept while it was.
func ours(o client.Object) bool {
	return lo.HasKey(o.GetLabels(), cloudprovider.NodeClassLabel) || lo.HasKey(o.GetAnnotations(), v1alpha1.AnnotationClosedZone)
}

// nodes are all of ours: zones were closed or opened.
func (c *Controller) nodes(ctx context.Context, _ client.Object) []reconcile.Request {
	nodes := &corev1.NodeList{}
	if err := c.kubeClient.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing nodes") // of the cache, which does not fail once it has started
		return nil
	}
	return lo.FilterMap(nodes.Items, func(node corev1.Node, _ int) (reconcile.Request, bool) {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: node.Name}}, ours(&node)
	})
}

// changed passes those updates of a ProviderConfig that Reconcile reads: a login changes its status too, and would cost a reconcile of each node.
var changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.ProviderConfig).Status, e.ObjectNew.(*v1alpha1.ProviderConfig).Status
	return len(before.Conditions) == 0 && len(after.Conditions) > 0 ||
		!slices.Equal(options.ClosedZones(before.Tuning), options.ClosedZones(after.Tuning))
}}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.And(predicate.NewPredicateFuncs(ours),
			predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})))).
		Watches(&v1alpha1.ProviderConfig{}, handler.EnqueueRequestsFromMapFunc(c.nodes), builder.WithPredicates(changed)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
