// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection keeps nodes from voluntary disruption in a zone that is closed, and for the rest of an hour that is
// paid. It writes karpenter.sh/do-not-disrupt, which core respects, and beside it an annotation of our own with the
// reason, which tells it from a user's. Package unpaid does the same while the account is unpaid.
package protection

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller annotates nodes.
type Controller struct {
	kubeClient client.Client
	clock      clock.PassiveClock
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, clk clock.PassiveClock) *Controller {
	return &Controller{kubeClient: kubeClient, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.protection" }

// Reconcile brings the annotations of a node in line with what holds for it now. Settings are read from the status of the ProviderConfig: there
// they stand from the first moment of a process, before the ConfigMap has been read. One that is gone, or new and without a status, changes nothing.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	config := &v1alpha1.ProviderConfig{}
	if err := c.kubeClient.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the ProviderConfig: %w", err)
	}
	if len(config.Status.Conditions) == 0 || !node.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	settings := options.Protection(config.Status.Tuning)
	created, err := c.created(ctx, node, settings)
	if err != nil {
		return reconcile.Result{}, err
	}
	why, changes := decide(facts{
		now: c.clock.Now(), zone: node.Labels[corev1.LabelTopologyZone], closedZones: settings.ClosedZones,
		created: created, period: settings.BillingPeriod, window: settings.BillingWindow,
	})
	stored := node.DeepCopy()
	written := node.Annotations[v1alpha1.AnnotationDoNotDisruptReason]
	users := written == "" && lo.HasKey(node.Annotations, karpv1.DoNotDisruptAnnotationKey)
	switch {
	case why == written || why != "" && users:
		return reconcile.Result{RequeueAfter: changes}, nil
	case why == "":
		delete(node.Annotations, karpv1.DoNotDisruptAnnotationKey)
		delete(node.Annotations, v1alpha1.AnnotationDoNotDisruptReason)
	default:
		node.Annotations = lo.Assign(node.Annotations, map[string]string{karpv1.DoNotDisruptAnnotationKey: "true", v1alpha1.AnnotationDoNotDisruptReason: why})
	}
	// Locked: a do-not-disrupt that a user has written meanwhile is the user's and stays.
	result, err := controllers.AfterLocked(c.kubeClient.Patch(ctx, node, controllers.Locked(stored)))
	result.RequeueAfter = lo.CoalesceOrEmpty(result.RequeueAfter, changes)
	return result, err
}

// created is when the node's server began to cost money, by our own clock; zero where hours do not count, or no NodeClaim says it.
func (c *Controller) created(ctx context.Context, node *corev1.Node, settings *options.Options) (time.Time, error) {
	if settings.BillingPeriod <= settings.BillingWindow {
		return time.Time{}, nil
	}
	claim, err := nodeutils.NodeClaimForNode(ctx, c.kubeClient, node)
	switch {
	case nodeutils.IgnoreDuplicateNodeClaimError(nodeutils.IgnoreNodeClaimNotFoundError(err)) != nil:
		return time.Time{}, fmt.Errorf("reading the NodeClaim of node %s: %w", node.Name, err)
	case claim == nil:
		return time.Time{}, nil
	}
	// An unreadable record leaves the NodeClaim's age, which is a few seconds more than the server's.
	return lo.CoalesceOrEmpty(launch.IntentOf(claim).RequestedAt, claim.CreationTimestamp.Time), nil
}

// ours reports whether the node is of a NodePool of this provider, or was protected while it was.
func ours(o client.Object) bool {
	return lo.HasKey(o.GetLabels(), cloudprovider.NodeClassLabel) || lo.HasKey(o.GetAnnotations(), v1alpha1.AnnotationDoNotDisruptReason)
}

// nodes are all of ours: a setting has changed.
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
		!reflect.DeepEqual(options.Protection(before.Tuning), options.Protection(after.Tuning))
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
