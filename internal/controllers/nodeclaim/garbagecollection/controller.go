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
// answer was lost, and those that came up after their NodeClaim had ended. It also deletes the disks and addresses that deleted
// servers have left. It remembers nothing that a new process does not find out again.
package garbagecollection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// parallelDeletions bounds the deletions of one pass that are requested at the same time; the adapter limits their rate.
const parallelDeletions = 10

// reasonGarbageCollected is the reason of a removal because the server has no NodeClaim.
const reasonGarbageCollected = "GarbageCollected"

// Config is how the garbage collector behaves.
type Config struct {
	// Settings are the active settings; nil means the defaults.
	Settings *options.Store
	// DryRun reports what would be deleted and deletes nothing.
	DryRun bool
	// Recognized returns why this cluster may be a clone of the one whose servers it sees: then each pass is a dry run. Nil asks nothing.
	Recognized func(ctx context.Context) error
}

// dryRun returns why the pass deletes nothing, empty where it may.
func (c *Config) dryRun(ctx context.Context) string {
	if c.DryRun {
		return "GARBAGE_COLLECTION_DRY_RUN is on"
	}
	if c.Recognized != nil {
		if err := c.Recognized(ctx); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Controller is the garbage collector.
type Controller struct {
	config     Config
	kubeClient client.Client
	apiReader  client.Reader
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock

	// Only one pass runs at a time. firstSeen is when a server, disk or address was first seen whose age the cloud does not
	// return, and deleting are the servers whose deletion was requested and that were not proved to be gone yet.
	firstSeen map[string]time.Time
	deleting  map[string]*instance.Instance
}

// NewController returns a garbage collector. The reader must not be a cache: it decides that a claim does not exist.
func NewController(config Config, kubeClient client.Client, apiReader client.Reader, instances instance.Provider, recorder karpevents.Recorder,
	clk clock.Clock) *Controller {
	if config.Settings == nil {
		config.Settings = options.NewStore(nil)
	}
	return &Controller{config: config, kubeClient: kubeClient, apiReader: apiReader, instances: instances, recorder: recorder, clock: clk,
		firstSeen: map[string]time.Time{}, deleting: map[string]*instance.Instance{}}
}

// Name is the controller's name, which core's garbage collector must not share.
func (c *Controller) Name() string { return "server.garbagecollection" }

// Reconcile makes one pass. What fails in it is reported and tried again in the next one: an error would put off the next pass of
// everything else for up to 17 minutes. A pass that could not read what it decides by, as at a start without a connection, is
// repeated soon.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	interval := c.config.Settings.Load().GarbageCollectionInterval
	if err := c.pass(ctx); err != nil {
		c.failed(ctx, err)
		interval = min(interval, ttl.CatalogBackoff)
	}
	return reconciler.Result{RequeueAfter: interval}, nil
}

// failed reports what a pass could not do.
func (c *Controller) failed(ctx context.Context, err error) {
	log.FromContext(ctx).Error(err, "garbage collection failed in part, the next pass tries again")
	failuresTotal.Inc(nil)
}

func (c *Controller) pass(ctx context.Context) error {
	dryRun := c.config.dryRun(ctx)
	found, err := c.classify(ctx)
	if err == nil && tooMany(len(found.orphans), found.total) {
		// One wrong answer may look like this; two in a row are the truth or a lasting loss of NodeClaims.
		found, err = c.classify(ctx)
	}
	if err != nil {
		return err
	}
	suspended, err := c.suspended(ctx, found)
	if err != nil {
		return err
	}
	orphanServers.Set(float64(len(found.orphans)), nil)
	suspendedGauge.Set(lo.Ternary(suspended, 1.0, 0), nil)
	c.recorder.Publish(found.held...)
	for _, server := range found.unproven {
		log.FromContext(ctx).Info("keeping a server with this cluster's metadata, no NodeClaim and a name of its own", "server", server.ID, "name", server.Name)
		c.publish(ctx, events.ServerKept(server.Name, server.ID))
	}
	switch {
	case suspended:
		log.FromContext(ctx).Info("garbage collection is suspended: too many servers with a registered node have no NodeClaim", "orphans",
			len(found.orphans), "servers", found.total)
		names := lo.Map(found.orphans, func(server *instance.Instance, _ int) string { return server.Name })
		c.publish(ctx, events.GarbageCollectionSuspended(found.total, names))
		c.deleteServers(ctx, found.servers, nil)
	case dryRun != "":
		for _, server := range found.orphans {
			log.FromContext(ctx).Info("would garbage collect a server without a NodeClaim (dry run)", "server", server.ID, "name", server.Name, "because", dryRun)
			c.publish(ctx, events.WouldGarbageCollect(server.Name, server.ID, server.NodeClaim, dryRun))
		}
	default:
		c.deleteServers(ctx, found.servers, found.orphans)
	}
	c.deleteLeftovers(ctx, found.leftovers, dryRun != "")
	return nil
}

// deleteServers brings the deletions of orphans forward, and ends those of earlier passes whose servers are gone.
func (c *Controller) deleteServers(ctx context.Context, listed *instance.Snapshot, orphans []*instance.Instance) {
	isOrphan := lo.Keyify(lo.Map(orphans, func(server *instance.Instance, _ int) string { return server.ID }))
	maps.DeleteFunc(c.deleting, func(id string, _ *instance.Instance) bool { return listed.Get(id) != nil && !lo.HasKey(isOrphan, id) })
	gone := lo.Values(lo.OmitByKeys(c.deleting, lo.Keys(isOrphan)))
	slices.SortFunc(gone, func(a, b *instance.Instance) int { return strings.Compare(a.ID, b.ID) })
	servers := slices.Concat(orphans, gone)
	errs := make([]error, len(servers))
	workqueue.ParallelizeUntil(ctx, parallelDeletions, len(servers), func(i int) { errs[i] = c.deleteServer(ctx, servers[i]) })
	for i, server := range servers {
		switch err := errs[i]; {
		case err == nil:
			c.deleting[server.ID] = server
			continue
		case errors.Is(err, errDraining):
			log.FromContext(ctx).Info("a server without a NodeClaim is deleted when the pods of its node are gone", "server", server.ID, "name", server.Name)
		case errors.Is(err, instance.ErrNotOurs):
			log.FromContext(ctx).Info("did not delete a server that is not provably this cluster's any more", "server", server.ID, "name", server.Name)
		case errors.Is(err, instance.ErrNotFound):
			c.publish(ctx, events.GarbageCollected(server.Name, server.ID))
			collectedTotal.Inc(nil)
		default:
			c.failed(ctx, err)
			c.publish(ctx, events.ServerDeletionFailed(server.Name, server.ID, err))
		}
		delete(c.deleting, server.ID)
	}
}

// errDraining says that core drains the node of a server, which is not deleted before.
var errDraining = errors.New("the node is being drained")

// deleteServer deletes a server without a NodeClaim, and its Nodes: nothing else would. Nothing that runs there is killed.
func (c *Controller) deleteServer(ctx context.Context, server *instance.Instance) error {
	nodes := &corev1.NodeList{}
	if err := c.kubeClient.List(ctx, nodes, client.MatchingFields{"spec.providerID": providerid.New(server.ID)}); err != nil {
		return fmt.Errorf("listing the nodes of server %s: %w", server.ID, err)
	}
	if _, requested := c.deleting[server.ID]; !requested {
		for i := range nodes.Items {
			if err := c.drain(ctx, &nodes.Items[i], server.NodeClass); err != nil {
				return err
			}
		}
	}
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("NodeClaim", klog.KRef("", server.NodeClaim)))
	err := c.instances.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: strings.ToLower(server.Name), Reason: reasonGarbageCollected})
	if (err != nil && !errors.Is(err, instance.ErrNotFound)) || errors.Is(err, instance.ErrNotOurs) {
		return err
	}
	for i := range nodes.Items {
		if err := c.deleteNode(ctx, &nodes.Items[i]); err != nil {
			return err
		}
	}
	return err
}

