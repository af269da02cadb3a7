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

// Package garbagecollection deletes servers of this cluster that no claim accounts for: those of orders whose answer was
// lost, and those that came up after their claim was given up.
package garbagecollection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/interval"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// workers bounds parallel deletions; the adapter limits their rate.
	workers = 10
	// maxNames bounds the names in an event.
	maxNames = 10
)

// Reason is why a server was removed that no NodeClaim accounted for.
const Reason = "GarbageCollected"

// Config is how the garbage collector behaves.
type Config struct {
	// Settings are the active settings; nil means the defaults.
	Settings *options.Store
	// Expected says of a claim's UID that its server is known to have been left behind, so that many of them at once are
	// no reason for doubt; nil means that none is. *cloudprovider.CloudProvider.GivenUp is one.
	Expected func(nodeClaimUID string) bool
	// DryRun tells what would be deleted and deletes nothing.
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

	mu sync.Mutex
	// firstSeen is when a server was first seen whose age the cloud does not tell.
	firstSeen map[string]time.Time
	// deleting is the servers whose deletion was begun here and is not proven yet, with their names.
	deleting map[string]string
}

// NewController makes a garbage collector. The reader must not be a cache: it decides that a claim does not exist.
func NewController(config Config, kubeClient client.Client, apiReader client.Reader, instances instance.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	if config.Settings == nil {
		config.Settings = options.NewStore(nil)
	}
	if config.Expected == nil {
		config.Expected = func(string) bool { return false }
	}
	return &Controller{config: config, kubeClient: kubeClient, apiReader: apiReader, instances: instances, recorder: recorder, clock: clk,
		firstSeen: map[string]time.Time{}, deleting: map[string]string{}}
}

// Name is the controller's name, which core's garbage collector must not share.
func (c *Controller) Name() string { return "nodeclaim.garbagecollection.bizflycloud" }

// Reconcile makes one pass.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	orphans, total, err := c.verdict(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	if c.doubtful(orphans, total) {
		// One bad answer may look like this; two in a row are the truth or a lasting loss of NodeClaims.
		if orphans, total, err = c.verdict(ctx); err != nil {
			return reconciler.Result{}, err
		}
	}
	suspended := c.doubtful(orphans, total) && !c.explained(ctx, orphans, total)
	orphanServers.Set(float64(len(orphans)), nil)
	suspendedGauge.Set(lo.Ternary(suspended, 1.0, 0), nil)
	if suspended {
		log.FromContext(ctx).Info("garbage collection is suspended: too many servers have no claim", "orphans", len(orphans), "servers", total)
		c.recorder.Publish(events.GarbageCollectionSuspended(len(orphans), total, names(orphans)))
		orphans = nil
	}
	if c.config.DryRun {
		for _, server := range orphans {
			log.FromContext(ctx).Info("would garbage collect a server without a claim (dry run)", "server", server.ID, "name", server.Name)
			c.recorder.Publish(events.WouldGarbageCollect(server.Name, server.ID, server.NodeClaim))
		}
		orphans = nil
	}
	err = multierr.Append(c.collect(ctx, orphans), c.instances.Reap(ctx, instance.ReapRequest{DryRun: c.config.DryRun, Claims: c.claims}))
	return reconciler.Result{RequeueAfter: c.config.Settings.Load().GarbageCollectionInterval}, err
}

// collect deletes the orphans, and goes on with what earlier passes began until the cloud says that it is gone.
func (c *Controller) collect(ctx context.Context, orphans []*instance.Instance) error {
	c.mu.Lock()
	for _, server := range orphans {
		c.deleting[server.ID] = server.Name
	}
	ids := make([]string, 0, len(c.deleting))
	for id := range c.deleting {
		ids = append(ids, id)
	}
	c.mu.Unlock()

	errs := make([]error, len(ids))
	workqueue.ParallelizeUntil(ctx, workers, len(ids), func(i int) { errs[i] = c.delete(ctx, ids[i]) })
	return multierr.Combine(errs...)
}

// delete deletes one server, and its Node if it has one: nothing else would, since it has no claim.
func (c *Controller) delete(ctx context.Context, id string) error {
	c.mu.Lock()
	name := c.deleting[id]
	c.mu.Unlock()

	err := c.instances.Delete(ctx, instance.DeleteRequest{ID: id, Name: name, Unclaimed: true, Reason: Reason})
	if errors.Is(err, instance.ErrNotOurs) {
		log.FromContext(ctx).Info("left a server alone that is not provably this cluster's any more", "server", id, "name", name)
		c.done(id)
		return nil
	}
	if errors.Is(err, instance.ErrNotFound) {
		c.recorder.Publish(events.GarbageCollected(name, id))
		collectedTotal.Inc(nil)
		c.done(id)
		return c.deleteNodes(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("deleting server %s (%s): %w", name, id, err)
	}
	return c.deleteNodes(ctx, id)
}

// done forgets a server.
func (c *Controller) done(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deleting, id)
	delete(c.firstSeen, id)
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
		log.FromContext(ctx).Info("deleted the node of a server without a claim", "Node", klog.KObj(node), "server", id)
	}
	return errs
}

// Register adds the controller to the manager; only the leader runs it.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		WatchesRawSource(interval.Source(c.config.Settings, func(o *options.Options) time.Duration { return o.GarbageCollectionInterval })).
		Complete(singleton.AsReconciler(c))
}
