/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package jointoken takes a server's join token away as soon as its node has registered or its claim is being deleted, so
// that the token is no way into the cluster for longer than it takes to join. Kubernetes' garbage collector takes it away
// with the claim, and its expiration ends it, where a restart of this controller came between.
package jointoken

import (
	"context"

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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
)

// concurrency is enough for hundreds of nodes that register at once.
const concurrency = 10

// Controller is nodeclaim.jointoken.
type Controller struct {
	kubeClient client.Client
	tokens     jointoken.Provider
}

// NewController makes the controller.
func NewController(kubeClient client.Client, tokens jointoken.Provider) *Controller {
	return &Controller{kubeClient: kubeClient, tokens: tokens}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclaim.jointoken" }

// Reconcile revokes the tokens of a claim that needs none any more. One that has none costs nothing.
func (c *Controller) Reconcile(ctx context.Context, nodeClaim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !over(nodeClaim) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.tokens.Revoke(ctx, string(nodeClaim.UID))
}

// over says whether the claim's server has joined or never will.
func over(nodeClaim *karpv1.NodeClaim) bool {
	return !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			nodeClaim := o.(*karpv1.NodeClaim)
			return cloudprovider.IsManaged(nodeClaim) && over(nodeClaim)
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
