// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nominated keeps nodes that kube-scheduler has chosen for pods which it has not bound yet. Since Kubernetes
// 1.35 it names the node in the pod's status while a volume is created. Core then neither plans the pod nor counts it
// on the node, which it would delete as an empty one.
package nominated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// Controller nominates the nodes of pods in core's state of the cluster, as core does for the pods that it plans.
type Controller struct {
	kubeClient client.Client
	cluster    *state.Cluster
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, cluster *state.Cluster) *Controller {
	return &Controller{kubeClient: kubeClient, cluster: cluster}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.nominated" }

// Reconcile nominates the node, again and again until the pod is bound: a nomination ends by itself.
func (c *Controller) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !waits(pod) {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := c.kubeClient.Get(ctx, types.NamespacedName{Name: pod.Status.NominatedNodeName},
		node); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the node: %w", err)
	}
	c.cluster.NominateNodeForPod(ctx, node.Spec.ProviderID) // none, or not one of Karpenter's, nominates nothing
	return reconcile.Result{RequeueAfter: ttl.Nominated}, nil
}

// waits reports whether kube-scheduler has chosen a node for the pod and not bound it yet. Pods of DaemonSets keep no
// node, as in core.
func waits(pod *corev1.Pod) bool {
	return podutils.IsPreempting(pod) && !podutils.IsScheduled(pod) && podutils.IsActive(pod) &&
		!podutils.IsOwnedByDaemonSet(pod)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return waits(o.(*corev1.Pod))
		}))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
