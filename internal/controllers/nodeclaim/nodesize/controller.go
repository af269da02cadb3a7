// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodesize learns from NodeClaims what the flavor provider must know: which flavors are in use, and from
// registered nodes how much of a flavor their kubelets see and leave to pods. A new process learns it again from the
// nodes that exist.
package nodesize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Controller learns from nodes.
type Controller struct {
	kubeClient client.Client
	flavors    *flavor.DefaultProvider
	recorder   karpevents.Recorder
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, flavors *flavor.DefaultProvider,
	recorder karpevents.Recorder) *Controller {
	return &Controller{kubeClient: kubeClient, flavors: flavors, recorder: recorder}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.nodesize" }

// Reconcile learns from the node of a registered NodeClaim. It runs for each of them when the controller starts, too.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	c.flavors.Use(claim)
	if !hasNode(claim) {
		return reconcile.Result{}, nil
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// A node of an earlier image or spec says nothing about those that are launched now. The annotation of a NodeClass
	// follows its spec a moment later.
	if nodeClass.Status.ImageID() != claim.Status.ImageID ||
		nodeClass.Hash() != claim.Annotations[v1alpha1.AnnotationNodeClassHash] {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.flavors.Observe(ctx, nodeClass, claim, node) {
		c.recorder.Publish(events.NodeSmallerThanPlanned(claim, node))
	}
	return reconcile.Result{}, nil
}

// hasNode reports whether the NodeClaim has a node from which something can be learned.
func hasNode(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp.IsZero() && claim.Status.NodeName != "" && claim.Status.ImageID != "" &&
		claim.Labels[corev1.LabelInstanceTypeStable] != "" && controllers.IsTrue(claim, karpv1.ConditionTypeRegistered)
}

// Register adds the controller to the manager. One at a time is enough, since only the first nodes of a flavor have
// anything new to say, and does not conflict with itself.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	relevant := func(claim *karpv1.NodeClaim) watched {
		return watched{
			node: hasNode(claim), flavor: claim.Labels[corev1.LabelInstanceTypeStable],
			initialized: controllers.IsTrue(claim, karpv1.ConditionTypeInitialized),
			hash:        claim.Annotations[v1alpha1.AnnotationNodeClassHash],
		}
	}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(controllers.Managed(relevant))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// watched is what Reconcile reads of a NodeClaim. The kubelet reports all of its resources when the node is
// initialized.
type watched struct {
	node, initialized bool
	flavor, hash      string
}