// deleteNode deletes the Node of a server without a NodeClaim.
func (c *Controller) deleteNode(ctx context.Context, node *corev1.Node) error {
	if !node.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := c.kubeClient.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting node %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("deleted the node of a server without a NodeClaim", "Node", klog.KObj(node))
	return nil
}

// deleteLeftovers deletes what deleted servers have left.
func (c *Controller) deleteLeftovers(ctx context.Context, leftovers []instance.Leftover, dryRun bool) {
	remaining := 0
	for _, left := range leftovers {
		switch {
		case left.Kept != "":
			c.publishLeftover(left, fmt.Errorf("%s is kept: %s", left.Name, left.Kept))
			continue
		case dryRun:
			log.FromContext(ctx).Info("would delete what a deleted server has left (dry run)", "kind", left.Kind, "name", left.Name, "id", left.ID)
			continue
		}
		if err := c.instances.DeleteLeftover(ctx, left); err != nil {
			remaining++
			c.failed(ctx, err)
			c.publishLeftover(left, err)
		}
	}
	leftoversGauge.Set(float64(remaining), nil)
}

func (c *Controller) publishLeftover(left instance.Leftover, err error) {
	c.recorder.Publish(lo.Ternary(left.Kind == instance.LeftoverDisk, events.LeftoverDisk, events.LeftoverAddress)(left.Server, left.ID, err))
}

