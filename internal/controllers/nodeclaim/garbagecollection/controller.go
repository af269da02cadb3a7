// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes servers of this cluster that no NodeClaim accounts for: those of create requests
// whose answer was lost, and those that came up after their NodeClaim had ended. It also deletes the root disks that
// deleted servers have left. It remembers nothing that a new process does not find out again.
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
	"github.com/samber/lo/mutable"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// parallelDeletions bounds the deletions of one pass that are requested at the same time; the adapter limits their
// rate.
const parallelDeletions = 10

// Config is how the garbage collector behaves.
type Config struct {
	Settings *options.Store
	// DryRun reports what would be deleted and deletes nothing.
	DryRun bool
	// Recognized returns why this cluster may be a clone of the one whose servers it sees: then each pass is a dry run.
	// Nil asks nothing.
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
	instances  Instances
	recorder   karpevents.Recorder
	clock      clock.Clock

	// Only one pass runs at a time. firstSeen is when a server or disk was first seen whose age the cloud does not
	// return, and deleting are the servers whose deletion was requested and that were not proved to be gone yet.
	firstSeen map[string]time.Time
	deleting  map[string]*instance.Instance
}

// Instances are the servers of this cluster, and what they have left.
type Instances interface {
	Snapshot(ctx context.Context, maxAge time.Duration) (*instance.Snapshot, error)
	Get(ctx context.Context, id string) (*instance.Instance, error)
	Delete(ctx context.Context, request instance.DeleteRequest) error
	Leftovers(ctx context.Context) ([]instance.Leftover, error)
	DeleteLeftover(ctx context.Context, left instance.Leftover) error
}

// NewController returns a garbage collector. The reader must not be a cache: it decides that a claim does not exist.
func NewController(config Config, kubeClient client.Client, apiReader client.Reader, instances Instances,
	recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{config: config, kubeClient: kubeClient, apiReader: apiReader, instances: instances,
		recorder: recorder, clock: clk, firstSeen: map[string]time.Time{}, deleting: map[string]*instance.Instance{}}
}

// Name is the controller's name, which core's garbage collector must not share.
func (c *Controller) Name() string { return "server.garbagecollection" }

// Reconcile makes one pass. What fails in it is reported and tried again in the next one: an error would put off the
// next pass of everything else for up to 17 minutes. A pass that could not read what it decides by, as at a start
// without a connection, is repeated soon.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
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
	if err == nil && found.tooMany(found.orphans) {
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
	for _, server := range found.unproven {
		log.FromContext(ctx).Info("keeping a server with this cluster's metadata, no NodeClaim and a name of its own",
			"server", server.ID, "name", server.Name)
		c.recorder.Publish(events.ServerKept(c.account(ctx), server.Name, server.ID))
	}
	switch {
	case suspended:
		names := lo.Map(found.orphans, func(server *instance.Instance, _ int) string { return server.Name })
		// The event names a few, and may be dropped: client-go limits events per object.
		log.FromContext(ctx).Info("garbage collection is suspended: too many registered servers have no NodeClaim",
			"orphans", names, "servers", len(found.servers.All()))
		c.recorder.Publish(events.GarbageCollectionSuspended(c.account(ctx), len(found.servers.All()), names))
		c.deleteServers(ctx, found.servers, nil)
	case dryRun != "":
		for _, server := range found.orphans {
			log.FromContext(ctx).Info("would garbage collect a server without a NodeClaim (dry run)",
				"server", server.ID, "name", server.Name, "because", dryRun)
			c.recorder.Publish(events.WouldGarbageCollect(c.account(ctx), server.Name, server.ID, server.NodeClaim, dryRun))
		}
	default:
		c.deleteServers(ctx, found.servers, found.orphans)
	}
	c.deleteLeftovers(ctx, found, dryRun != "" || suspended)
	return nil
}

// deleteServers brings the deletions of orphans forward, and ends those of earlier passes whose servers are gone.
func (c *Controller) deleteServers(ctx context.Context, listed *instance.Snapshot, orphans []*instance.Instance) {
	isOrphan := lo.Keyify(lo.Map(orphans, func(server *instance.Instance, _ int) string { return server.ID }))
	maps.DeleteFunc(c.deleting, func(id string, _ *instance.Instance) bool {
		server := listed.Get(id)
		return server != nil && !server.Gone() && !lo.HasKey(isOrphan, id)
	})
	gone := lo.Values(lo.OmitByKeys(c.deleting, lo.Keys(isOrphan)))
	slices.SortFunc(gone, func(a, b *instance.Instance) int { return strings.Compare(a.ID, b.ID) })
	servers := slices.Concat(orphans, gone)
	errs := make([]error, len(servers))
	workqueue.ParallelizeUntil(ctx, parallelDeletions, len(servers), func(i int) {
		errs[i] = c.deleteServer(ctx, servers[i], i < len(orphans))
	})
	for i, server := range servers {
		switch err := errs[i]; {
		case err == nil:
			c.deleting[server.ID] = server
			continue
		case errors.Is(err, errDraining):
			log.FromContext(ctx).Info("a server without a NodeClaim is deleted when the pods of its node are gone",
				"server", server.ID, "name", server.Name)
			continue
		case errors.Is(err, instance.ErrNotOurs):
			log.FromContext(ctx).Info("did not delete a server that is not provably this cluster's any more",
				"server", server.ID, "name", server.Name)
		case errors.Is(err, instance.ErrNotFound):
			if !lo.HasKey(c.deleting, server.ID) {
				break // it went with its NodeClaim since the servers were listed
			}
			c.recorder.Publish(events.GarbageCollected(c.account(ctx), server.Name, server.ID))
			collectedTotal.Inc(nil)
		default:
			c.failed(ctx, err)
			c.recorder.Publish(events.ServerDeletionFailed(server.Name, server.ID, err))
		}
		delete(c.deleting, server.ID)
	}
}

