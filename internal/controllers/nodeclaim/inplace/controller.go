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

// Package inplace gives running servers what their NodeClass says where that needs no new server: firewalls and the network
// plan. And it gives a server its name back that somebody renamed, since others find it by its name.
package inplace

import (
	"context"
	"errors"
	"time"

	"github.com/samber/lo"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// lookInterval is how often a server's name is looked at; all claims share one list of the servers.
	lookInterval = 2 * time.Minute
	// perSecond and burst bound how many servers are changed: a NodeClass of a thousand nodes must not take the calls from
	// launches.
	perSecond   = 1
	burst       = 5
	concurrency = 5
)

// Controller is nodeclaim.inplace.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock
	limiter    *rate.Limiter
}

// NewController makes a Controller.
func NewController(kubeClient client.Client, instances instance.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, recorder: recorder, clock: clk, limiter: rate.NewLimiter(perSecond, burst)}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclaim.inplace" }

// Reconcile brings the server of a claim to what its NodeClass says.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	again := reconcile.Result{RequeueAfter: lookInterval}
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	servers, err := c.instances.Snapshot(ctx, ttl.PeriodicServers)
	if err != nil {
		return reconcile.Result{}, err
	}
	server := servers.Get(id)
	if server == nil || server.NodeClaimUID != string(claim.UID) || server.Status != instance.StatusActive {
		// What is not there, still being built or stopped is somebody else's business for now.
		return again, nil
	}
	steps, err := c.due(ctx, claim, server)
	if err != nil || len(steps) == 0 {
		return again, err
	}
	if delay := c.delay(); delay > 0 {
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	for _, step := range steps {
		switch conflict, err := step(ctx); {
		case conflict:
			return reconcile.Result{RequeueAfter: time.Second}, nil
		case errors.Is(err, instance.ErrNotFound):
			return again, nil
		case err != nil:
			c.recorder.Publish(events.ServerUpdateFailed(claim, err))
			return reconcile.Result{}, err
		}
	}
	return again, nil
}

// delay takes one turn, or says how long to wait for one.
func (c *Controller) delay() time.Duration {
	now := c.clock.Now()
	turn := c.limiter.ReserveN(now, 1)
	delay := turn.DelayFrom(now)
	if delay > 0 {
		turn.CancelAt(now)
	}
	return delay
}

// step is something to do to a server; it says whether the claim has changed meanwhile.
type step func(ctx context.Context) (conflict bool, err error)

// due returns what is to be done to the server.
func (c *Controller) due(ctx context.Context, claim *karpv1.NodeClaim, server *instance.Instance) ([]step, error) {
	intent, err := cloudprovider.IntentOf(claim)
	if err != nil {
		intent = nil // What nobody can read says nothing about names and firewalls.
	}
	var steps []step
	if name := nameOf(claim, intent); name != "" && server.Name != name {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			if err := c.instances.Rename(ctx, server.ID, name); err != nil {
				return false, err
			}
			c.recorder.Publish(events.ServerRenamed(claim, name, server.Name))
			return false, nil
		})
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		return steps, client.IgnoreNotFound(err)
	}
	if !resolved(nodeClass) || claim.Annotations[v1alpha1.AnnotationInPlaceHash] == nodeClass.InPlaceHash() {
		return steps, nil
	}
	u := &update{Controller: c, claim: claim, server: server, nodeClass: nodeClass, intent: intent}
	if !u.planChanges() && !u.firewallsChange() {
		// What the server was ordered with is still what is wanted, so nothing is sent and no turn is needed.
		_, err := u.succeeded(ctx, nil)
		return steps, err
	}
	return append(steps, u.run), nil
}

// nameOf is the name that the server was ordered with, which is the node's.
func nameOf(claim *karpv1.NodeClaim, intent *instance.Intent) string {
	if intent != nil {
		return intent.Name
	}
	return claim.Status.NodeName
}

// resolved says that the status of a NodeClass is what its spec means.
func resolved(nodeClass *v1alpha1.BizflyNodeClass) bool {
	ready := nodeClass.StatusConditions().Root()
	return nodeClass.DeletionTimestamp.IsZero() && ready.IsTrue() && ready.ObservedGeneration == nodeClass.Generation
}

// annotate writes annotations of the claim, and goes on with what was written.
func (c *Controller) annotate(ctx context.Context, claim *karpv1.NodeClaim, annotations map[string]string) (conflict bool, err error) {
	stored := claim.DeepCopy()
	claim.Annotations = lo.Assign(claim.Annotations, annotations)
	err = c.kubeClient.Patch(ctx, claim, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return true, nil
	}
	return false, client.IgnoreNotFound(err)
}

// Register adds the controller to the manager. A NodeClass whose firewalls or network plan have changed is carried out at
// once.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return cloudprovider.IsManaged(o.(*karpv1.NodeClaim))
		}))).
		Watches(&v1alpha1.BizflyNodeClass{}, handler.EnqueueRequestsFromMapFunc(c.claimsOf), builder.WithPredicates(changed())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
