// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package surplus counts nodes that were launched for pods, and to which none ever came.
package surplus

import (
	"context"
	"sync"
	"time"

	"github.com/samber/lo"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

var surplusTotal = metrics.Counter("karpenter_bizfly_surplus_nodes_total",
	"Nodes to which no pod was bound within 10 minutes, or until they were deleted before. Those of static NodePools "+
		"and buffers do not count.")

// Controller counts each NodeClaim once: it sees none whose time was over before its process led.
type Controller struct {
	kubeClient client.Client
	cluster    *state.Cluster
	recorder   karpevents.Recorder
	clock      clock.PassiveClock
	leads      sync.Once
	since      time.Time
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, cluster *state.Cluster, recorder karpevents.Recorder,
	clk clock.PassiveClock) *Controller {
	return &Controller{kubeClient: kubeClient, cluster: cluster, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.surplus" }

// Reconcile counts a NodeClaim when its time is over, or when it is deleted before.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	c.leads.Do(func() { c.since = c.clock.Now() })
	// Core writes LastPodEventTime when the first pod is bound that is not a DaemonSet's.
	if !controllers.IsTrue(claim, karpv1.ConditionTypeInitialized) || !claim.Status.LastPodEventTime.IsZero() {
		return reconcile.Result{}, nil
	}
	now, deleting := c.clock.Now(), !claim.DeletionTimestamp.IsZero()
	until := lo.FromPtr(claim.StatusConditions().Get(karpv1.ConditionTypeInitialized)).LastTransitionTime.Add(ttl.Surplus)
	switch early := now.Before(until); {
	case early && !deleting:
		return reconcile.Result{RequeueAfter: until.Sub(now)}, nil
	// What was deleted before is counted then, and comes again when its time is over.
	case !early && deleting, until.Before(c.since), c.cluster.HasBufferPods(claim.Status.ProviderID):
		return reconcile.Result{}, nil
	}
	pool := &karpv1.NodePool{}
	err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}, pool)
	if err == nil && pool.Spec.Replicas == nil {
		surplusTotal.Inc(nil)
		c.recorder.Publish(events.NodeWithoutPods(claim))
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	initialized := func(claim *karpv1.NodeClaim) bool { return controllers.IsTrue(claim, karpv1.ConditionTypeInitialized) }
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(controllers.Managed(initialized))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