// errDraining says that core drains the node of a server, which is not deleted before.
var errDraining = errors.New("the node is being drained")

// deleteServer deletes a server without a NodeClaim, and its Nodes: nothing else would. Nothing that runs there is
// killed. One that is not listed was drained in an earlier pass. It is gone or not ours any more, and its Nodes stay as
// they are until Delete has found out which.
func (c *Controller) deleteServer(ctx context.Context, server *instance.Instance, listed bool) error {
	nodes := &corev1.NodeList{}
	if err := c.kubeClient.List(ctx, nodes,
		client.MatchingFields{"spec.providerID": providerid.New(server.ID)}); err != nil {
		return fmt.Errorf("listing the nodes of server %s: %w", server.ID, err)
	}
	// Also where its deletion was requested before: requests get lost, and the server goes on running.
	if listed && !server.Deleting() {
		for i := range nodes.Items {
			if err := c.drain(ctx, &nodes.Items[i], server.NodeClass); err != nil {
				return err
			}
		}
	}
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("NodeClaim", klog.KRef("", server.NodeClaim)))
	err := c.instances.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: strings.ToLower(server.Name)})
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

// errNextPass says that the time of a pass was over.
var errNextPass = errors.New("left for the next pass")

// deleteLeftovers deletes what deleted servers have left. It stops after one interval, so that the next pass can delete
// servers, and begins with other disks each time, so that some on which the cloud hangs hold back no others.
func (c *Controller) deleteLeftovers(ctx context.Context, found classification, dryRun bool) {
	var disks []instance.Leftover
	remaining := 0
	for _, left := range found.leftovers {
		switch {
		case left.Kept != "":
			c.recorder.Publish(events.LeftoverDisk(left.Server, left.ID, fmt.Errorf("%s is kept: %s", left.Name, left.Kept)))
		case dryRun:
			remaining++
			log.FromContext(ctx).Info("would delete the disk of a deleted server (dry run)", "name", left.Name, "id", left.ID)
		default:
			disks = append(disks, left)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Settings.Load().GarbageCollectionInterval)
	defer cancel()
	mutable.Shuffle(disks)
	errs := slices.Repeat([]error{errNextPass}, len(disks))
	workqueue.ParallelizeUntil(ctx, parallelDeletions, len(disks),
		func(i int) { errs[i] = c.instances.DeleteLeftover(ctx, disks[i]) })
	for i, left := range disks {
		if errs[i] == nil {
			continue
		}
		remaining++
		if !errors.Is(errs[i], errNextPass) {
			c.failed(ctx, errs[i])
			c.recorder.Publish(events.LeftoverDisk(left.Server, left.ID, errs[i]))
		}
	}
	if !found.unlisted { // otherwise what could not be deleted may be among what was not listed
		leftoversGauge.Set(float64(remaining), nil)
	}
}

// account returns the ProviderConfig. Where it cannot be read, events name it all the same.
func (c *Controller) account(ctx context.Context) *v1alpha1.ProviderConfig {
	config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
	_ = c.kubeClient.Get(ctx, client.ObjectKeyFromObject(config), config)
	return config
}

// Register adds the controller to the manager; only the leader runs it.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}

var (
	orphanServers = metrics.Gauge("karpenter_bizfly_orphan_servers",
		"Servers of this cluster that no NodeClaim accounts for, at the last pass of the garbage collector.")
	suspendedGauge = metrics.Gauge("karpenter_bizfly_garbage_collection_suspended",
		"1 while so many servers with a registered node lack a NodeClaim that the garbage collector deletes none.")
	collectedTotal = metrics.Counter("karpenter_bizfly_garbage_collected_servers_total",
		"Servers without a NodeClaim that were deleted.")
	failuresTotal = metrics.Counter("karpenter_bizfly_garbage_collection_failures_total",
		"What passes of the garbage collector could not read or delete; the next pass tries again.")
	leftoversGauge = metrics.Gauge("karpenter_bizfly_leftovers",
		"Disks of deleted servers that the last pass of the garbage collector was to delete and did not.")
)
