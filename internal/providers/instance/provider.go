// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/patrickmn/go-cache"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// errNoClusterUID makes every call fail while the cluster's UID is not known: without it nothing is provably ours.
var errNoClusterUID = errors.New("the UID of the kube-system namespace is not known, so no server can be proved to " +
	"be this cluster's")

// Config is what the cluster and the operator's options decide.
type Config struct {
	// ClusterName is the cluster's name, for users.
	ClusterName string
	// ClusterUID is the UID of the kube-system namespace, which identifies our servers. Every call fails without it.
	ClusterUID string
	// BKE gives the cluster and the token that BKE needs to remove a node; without both there is no BKE to leave.
	BKE bke.Provider
	// Settings are the active settings.
	Settings *options.Store
	Clock    clock.Clock
	// Unpaid returns what of the account is unpaid, and nothing where nothing is. Nil asks nothing.
	Unpaid func(ctx context.Context) (string, error)
	// OnLeaveFailed is called when the node of a deleted server could not be removed from BKE, with the node's name and
	// why.
	OnLeaveFailed func(node string, err error)
}

// DefaultProvider manages the servers of this cluster over BizFly's API. It is safe for concurrent use.
type DefaultProvider struct {
	config    Config
	cluster   cluster
	api       bizfly.API
	clock     clock.Clock
	bootstrap *bootstrap.DefaultProvider
	catalog   catalog.Provider
	// servers, volumes and ports are what the cloud has, as lists that all parts of the provider share.
	servers *shared[*Snapshot]
	volumes *shared[[]*gobizfly.Volume]
	ports   *shared[*Ports]
	// protected are the handles of the volumes that PersistentVolumes name.
	protected *shared[sets.Set[string]]

	forms Forms
	// tasks bounds how often launches that wait read their tasks, readingTasks how many at once, and proving how many
	// servers are being proved to be gone.
	tasks                 *rate.Limiter
	readingTasks, proving *semaphore.Weighted
	// removals are the deletions of servers, by id; noting makes one step of reading and changing one.
	removals *cache.Cache
	noting   sync.Mutex
	leaving  errgroup.Group
	// reboots are the reboots that were accepted, by operation id.
	reboots *cache.Cache
}

// NewDefaultProvider returns a provider. protected returns the handles of the volumes that PersistentVolumes name, from
// a read that begins with the call; when it fails no disk is deleted.
func NewDefaultProvider(config Config, api bizfly.API, bootstrapProvider *bootstrap.DefaultProvider,
	catalogProvider catalog.Provider,
	protected func(context.Context) (sets.Set[string], error)) *DefaultProvider {
	p := &DefaultProvider{
		config: config, cluster: cluster{uid: config.ClusterUID, name: config.ClusterName}, api: api, clock: config.Clock,
		bootstrap: bootstrapProvider, catalog: catalogProvider,
		volumes: newShared(config.Clock, api.ListVolumes), protected: newShared(config.Clock, protected),
		tasks: rate.NewLimiter(rate.Inf, tasksPerInterval), readingTasks: semaphore.NewWeighted(tasksAtOnce),
		proving:  semaphore.NewWeighted(provingAtOnce),
		removals: cache.New(ttl.GoneServer, 0), reboots: cache.New(ttl.Reboot, 0),
	}
	p.servers, p.ports = newShared(config.Clock, p.listServers), newShared(config.Clock, p.listPorts)
	p.leaving.SetLimit(leavesWaiting)
	return p
}

// Flush forgets all lists, for tests.
func (p *DefaultProvider) Flush() {
	p.servers.flush()
	p.volumes.flush()
	p.ports.flush()
}

// Get returns a server of this cluster. Core asks again and again for one that is being deleted, so that the list is
// shared with the deletions.
func (p *DefaultProvider) Get(ctx context.Context, id string) (*Instance, error) {
	_, server, err := p.find(ctx, id, time.Time{})
	if err == nil && (server == nil || server.Gone() || !p.cluster.ours(server)) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, err
}

// Snapshot returns the servers of this cluster from a list that is at most this old, or a few seconds where that is
// longer.
func (p *DefaultProvider) Snapshot(ctx context.Context, maxAge time.Duration) (*Snapshot, error) {
	v, err := p.view(ctx, p.atMost(maxAge))
	if err != nil {
		return nil, err
	}
	return v.value, nil
}

// Ports returns the network interfaces of the project from a list that is at most this old, or a few seconds where that
// is longer.
func (p *DefaultProvider) Ports(ctx context.Context, maxAge time.Duration) (*Ports, error) {
	listed, err := p.ports.get(ctx, p.atMost(maxAge))
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	return listed.value, nil
}

// Last returns the last lists of servers and interfaces, each nil where there is none of this age.
func (p *DefaultProvider) Last(maxAge time.Duration) (servers *Snapshot, ports *Ports) {
	after := p.atMost(maxAge)
	if last := p.servers.peek(after); last != nil {
		servers = last.value
	}
	if last := p.ports.peek(after); last != nil {
		ports = last.value
	}
	return servers, ports
}

const (
	labelOutcome = "outcome"
	labelFlavor  = "flavor"
	labelZone    = "zone"
)

// Outcomes of a launch and of a deletion.
const (
	outcomeLaunched = "launched"
	outcomeRejected = "rejected"
	outcomeFailed   = "failed"
	outcomeUnknown  = "unknown"
	outcomeAccepted = "accepted"
	outcomeError    = "error"
)

var (
	launchesTotal = metrics.Counter("karpenter_bizfly_instance_launches_total",
		"Create requests, by outcome: launched, rejected, failed or unknown.",
		metrics.Enum(labelOutcome, outcomeLaunched, outcomeRejected, outcomeFailed, outcomeUnknown))
	launchSeconds = metrics.Histogram("karpenter_bizfly_instance_launch_seconds",
		"Seconds from the answer to a create request until its server had an id, by flavor and zone.",
		[]float64{0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480},
		metrics.Label(labelFlavor), metrics.Label(labelZone))
	deletionsTotal = metrics.Counter("karpenter_bizfly_instance_deletions_total",
		"Deletions of servers sent to the cloud, by whether it accepted them: accepted or error.",
		metrics.Enum(labelOutcome, outcomeAccepted, outcomeError))
	inPlaceChangesTotal = metrics.Counter("karpenter_bizfly_instance_in_place_changes_total",
		"Network interfaces of running servers whose firewalls were changed, so that no server was replaced.")
	diskDeletionsTotal = metrics.Counter("karpenter_bizfly_instance_disk_deletions_total",
		"Deletions of disks that outlived their server, by whether the cloud accepted them: accepted or error.",
		metrics.Enum(labelOutcome, outcomeAccepted, outcomeError))
)
