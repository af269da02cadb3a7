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

// Package launch follows servers from their create request until their node has registered. A NodeClaim whose server failed or
// vanished is replaced within seconds instead of after core's registration timeout of 15 minutes. The join token of a server is
// revoked as soon as its node has registered or its NodeClaim is deleted; Kubernetes' garbage collector deletes it with the
// NodeClaim, and its expiration ends it, where a restart of this controller came between.
package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// statusGone is the status of a server that does not exist any more.
	statusGone = "GONE"
	// concurrency is enough for hundreds of launches, since a check costs nothing but the shared list.
	concurrency = 10
)

// Controller follows launches.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	outcomes   *cloudprovider.CloudProvider
	tokens     jointoken.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock

	// followed are the NodeClaims by UID that were seen between launch and registration: only of those is it known here that
	// they have just registered.
	followed sync.Map
}

// NewController returns a Controller. tokens is nil without join tokens.
func NewController(kubeClient client.Client, instances instance.Provider, outcomes *cloudprovider.CloudProvider, tokens jointoken.Provider,
	recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, outcomes: outcomes, tokens: tokens, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.launch" }

// Reconcile checks the server of a NodeClaim that was launched and has not registered.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !claim.DeletionTimestamp.IsZero() || controllers.IsTrue(claim, karpv1.ConditionTypeRegistered) {
		return reconcile.Result{}, c.ended(ctx, claim)
	}
	if !controllers.IsTrue(claim, karpv1.ConditionTypeLaunched) {
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
	if age := c.clock.Since(claim.CreationTimestamp.Time); server.Status == instance.StatusBuild && age > ttl.SlowBuild {
		c.recorder.Publish(events.LaunchSlow(claim, server.Name, server.Status, age))
	}
	return reconcile.Result{RequeueAfter: ttl.LaunchPoll}, nil
}

// ended revokes the join token, which is a way into the cluster, and reports a launch that was followed to its end: the node
// has registered, core has waited for it in vain, or the NodeClaim was deleted for another reason.
func (c *Controller) ended(ctx context.Context, claim *karpv1.NodeClaim) error {
	if _, followed := c.followed.LoadAndDelete(claim.UID); followed {
		c.conclude(ctx, claim)
	}
	if c.tokens == nil {
		return nil
	}
	return c.tokens.Revoke(ctx, string(claim.UID))
}

func (c *Controller) conclude(ctx context.Context, claim *karpv1.NodeClaim) {
	intent, err := cloudprovider.IntentOf(claim)
	if err != nil || intent == nil {
		return
	}
	registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
	switch {
	case registered.IsTrue():
		c.outcomes.LaunchSucceeded(ctx, claim, *intent, registered.LastTransitionTime.Sub(intent.RequestedAt))
	case claim.DeletionTimestamp.Sub(registered.LastTransitionTime.Time) >= ttl.Registration:
		c.outcomes.LaunchFailed(ctx, claim, *intent, cloudprovider.ErrNotRegistered)
	}
	c.outcomes.LaunchEnded(claim)
}

// vanished replaces a NodeClaim whose server provably does not exist. One that is only missing from a list, or is being
// deleted, is checked again. BizFly Cloud also removes servers that it failed to build, so this counts as a failed launch: the
// next one would meet the same offering.
func (c *Controller) vanished(ctx context.Context, claim *karpv1.NodeClaim, id string) (reconcile.Result, error) {
	_, err := c.instances.Get(ctx, id)
	if err == nil {
		return reconcile.Result{RequeueAfter: ttl.LaunchPoll}, nil
	}
	if !errors.Is(err, instance.ErrNotFound) {
		return reconcile.Result{}, fmt.Errorf("getting server %s: %w", id, err)
	}
	return c.failed(ctx, claim, &instance.Instance{
		Name: id, Status: statusGone, Flavor: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone],
	})
}

// failed finds out why the server failed and replaces the NodeClaim, whose deletion deletes the server.
func (c *Controller) failed(ctx context.Context, claim *karpv1.NodeClaim, server *instance.Instance) (reconcile.Result, error) {
	intent := instance.Intent{Name: server.Name, Flavor: server.Flavor, Zone: server.Zone, BillingPlan: server.BillingPlan}
	if written, err := cloudprovider.IntentOf(claim); err == nil && written != nil {
		intent = *written
	}
	cause := c.instances.FailureReason(ctx, intent)
	if server.Status == statusGone {
		cause = fmt.Errorf("the server does not exist any more: %w", cause)
	}
	// If the NodeClaim has changed since, for example because its node has registered after all, it is checked again.
	err := c.kubeClient.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	if result, err := controllers.Patched(err); err != nil || result.RequeueAfter != 0 {
		return result, err
	}
	reason := c.outcomes.LaunchFailed(ctx, claim, intent, cause)
	log.FromContext(ctx).Info("replaced a NodeClaim whose server failed", "server", claim.Status.ProviderID, "reason", reason, "cause", cause.Error())
	return reconcile.Result{}, nil
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllers.NodeClaims(m, c.Name(), concurrency, func(claim *karpv1.NodeClaim) bool {
		return controllers.IsTrue(claim, karpv1.ConditionTypeLaunched)
	}).Complete(reconcile.AsReconciler(m.GetClient(), c))
}
