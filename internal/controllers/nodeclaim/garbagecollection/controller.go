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

// Package garbagecollection deletes servers of this cluster that no NodeClaim accounts for: those of create requests whose
// answer was lost, and those that came up after their NodeClaim had ended. It also drives deletions that no caller polls.
package garbagecollection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// maxNames bounds the names in an event.
	maxNames = 10
)

// Reason is why a server was removed that no NodeClaim accounted for.
const Reason = "GarbageCollected"

// Config is how the garbage collector behaves.
type Config struct {
	// Settings are the active settings; nil means the defaults.
	Settings *options.Store
	// DryRun reports what would be deleted and deletes nothing.
	DryRun bool
}

// Controller is the garbage collector.
type Controller struct {
	config     Config
	kubeClient client.Client
	apiReader  client.Reader
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock

	// firstSeen is when a server was first seen whose age the cloud does not tell; only one pass runs at a time.
	firstSeen map[string]time.Time
}

// NewController returns a garbage collector. The reader must not be a cache: it decides that a claim does not exist.
func NewController(config Config, kubeClient client.Client, apiReader client.Reader, instances instance.Provider, recorder karpevents.Recorder,
	clk clock.Clock) *Controller {
	if config.Settings == nil {
		config.Settings = options.NewStore(nil)
	}
	return &Controller{config: config, kubeClient: kubeClient, apiReader: apiReader, instances: instances, recorder: recorder, clock: clk,
		firstSeen: map[string]time.Time{}}
}

// Name is the controller's name, which core's garbage collector must not share.
func (c *Controller) Name() string { return "server.garbagecollection" }

// Reconcile makes one pass.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	found, err := c.classify(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	if tooMany(len(found.orphans), found.total) {
		// One wrong answer may look like this; two in a row are the truth or a lasting loss of NodeClaims.
		if found, err = c.classify(ctx); err != nil {
			return reconciler.Result{}, err
		}
	}
	suspended, err := c.suspended(ctx, found)
	if err != nil {
		return reconciler.Result{}, err
	}
	orphanServers.Set(float64(len(found.orphans)), nil)
	suspendedGauge.Set(lo.Ternary(suspended, 1.0, 0), nil)
	for _, held := range found.held {
		c.recorder.Publish(events.ServerHeld(held.claim, held.server.ID, held.server.NodeClaimUID))
	}
	orphans := found.orphans
	switch {
	case suspended:
		log.FromContext(ctx).Info("garbage collection is suspended: too many servers with a registered node have no NodeClaim", "orphans", len(orphans), "servers",
			found.total)
		c.publish(ctx, events.GarbageCollectionSuspended(len(orphans), found.total, names(orphans)))
		orphans = nil
	case c.config.DryRun:
		for _, server := range orphans {
			log.FromContext(ctx).Info("would garbage collect a server without a NodeClaim (dry run)", "server", server.ID, "name", server.Name)
			c.publish(ctx, events.WouldGarbageCollect(server.Name, server.ID, server.NodeClaim))
		}
		orphans = nil
	}
	reaped, err := c.instances.ReconcileDeletions(ctx, instance.DeletionsRequest{DryRun: c.config.DryRun, Launching: found.launching,
		Orphans: lo.Map(orphans, func(s *instance.Instance, _ int) instance.DeleteRequest {
			return instance.DeleteRequest{ID: s.ID, Name: s.Name, Reason: Reason}
		})})
	for _, r := range reaped {
		err = multierr.Append(err, c.follow(ctx, r))
	}
	return reconciler.Result{RequeueAfter: c.config.Settings.Load().GarbageCollectionInterval}, err
}

// follow reports what became of one deletion, and deletes the Nodes of a server that has no NodeClaim: nothing else would.
func (c *Controller) follow(ctx context.Context, r instance.Deletion) error {
	collected := r.Reason == Reason && r.ID != ""
	switch {
	case errors.Is(r.Err, instance.ErrNotOurs):
		log.FromContext(ctx).Info("did not delete a server that is not provably this cluster's any more", "server", r.ID, "name", r.Name)
		return nil
	case errors.Is(r.Err, instance.ErrNotFound):
		if collected && !r.Repeated {
			c.publish(ctx, events.GarbageCollected(r.Name, r.ID))
			collectedTotal.Inc(nil)
		}
	case r.Err != nil:
		return fmt.Errorf("deleting server %s (%s): %w", r.Name, r.ID, r.Err)
	}
	if !collected || c.config.DryRun {
		return nil
	}
	return c.deleteNodes(ctx, r.ID)
}

// publish emits the event, and emits it on the ProviderConfig as well, which stands for the account that pays.
func (c *Controller) publish(ctx context.Context, event karpevents.Event) {
	c.recorder.Publish(event)
	config := &v1alpha1.ProviderConfig{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, config); err == nil {
		c.recorder.Publish(events.On(config, event))
	}
}

// deleteNodes deletes the Nodes of a server.
func (c *Controller) deleteNodes(ctx context.Context, id string) error {
	nodes := &corev1.NodeList{}
	if err := c.kubeClient.List(ctx, nodes, client.MatchingFields{"spec.providerID": providerid.New(id)}); err != nil {
		return fmt.Errorf("listing the nodes of server %s: %w", id, err)
	}
	var errs error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !node.DeletionTimestamp.IsZero() {
			continue
		}
		if err := c.kubeClient.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
			errs = multierr.Append(errs, fmt.Errorf("deleting node %s: %w", node.Name, err))
			continue
		}
		log.FromContext(ctx).Info("deleted the node of a server without a NodeClaim", "Node", klog.KObj(node), "server", id)
	}
	return errs
}

// Register adds the controller to the manager; only the leader runs it.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		WatchesRawSource(controllers.WhenChanged(c.config.Settings, func(o *options.Options) time.Duration { return o.GarbageCollectionInterval })).
		Complete(singleton.AsReconciler(c))
}
