// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection keeps nodes from voluntary disruption in a zone that is closed, and for the rest of an hour that
// is paid, and silent nodes also from repair while the account is unpaid. It writes karpenter.sh/do-not-disrupt and
// do-not-repair, which core respects, and beside each an annotation of our own with the reason, which tells it from a
// user's.
package protection

import (
	"context"
	"fmt"
	"maps"
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
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller annotates nodes, and starts their servers once the account is paid.
type Controller struct {
	kubeClient client.Client
	clock      clock.PassiveClock
	account    Account
	servers    Servers
	recorder   karpevents.Recorder
}

// NewController returns a Controller.
func NewController(
	kubeClient client.Client, clk clock.PassiveClock, account Account, servers Servers, recorder karpevents.Recorder,
) *Controller {
	return &Controller{kubeClient: kubeClient, clock: clk, account: account, servers: servers, recorder: recorder}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.protection" }

// Reconcile brings the annotations of a node in line with what holds for it now.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// Core copies the annotations of the NodePool's template when it registers the node: one of them that is there already
	// would count as ours, and be removed with its reason.
	if !node.DeletionTimestamp.IsZero() || !lo.HasKey(node.Labels, karpv1.NodeRegisteredLabelKey) {
		return reconcile.Result{}, nil
	}
	settings, err := c.settings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	created, err := c.created(ctx, node, settings)
	if err != nil {
		return reconcile.Result{}, err
	}
	unpaid := c.unpaid(ctx, node)
	disrupt, changes := decide(facts{
		now: c.clock.Now(), zone: node.Labels[corev1.LabelTopologyZone], settings: settings,
		written: node.Annotations[v1alpha1.AnnotationDoNotDisruptReason], created: created, unpaid: unpaid,
	})
	if silent(node) {
		changes = ttl.Account
	}
	stored := node.DeepCopy()
	annotate(node, karpv1.DoNotDisruptAnnotationKey, v1alpha1.AnnotationDoNotDisruptReason, disrupt)
	annotate(node, karpv1.DoNotRepairAnnotationKey, v1alpha1.AnnotationDoNotRepairReason,
		lo.Ternary(unpaid, accountUnpaid, ""))
	if maps.Equal(node.Annotations, stored.Annotations) {
		return reconcile.Result{RequeueAfter: changes}, nil
	}
	// Locked: what a user has written meanwhile is the user's and stays.
	result, err := controllers.AfterLocked(c.kubeClient.Patch(ctx, node, controllers.Locked(stored)))
	result.RequeueAfter = lo.CoalesceOrEmpty(result.RequeueAfter, changes)
	return result, err
}

// annotate writes an annotation of core with its reason, or removes both without one. What has no reason beside it is a
// user's.
func annotate(node *corev1.Node, key, reasonKey, reason string) {
	written := node.Annotations[reasonKey]
	switch {
	case reason == written || written == "" && lo.HasKey(node.Annotations, key):
	case reason == "":
		delete(node.Annotations, key)
		delete(node.Annotations, reasonKey)
	default:
		node.Annotations = lo.Assign(node.Annotations, map[string]string{key: "true", reasonKey: reason})
	}
}

// settings are read from the status of the ProviderConfig: there they stand from the first moment of a process, before
// the ConfigMap has been read. Of one that is gone, or new and without a status, they are nil.
func (c *Controller) settings(ctx context.Context) (*options.Options, error) {
	config := &v1alpha1.ProviderConfig{}
	err := c.kubeClient.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading the ProviderConfig: %w", err)
	case len(config.Status.Conditions) == 0:
		return nil, nil
	}
	return options.Protection(config.Status.Tuning), nil
}

// created is when the node's server began to cost money, by our own clock; zero where hours do not count, or no
// NodeClaim says it.
func (c *Controller) created(ctx context.Context, node *corev1.Node, settings *options.Options) (time.Time, error) {
	if settings == nil || settings.BillingPeriod <= settings.BillingWindow {
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
	return lo.HasKey(o.GetLabels(), cloudprovider.NodeClassLabel) || lo.HasKey(o.GetAnnotations(),
		v1alpha1.AnnotationDoNotDisruptReason) ||
		lo.HasKey(o.GetAnnotations(), v1alpha1.AnnotationDoNotRepairReason)
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

// changed passes those updates of a ProviderConfig that Reconcile reads: a login changes its status too, and would cost
// a reconcile of each node.
var changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.ProviderConfig).Status, e.ObjectNew.(*v1alpha1.ProviderConfig).Status
	return len(before.Conditions) == 0 && len(after.Conditions) > 0 ||
		!reflect.DeepEqual(options.Protection(before.Tuning), options.Protection(after.Tuning))
}}

// fellSilent passes the updates after which a kubelet is silent, or not any more: it reports every few seconds.
var fellSilent = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return silent(e.ObjectOld.(*corev1.Node)) != silent(e.ObjectNew.(*corev1.Node))
}}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.And(predicate.NewPredicateFuncs(ours),
			predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, fellSilent)))).
		Watches(&v1alpha1.ProviderConfig{}, handler.EnqueueRequestsFromMapFunc(c.nodes), builder.WithPredicates(changed)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