// publish emits the event, and emits it on the ProviderConfig as well, which stands for the account that pays.
func (c *Controller) publish(ctx context.Context, event karpevents.Event) {
	c.recorder.Publish(event)
	config := &v1alpha1.ProviderConfig{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, config); err == nil {
		c.recorder.Publish(events.On(config, event))
	}
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
	failuresTotal = metrics.Counter("garbage_collection_failures_total",
		"What passes of the garbage collector could not read or delete; the next pass tries again.")
	leftoversGauge = metrics.Gauge("leftovers",
		"Disks and addresses of deleted servers that the last pass of the garbage collector could not delete.")
)

// classification is what one pass has found.
type classification struct {
	servers *instance.Snapshot
	// orphans are the servers that no NodeClaim accounts for, of total servers; unproven are those whose name does not prove that
	// this cluster has launched them.
	orphans, unproven []*instance.Instance
	total             int
	// held are the events of servers that a NodeClaim with another UID than theirs accounts for.
	held []karpevents.Event
	// leftovers are what deleted servers have left.
	leftovers []instance.Leftover
}

// classify finds the servers that no NodeClaim accounts for, and what deleted servers have left. The cloud is read first: a server
// in the list was launched for a NodeClaim that existed before, so one that is absent afterwards has been deleted.
func (c *Controller) classify(ctx context.Context) (classification, error) {
	servers, err := c.instances.Snapshot(ctx, 0)
	if err != nil {
		return classification{}, err
	}
	leftovers, err := c.instances.Leftovers(ctx)
	if err != nil {
		// Servers are deleted without them.
		c.failed(ctx, err)
	}
	leftBy := lo.KeyBy(leftovers, func(left instance.Leftover) string { return left.ID })
	maps.DeleteFunc(c.firstSeen, func(id string, _ time.Time) bool { return servers.Get(id) == nil && !lo.HasKey(leftBy, id) })
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return classification{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	byUID, byProviderID := map[string]*karpv1.NodeClaim{}, map[string]*karpv1.NodeClaim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		byUID[string(claim.UID)] = claim
		if claim.Status.ProviderID != "" {
			byProviderID[claim.Status.ProviderID] = claim
		}
	}
	found := classification{servers: servers, total: len(servers.All())}
	found.leftovers = lo.Filter(leftovers, func(left instance.Leftover, _ int) bool {
		// A NodeClaim that names the server may be about to get it, or have it although the list of servers lacks it.
		named := lo.ContainsBy(claims.Items, func(claim karpv1.NodeClaim) bool {
			return strings.Contains(claim.Annotations[v1alpha1.AnnotationLaunchIntent], left.Server)
		})
		return !named && c.oldEnough(left.ID, left.CreatedAt)
	})
	for _, server := range servers.All() {
		c.classifyServer(&found, server, byUID[server.NodeClaimUID], byProviderID[providerid.New(server.ID)])
	}
	return found, nil
}

// classifyServer adds a server to what a pass has found. claim is the NodeClaim for which it was launched, and holder the one that
// has its id; each is nil where there is none.
func (c *Controller) classifyServer(found *classification, server *instance.Instance, claim, holder *karpv1.NodeClaim) {
	switch {
	case server.ClusterUID == "" || server.NodeClaimUID == "":
		// Nothing proves that it is ours to delete.
	case holder != nil && (claim == nil || holder.UID != claim.UID):
		// A NodeClaim that was restored from a backup has a new UID, and the node of this server.
		found.held = append(found.held, events.ServerHeld(holder, server.ID, server.NodeClaimUID))
	case holder != nil, claim != nil && claim.Status.ProviderID == "":
		// A NodeClaim that has no server yet may be about to get this one.
	case !c.oldEnough(server.ID, server.CreatedAt):
	case server.NameProven:
		found.orphans = append(found.orphans, server)
	case !server.Deleting():
		found.unproven = append(found.unproven, server)
	}
}

// oldEnough reports whether something is older than any launch that may still be waited for.
func (c *Controller) oldEnough(id string, created time.Time) bool {
	return c.age(id, created) >= c.config.Settings.Load().GarbageCollectionGrace
}

// age is how long something has existed, or has been seen where the cloud does not say since when it exists. A time in
// the future says nothing either: one of the two clocks is wrong, or the cloud wrote its local time.
func (c *Controller) age(id string, created time.Time) time.Duration {
	if age := c.clock.Since(created); !created.IsZero() && age >= 0 {
		return age
	}
	if _, seen := c.firstSeen[id]; !seen {
		c.firstSeen[id] = c.clock.Now()
	}
	return c.clock.Since(c.firstSeen[id])
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
