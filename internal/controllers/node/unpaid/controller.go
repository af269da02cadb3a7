// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unpaid keeps silent nodes from repair while the account is unpaid. BizFly Cloud stops all servers of an account that it suspends, and
// accepts neither their reboot nor a replacement. Core ends a NodeClaim whose reboot is not accepted within five minutes.
package unpaid

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Accounts says what the account of the credentials owes.
type Accounts interface {
	Account(ctx context.Context) (bizfly.Account, error)
}

// Controller annotates nodes.
type Controller struct {
	kubeClient client.Client
	accounts   Accounts
	clock      clock.PassiveClock

	// mu guards the last answer, which all silent nodes share.
	mu     sync.Mutex
	unpaid bool
	asked  time.Time
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, accounts Accounts, clk clock.PassiveClock) *Controller {
	return &Controller{kubeClient: kubeClient, accounts: accounts, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.unpaid" }

// Reconcile brings the annotations of a node in line with its kubelet and the account. Nothing changes while the account cannot be asked.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	kept := lo.HasKey(node.Annotations, v1alpha1.AnnotationUnpaid)
	if !silent(node) {
		return c.set(ctx, node, kept, false)
	}
	unpaid, err := c.isUnpaid(ctx)
	if err != nil {
		return reconcile.Result{RequeueAfter: ttl.Account}, nil //nolint:nilerr // it is asked again, and counted by the metric of requests
	}
	result, err := c.set(ctx, node, kept, unpaid)
	result.RequeueAfter = lo.CoalesceOrEmpty(result.RequeueAfter, ttl.Account)
	return result, err
}

// isUnpaid asks the account, at most once in a while.
func (c *Controller) isUnpaid(ctx context.Context) (bool, error) {
	c.mu.Lock()
	last, fresh := c.unpaid, !c.asked.IsZero() && c.clock.Since(c.asked) < ttl.Account
	c.mu.Unlock()
	if fresh {
		return last, nil
	}
	account, err := c.accounts.Account(ctx)
	if err != nil {
		return false, fmt.Errorf("asking the account whether it is unpaid: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unpaid, c.asked = account.Unpaid != "", c.clock.Now()
	return c.unpaid, nil
}

// set adds or removes both annotations. A do-not-repair without the one beside it is a user's.
func (c *Controller) set(ctx context.Context, node *corev1.Node, kept, keep bool) (reconcile.Result, error) {
	stored := node.DeepCopy()
	switch {
	case keep && !kept && !lo.HasKey(node.Annotations, karpv1.DoNotRepairAnnotationKey):
		node.Annotations = lo.Assign(node.Annotations, map[string]string{karpv1.DoNotRepairAnnotationKey: "true", v1alpha1.AnnotationUnpaid: "true"})
	case !keep && kept:
		delete(node.Annotations, karpv1.DoNotRepairAnnotationKey)
		delete(node.Annotations, v1alpha1.AnnotationUnpaid)
	default:
		return reconcile.Result{}, nil
	}
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
