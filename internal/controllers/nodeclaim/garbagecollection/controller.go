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
	"maps"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

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

	// firstSeen is when a server was first seen whose age the cloud does not return; only one pass runs at a time.
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
	c.recorder.Publish(found.held...)
	orphans := found.orphans
	switch {
	case suspended:
		log.FromContext(ctx).Info("garbage collection is suspended: too many servers with a registered node have no NodeClaim", "orphans", len(orphans), "servers",
			found.total)
		names := lo.Map(orphans, func(server *instance.Instance, _ int) string { return server.Name })
		c.publish(ctx, events.GarbageCollectionSuspended(found.total, names))
		orphans = nil
	case c.config.DryRun:
		for _, server := range orphans {
			log.FromContext(ctx).Info("would garbage collect a server without a NodeClaim (dry run)", "server", server.ID, "name", server.Name)
			c.publish(ctx, events.WouldGarbageCollect(server.Name, server.ID, server.NodeClaim))
		}
		orphans = nil
	}
	deletions, err := c.instances.ReconcileDeletions(ctx, instance.DeletionsRequest{DryRun: c.config.DryRun, Launching: found.launching, Orphans: orphans})
	for _, deletion := range deletions {
		err = multierr.Append(err, c.follow(ctx, deletion))
	}
	return reconciler.Result{RequeueAfter: c.config.Settings.Load().GarbageCollectionInterval}, err
}

// follow reports what became of one deletion, and deletes the Nodes of a server that has no NodeClaim: nothing else would.
func (c *Controller) follow(ctx context.Context, r instance.Deletion) error {
	collected := r.Reason == instance.ReasonGarbageCollected && r.ID != ""
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

// More orphans than both of these are doubted.
const (
	massCount = 5
	massShare = 0.5
)

var (
	orphanServers = metrics.Gauge("orphan_servers",
		"Servers of this cluster that no NodeClaim accounts for, at the last pass of the garbage collector.")
	suspendedGauge = metrics.Gauge("garbage_collection_suspended",
		"1 while so many servers with a registered node lack a NodeClaim that the garbage collector deletes none.")
	collectedTotal = metrics.Counter("garbage_collected_servers_total",
		"Servers without a NodeClaim that were deleted.")
)

// classification is what one pass has found.
type classification struct {
	// orphans are the servers that no NodeClaim accounts for, of total servers.
	orphans []*instance.Instance
	total   int
	// held are the events of servers that a NodeClaim with another UID than theirs accounts for.
	held []karpevents.Event
	// launching are the names of the servers that NodeClaims without a provider ID wait for.
	launching sets.Set[string]
}

// classify finds the servers that no NodeClaim accounts for. The cloud is read first: a server in the list was launched for
// a NodeClaim that existed before, so one that is absent afterwards has been deleted.
func (c *Controller) classify(ctx context.Context) (classification, error) {
	servers, err := c.instances.Snapshot(ctx, 0)
	if err != nil {
		return classification{}, err
	}
	maps.DeleteFunc(c.firstSeen, func(id string, _ time.Time) bool { return servers.Get(id) == nil })
	found := classification{total: len(servers.All()), launching: sets.New[string]()}
	byUID, byProviderID, err := c.claims(ctx, found.launching)
	if err != nil {
		return classification{}, err
	}
	for _, server := range servers.All() {
		if server.ClusterUID == "" || server.NodeClaimUID == "" {
			// Nothing proves that it is ours to delete.
			continue
		}
		claim, exists := byUID[server.NodeClaimUID]
		holder, held := byProviderID[providerid.New(server.ID)]
		switch {
		case held && (!exists || holder.UID != claim.UID):
			// A NodeClaim that was restored from a backup has a new UID, and the node of this server.
			found.held = append(found.held, events.ServerHeld(holder, server.ID, server.NodeClaimUID))
		case held, exists && claim.Status.ProviderID == "":
			// A NodeClaim that has no server yet may be about to get this one.
		case c.age(server) >= c.config.Settings.Load().GarbageCollectionGrace:
			found.orphans = append(found.orphans, server)
		}
	}
	return found, nil
}

// claims returns the NodeClaims by UID and by provider ID, and adds the names of the servers that are being launched.
func (c *Controller) claims(ctx context.Context, launching sets.Set[string]) (byUID, byProviderID map[string]*karpv1.NodeClaim, err error) {
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return nil, nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	byUID, byProviderID = map[string]*karpv1.NodeClaim{}, map[string]*karpv1.NodeClaim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		byUID[string(claim.UID)] = claim
		if claim.Status.ProviderID != "" {
			byProviderID[claim.Status.ProviderID] = claim
		} else if intent, err := cloudprovider.IntentOf(claim); err == nil && intent != nil {
			launching.Insert(intent.Name)
		}
	}
	return byUID, byProviderID, nil
}

// age is how long the server has existed, or has been seen where the cloud does not say since when it exists. A time in
// the future says nothing either: one of the two clocks is wrong, or the cloud wrote its local time.
func (c *Controller) age(server *instance.Instance) time.Duration {
	if age := c.clock.Since(server.CreatedAt); !server.CreatedAt.IsZero() && age >= 0 {
		return age
	}
	if _, seen := c.firstSeen[server.ID]; !seen {
		c.firstSeen[server.ID] = c.clock.Now()
	}
	return c.clock.Since(c.firstSeen[server.ID])
}

// suspended reports whether so many orphans have a registered node that lost NodeClaims are more likely than lost servers. A
// node registers only once its NodeClaim holds the server's id; a server that no NodeClaim ever held has none, and many of
// those at once are what an outage leaves behind. Servers whose deletion is under way count no more.
func (c *Controller) suspended(ctx context.Context, found classification) (bool, error) {
	if !tooMany(len(found.orphans), found.total) {
		return false, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.apiReader.List(ctx, nodes, client.HasLabels{karpv1.NodeRegisteredLabelKey}); err != nil {
		return false, fmt.Errorf("listing the nodes of servers without a NodeClaim: %w", err)
	}
	registered := sets.New(lo.FilterMap(nodes.Items, func(node corev1.Node, _ int) (string, bool) {
		return node.Spec.ProviderID, node.DeletionTimestamp.IsZero()
	})...)
	return tooMany(lo.CountBy(found.orphans, func(server *instance.Instance) bool {
		return !server.Deleting() && registered.Has(providerid.New(server.ID))
	}), found.total), nil
}

func tooMany(orphans, total int) bool {
	return orphans > massCount && float64(orphans) > massShare*float64(total)
}
