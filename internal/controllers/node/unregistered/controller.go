// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unregistered taints new nodes, which keeps pods off them until core has given them their labels and taints.
// Core asks kubelets to register with the taint karpenter.sh/unregistered, but BKE's worker image takes no taints. Its
// nodes do register with the taint of the external cloud provider, under which hardly anything runs, and keep it for
// the seconds that the cloud controller manager needs: in that time this controller adds core's taint, which core takes
// away when it registers the node. The node of a server that comes up after its NodeClaim has ended gets it too, and
// keeps it: no pod lands there before garbage collection deletes the server.
package unregistered

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// concurrency is enough for hundreds of nodes that register at once.
const concurrency = 10

// Controller adds core's taint to new nodes.
type Controller struct {
	kubeClient client.Client
	clusterUID string
}

// NewController returns a Controller. Names of nodes prove themselves by the cluster's UID.
func NewController(kubeClient client.Client, clusterUID string) *Controller {
	return &Controller{kubeClient: kubeClient, clusterUID: clusterUID}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "node.unregistered" }

// Reconcile adds the taint to a node that is being initialised, unless its NodeClaim has registered.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	server := instance.ProvenName(c.clusterUID, node.Name)
	if server == "" || !beingInitialised(node) {
		return reconcile.Result{}, nil
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	claim, found := lo.Find(claims.Items, func(claim karpv1.NodeClaim) bool {
		return claim.Status.NodeName == node.Name || launchedAs(&claim, server)
	})
	if found && (!cloudprovider.IsManaged(&claim) || controllers.IsTrue(&claim, karpv1.ConditionTypeRegistered)) {
		return reconcile.Result{}, nil
	}
	adds := map[string]any{"/spec/taints/-": karpv1.UnregisteredNoExecuteTaint}
	if found {
		// Core writes this label too, in a request of its own that this one spares it.
		adds[controllers.Pointer("metadata", "labels",
			karpv1.NodeClassLabelKey(claim.Spec.NodeClassRef.GroupKind()))] = claim.Spec.NodeClassRef.Name
	}
	// What is tested shows that core has not registered the node since: that would put the taint back, and nothing would
	// remove it.
	return controllers.AfterGuarded(c.kubeClient.Patch(ctx, node, controllers.Guard(map[string]any{
		"/metadata/labels": node.Labels, "/spec/taints": node.Spec.Taints,
	}, adds)), ttl.Conflict)
}

// beingInitialised reports whether neither the cloud controller manager nor core has processed the node yet.
func beingInitialised(node *corev1.Node) bool {
	_, registered := node.Labels[karpv1.NodeRegisteredLabelKey]
	has := func(key string) bool {
		return lo.ContainsBy(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
	}
	return !registered && node.DeletionTimestamp.IsZero() &&
		has(cloudproviderapi.TaintExternalCloudProvider) && !has(karpv1.UnregisteredTaintKey)
}

// launchedAs reports whether the NodeClaim's server was launched under this name, which is never used again. Only a
// launch record that contains the name is parsed, since each new node asks of all NodeClaims.
func launchedAs(claim *karpv1.NodeClaim, server string) bool {
	if !strings.Contains(claim.Annotations[v1alpha1.AnnotationLaunchIntent], server) {
		return false
	}
	intent, err := launch.ReadIntent(claim)
	return err == nil && intent != nil && intent.Name == server
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return beingInitialised(o.(*corev1.Node))
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
