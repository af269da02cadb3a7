// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unpaid keeps silent nodes from repair and disruption while the account is unpaid, and starts their servers once it is paid.
// BizFly Cloud stops all servers of an account that it suspends, and accepts neither their reboot nor a replacement. Core would end a
// NodeClaim whose reboot is not accepted, and one whose pods were evicted.
package unpaid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Account says what is unpaid, and nothing where nothing is.
type Account interface {
	Unpaid(ctx context.Context) (string, error)
}

// Servers starts servers that are stopped.
type Servers interface {
	Get(ctx context.Context, id string) (*instance.Instance, error)
	Reboot(ctx context.Context, id, operationID string) error
}

// kept are the annotations that keep core from a node.
var kept = []string{karpv1.DoNotRepairAnnotationKey, karpv1.DoNotDisruptAnnotationKey}

// Controller annotates nodes, and starts their servers.
type Controller struct {
	kubeClient client.Client
	account    Account
	servers    Servers
	recorder   karpevents.Recorder
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, account Account, servers Servers, recorder karpevents.Recorder) *Controller {
	return &Controller{kubeClient: kubeClient, account: account, servers: servers, recorder: recorder}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.unpaid" }

// Reconcile brings the annotations of a node in line with its kubelet and the account. Nothing changes while the account cannot be asked,
// nor before a server that was stopped is started.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !silent(node) {
		return c.release(ctx, node)
	}
	again := reconcile.Result{RequeueAfter: ttl.Account}
	unpaid, err := c.account.Unpaid(ctx)
	switch {
	case err != nil:
		return again, nil //nolint:nilerr // it is asked again, and counted by the metric of requests
	case unpaid != "":
		again, err = c.keep(ctx, node)
	case lo.HasKey(node.Annotations, v1alpha1.AnnotationUnpaid):
		if err := c.start(ctx, node); err != nil {
			c.recorder.Publish(events.ServerNotStarted(node, err))
			return again, nil
		}
		again, err = c.release(ctx, node)
	}
	again.RequeueAfter = lo.CoalesceOrEmpty(again.RequeueAfter, ttl.Account)
	return again, err
}

// start starts the server of a node, where it is stopped. Core's repair does not, while many nodes of a NodePool are silent.
// What a user keeps from repair, or what ends anyway, stays as it is.
func (c *Controller) start(ctx context.Context, node *corev1.Node) error {
	id, ok := providerid.Parse(node.Spec.ProviderID)
	if !ok || !node.DeletionTimestamp.IsZero() || !slices.Contains(written(node), karpv1.DoNotRepairAnnotationKey) {
		return nil
	}
	server, err := c.servers.Get(ctx, id)
	if errors.Is(err, instance.ErrNotFound) || err == nil && !server.Stopped() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading server %s: %w", id, err)
	}
	// Once for each time that the kubelet fell silent.
	since := nodeutils.GetCondition(node, corev1.NodeReady).LastTransitionTime
	return c.servers.Reboot(ctx, id, fmt.Sprintf("%s-unpaid-%d", node.UID, since.Unix()))
}

// written are the annotations that this provider has written, which the one beside them lists. Others are a user's.
func written(node *corev1.Node) []string {
	return lo.Compact(strings.Split(node.Annotations[v1alpha1.AnnotationUnpaid], ","))
}

// keep adds the annotations that neither a user nor a closed zone has written. That of a closed zone goes when it is opened.
func (c *Controller) keep(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	missing := lo.Reject(kept, func(key string, _ int) bool { return lo.HasKey(node.Annotations, key) })
	if len(missing) == 0 {
		return reconcile.Result{}, nil
	}
	stored := node.DeepCopy()
	node.Annotations = lo.Assign(node.Annotations, map[string]string{v1alpha1.AnnotationUnpaid: strings.Join(lo.Union(written(node), missing), ",")},
		lo.SliceToMap(missing, func(key string) (string, string) { return key, "true" }))
	return controllers.AfterLocked(c.kubeClient.Patch(ctx, node, controllers.Locked(stored)))
}

// release removes what keep has added.
func (c *Controller) release(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	if !lo.HasKey(node.Annotations, v1alpha1.AnnotationUnpaid) {
		return reconcile.Result{}, nil
	}
	stored := node.DeepCopy()
	node.Annotations = lo.OmitByKeys(node.Annotations, append(written(node), v1alpha1.AnnotationUnpaid))
	return controllers.AfterLocked(c.kubeClient.Patch(ctx, node, controllers.Locked(stored)))
}

// silent reports whether the kubelet does not report.
func silent(node *corev1.Node) bool {
	return nodeutils.GetCondition(node, corev1.NodeReady).Status == corev1.ConditionUnknown
}

// ours reports whether the node is of a NodePool of this provider.
func ours(o client.Object) bool { return lo.HasKey(o.GetLabels(), cloudprovider.NodeClassLabel) }

// changed passes the updates after which a kubelet is silent, or not any more: it reports every few seconds.
var changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return silent(e.ObjectOld.(*corev1.Node)) != silent(e.ObjectNew.(*corev1.Node))
}}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(ours), changed)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
