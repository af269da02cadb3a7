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

// Package launch follows servers from their order until their node has registered: one that failed or vanished is
// replaced within seconds instead of after core's registration timeout of 15 minutes.
package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// pollInterval is how often a launch is looked at; all launches share one list of the servers.
	pollInterval = 10 * time.Second
	// slowBuild is after what a server that is still being built is worth a word.
	slowBuild = 5 * time.Minute
	// registrationTimeout is core's, for a node to register; core deletes the NodeClaim then, and says nothing.
	registrationTimeout = 15 * time.Minute
	// statusGone is the status of a server that does not exist any more.
	statusGone = "GONE"
	// concurrency is enough for hundreds of launches, since a look costs nothing but the shared list.
	concurrency = 10
)

// FailureHandler draws the conclusions from a server that could not be built; *cloudprovider.CloudProvider is one.
type FailureHandler interface {
	// LaunchFailed marks the offering unavailable, counts the failure against the NodeClass, and returns the reason.
	LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, err error) (reason string)
	// LaunchSucceeded remembers that the node has registered, and how long that took since the create request.
	LaunchSucceeded(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, took time.Duration)
	// LaunchEnded tells that a NodeClaim ends before its node has registered.
	LaunchEnded(claim *karpv1.NodeClaim)
}

// Controller follows launches.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	failures   FailureHandler
	recorder   karpevents.Recorder
	clock      clock.Clock

	// followed are the claims by UID that were seen between launch and registration: only of those is it known here that
	// they have just registered.
	followed sync.Map
}

// NewController makes a Controller.
func NewController(kubeClient client.Client, instances instance.Provider, failures FailureHandler, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, failures: failures, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.launch.bizflycloud" }

// Reconcile looks at the server of a claim that was launched and has not registered.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !claim.DeletionTimestamp.IsZero() || claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
		if _, followed := c.followed.LoadAndDelete(claim.UID); followed {
			c.ended(ctx, claim)
		}
		return reconcile.Result{}, nil
	}
	if !claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).IsTrue() {
		return reconcile.Result{}, nil
	}
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok {
		return reconcile.Result{}, nil
	}
	c.followed.Store(claim.UID, struct{}{})
	servers, err := c.instances.Snapshot(ctx, 0)
	if err != nil {
		return reconcile.Result{}, err
	}
	server := servers.Get(id)
	switch {
	case server == nil || server.Deleting():
		return c.vanished(ctx, claim, id)
	case server.Failed():
		return c.failed(ctx, claim, server)
	}
	if age := c.clock.Since(claim.CreationTimestamp.Time); server.Status == instance.StatusBuild && age > slowBuild {
		c.recorder.Publish(events.LaunchSlow(claim, server.Name, server.Status, age))
	}
	return reconcile.Result{RequeueAfter: pollInterval}, nil
}

// ended draws the conclusions from a launch that was followed to its end: the node has registered, core has waited for it
// in vain, or something else has deleted the claim.
func (c *Controller) ended(ctx context.Context, claim *karpv1.NodeClaim) {
	intent, err := cloudprovider.IntentOf(claim)
	if err != nil || intent == nil {
		return
	}
	registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
	switch {
	case registered.IsTrue():
		c.failures.LaunchSucceeded(ctx, claim, *intent, registered.LastTransitionTime.Sub(intent.RequestedAt))
	case claim.DeletionTimestamp.Sub(registered.LastTransitionTime.Time) >= registrationTimeout:
		c.failures.LaunchFailed(ctx, claim, *intent, cloudprovider.ErrNotRegistered)
	}
	c.failures.LaunchEnded(claim)
}

// vanished replaces a claim whose server provably does not exist. One that is missing from a list alone, or on its way
// out, is looked at again. BizFly Cloud also removes servers that it could not build, so this counts as a failed launch:
// the next one would meet the same offering.
func (c *Controller) vanished(ctx context.Context, claim *karpv1.NodeClaim, id string) (reconcile.Result, error) {
	_, err := c.instances.Get(ctx, id)
	if err == nil {
		return reconcile.Result{RequeueAfter: pollInterval}, nil
	}
	if !errors.Is(err, instance.ErrNotFound) {
		return reconcile.Result{}, fmt.Errorf("getting server %s: %w", id, err)
	}
	return c.failed(ctx, claim, &instance.Instance{
		Name: id, Status: statusGone, Flavor: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone],
	})
}

// failed finds out why the server failed and replaces the claim, whose deletion deletes the server.
func (c *Controller) failed(ctx context.Context, claim *karpv1.NodeClaim, server *instance.Instance) (reconcile.Result, error) {
	intent := instance.Intent{Name: server.Name, Flavor: server.Flavor, Zone: server.Zone, BillingPlan: server.BillingPlan}
	if written, err := cloudprovider.IntentOf(claim); err == nil && written != nil {
		intent = *written
	}
	cause := c.instances.FailureReason(ctx, intent)
	if server.Status == statusGone {
		cause = fmt.Errorf("the server does not exist any more: %w", cause)
	}
	result, err := c.replace(ctx, claim)
	if err != nil || result.RequeueAfter != 0 {
		return result, err
	}
	reason := c.failures.LaunchFailed(ctx, claim, intent, cause)
	log.FromContext(ctx).Info("replacing a claim whose server failed", "server", claim.Status.ProviderID, "reason", reason, "cause", cause.Error())
	return reconcile.Result{}, nil
}

// replace deletes the claim as it was judged: if it has changed since, for example because its node has registered after
// all, it is judged again.
func (c *Controller) replace(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	err := c.kubeClient.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return cloudprovider.IsManaged(o.(*karpv1.NodeClaim))
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
