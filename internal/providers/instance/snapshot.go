// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// attachedTypeRoot is what the cloud calls the disk that a server boots from.
const attachedTypeRoot = "rootdisk"

// Snapshot is one list of the servers of this cluster, converted and indexed once for all of its readers: read only.
type Snapshot struct {
	servers             []*Instance
	byID                map[string]*Instance
	byNodeClaim, byName map[string][]*Instance
}

// NewSnapshot indexes servers.
func NewSnapshot(servers []*Instance) *Snapshot {
	s := &Snapshot{
		servers: servers, byID: make(map[string]*Instance, len(servers)),
		byNodeClaim: make(map[string][]*Instance, len(servers)), byName: make(map[string][]*Instance, len(servers)),
	}
	for _, server := range servers {
		s.byID[server.ID] = server
		s.byNodeClaim[server.NodeClaimUID] = append(s.byNodeClaim[server.NodeClaimUID], server)
		s.byName[server.Name] = append(s.byName[server.Name], server)
		if launched := server.launchName; launched != "" && launched != server.Name {
			s.byName[launched] = append(s.byName[launched], server)
		}
	}
	return s
}

// All returns all servers, failed and deleting ones included.
func (s *Snapshot) All() []*Instance { return s.servers }

// Get returns the server with this id; nil where there is none.
func (s *Snapshot) Get(id string) *Instance { return s.byID[id] }

// OfNodeClaim returns the servers that were launched for the NodeClaim with this UID.
func (s *Snapshot) OfNodeClaim(uid string) []*Instance { return s.byNodeClaim[uid] }

// named returns the servers that have this name or were launched under it, less those that are only still listed.
func (s *Snapshot) named(name string) []*Instance {
	if name == "" {
		return nil
	}
	return lo.Reject(s.byName[name], func(server *Instance, _ int) bool { return server.Gone() })
}

// Ports is one list of the network interfaces of the project, indexed once for all of its readers: read only.
type Ports struct {
	all      []*gobizfly.NetworkInterface
	byServer map[string][]*gobizfly.NetworkInterface
	// networks are the private networks by server.
	networks map[string][]string
}

const (
	// interfaceWAN is what the cloud calls the interface of a public address, and interfaceLAN one in a VPC network.
	interfaceWAN = "WAN"
	interfaceLAN = "LAN"
)

// newPorts indexes network interfaces.
func newPorts(all []*gobizfly.NetworkInterface) *Ports {
	p := &Ports{all: all, byServer: lo.GroupBy(all, bizfly.UsedBy), networks: map[string][]string{}}
	delete(p.byServer, "")
	for server, ports := range p.byServer {
		// Of a server with an interface that may be public or private nothing is known: taken for private, the public one of each server
		// would be drift of all servers, and of their replacements too.
		if lo.EveryBy(ports, func(port *gobizfly.NetworkInterface) bool {
			return port.Type == interfaceWAN || port.Type == interfaceLAN
		}) {
			p.networks[server] = lo.Uniq(lo.FilterMap(ports, func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
				return port.NetworkID, port.Type == interfaceLAN && port.NetworkID != ""
			}))
		}
	}
	return p
}

// Of returns the sorted ids of the interfaces, private and public, that the server uses and that were created before this time; of all where
// it is zero.
func (p *Ports) Of(serverID string, before time.Time) []string {
	ids := lo.FilterMap(p.byServer[serverID], func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
		created := bizfly.Time(port.CreatedAt)
		return port.ID, before.IsZero() || !created.IsZero() && created.Before(before)
	})
	slices.Sort(ids)
	return ids
}

// Networks returns the ids of the VPC networks that the server is in; none where that is not known.
func (p *Ports) Networks(serverID string) []string { return p.networks[serverID] }

// inventory is what the cloud has, as lists that all parts of the provider share.
type inventory struct {
	cluster
	api       bizfly.API
	clock     clock.Clock
	settings  *options.Store
	servers   *shared[*Snapshot]
	volumes   *shared[[]*gobizfly.Volume]
	ports     *shared[*Ports]
	firewalls *shared[[]*gobizfly.Firewall]
}

func newInventory(config Config, api bizfly.API) *inventory {
	i := &inventory{cluster: cluster{uid: config.ClusterUID, name: config.ClusterName}, api: api, clock: config.Clock, settings: config.Settings}
	i.servers = newShared(i.clock, i.listServers)
	i.volumes = newShared(i.clock, api.ListVolumes)
	i.ports = newShared(i.clock, i.listPorts)
	i.firewalls = newShared(i.clock, api.ListFirewalls)
	return i
}

func (i *inventory) listServers(ctx context.Context) (*Snapshot, error) {
	if i.uid == "" {
		return nil, errNoClusterUID
	}
	servers, err := i.api.ListServers(ctx)
	if err != nil {
		return nil, err
	}
	return NewSnapshot(lo.FilterMap(servers, func(server *gobizfly.Server, _ int) (*Instance, bool) {
		if server.Metadata[v1alpha1.MetadataClusterUID] != i.uid {
			return nil, false
		}
		return i.convert(server), true
	})), nil
}

func (i *inventory) listPorts(ctx context.Context) (*Ports, error) {
	all, err := i.api.ListNetworkInterfaces(ctx)
	return newPorts(all), err
}

// recent is the time after which a list must have begun for readers that accept one of a few seconds ago.
func (i *inventory) recent() time.Time { return i.atMost(0) }

// atMost is the time after which a list must have begun to be at most this old, or a few seconds where that is longer.
func (i *inventory) atMost(maxAge time.Duration) time.Time {
	return i.clock.Now().Add(-max(maxAge, i.settings.Load().ServerListMaxAge))
}

// getServer reads one server, of this cluster or not; ErrNotFound when the API denies its id.
func (i *inventory) getServer(ctx context.Context, id string) (*Instance, error) {
	if i.uid == "" {
		return nil, errNoClusterUID
	}
	server, err := i.api.GetServer(ctx, id)
	if bizfly.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", id, err)
	}
	return i.convert(server), nil
}

// convert returns the Instance of a server.
func (c cluster) convert(server *gobizfly.Server) *Instance {
	metadata := func(key string) string { return server.Metadata[key] }
	// A value that is no number was not written by us. It becomes 0, which no attempt has: they count from 1.
	attempt, _ := strconv.Atoi(metadata(v1alpha1.MetadataAttempt))
	dataDisks, _ := strconv.Atoi(metadata(v1alpha1.MetadataDataDisks))
	instance := &Instance{
		ID:           server.ID,
		Name:         server.Name,
		Status:       server.Status,
		Flavor:       lo.CoalesceOrEmpty(server.Flavor.Name, server.FlavorName),
		Zone:         lo.CoalesceOrEmpty(server.AvailabilityZone, server.ZoneName),
		BillingPlan:  lo.CoalesceOrEmpty(server.BillingPlan, server.Metadata["billing_plan"]),
		NetworkPlan:  lo.CoalesceOrEmpty(server.NetworkPlan, server.Metadata["network_plan"]),
		ImageID:      metadata(v1alpha1.MetadataImage),
		UserDataHash: metadata(v1alpha1.MetadataUserDataHash),
		DataDisks:    max(dataDisks, 0),
		ClusterUID:   metadata(v1alpha1.MetadataClusterUID),
		NodeClaim:    metadata(v1alpha1.MetadataNodeClaim),
		NodeClaimUID: metadata(v1alpha1.MetadataNodeClaimUID),
		NodePool:     metadata(v1alpha1.MetadataNodePool),
		NodeClass:    metadata(v1alpha1.MetadataNodeClass),
		Attempt:      attempt,
		CreatedAt:    bizfly.Time(server.CreatedAt),
		Volumes: lo.Map(server.AttachedVolumes, func(volume gobizfly.AttachedVolume, _ int) Volume {
			medium, _ := catalog.Medium(&gobizfly.VolumeType{Type: volume.Type})
			return Volume{
				ID: volume.ID, Name: volume.Name, SizeGiB: volume.Size, Medium: medium,
				Root: volume.AttachedType == attachedTypeRoot, attachedType: volume.AttachedType,
			}
		}),
	}
	if c.ours(instance) {
		instance.launchName = c.launchName(instance, metadata(v1alpha1.MetadataName))
		instance.NameProven = c.launchedAs(server.Name) != ""
	}
	return instance
}

// shared answers many readers with few lists: at most one is under way and one is waited for, however many ask. A reader
// names the time after which its list must have begun, so that absence in it proves something.
type shared[V any] struct {
	fetch func(context.Context) (V, error)
	clock clock.PassiveClock

	mu sync.Mutex
	// last is the newest list that succeeded; it is shared and never changed.
	last *listed[V]
	// failing is since when every list has failed; zero while the last one succeeded.
	failing time.Time
	// current is under way; next begins when it has ended.
	current, next *listed[V]
}

// listed is one list.
type listed[V any] struct {
	ctx   context.Context // the values of the first reader, for logs, without its deadline
	begun time.Time
	done  chan struct{}
	value V
	err   error
}

func newShared[V any](clk clock.PassiveClock, fetch func(context.Context) (V, error)) *shared[V] {
	return &shared[V]{fetch: fetch, clock: clk}
}

// get returns a list that began after this time, or after the call where that is later. Its value is shared: read only.
func (s *shared[V]) get(ctx context.Context, after time.Time) (*listed[V], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := s.join(ctx, after)
	select {
	case <-l.done:
		return l, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// peek returns the last list when it began after this time, and nil otherwise. It lists nothing.
func (s *shared[V]) peek(after time.Time) *listed[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.begun.After(after) {
		return s.last
	}
	return nil
}

// failingFor is for how long every list has failed.
func (s *shared[V]) failingFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing.IsZero() {
		return 0
	}
	return s.clock.Since(s.failing)
}

// flush forgets the last list.
func (s *shared[V]) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// join returns the list that is young enough for the reader, beginning one where there is none.
func (s *shared[V]) join(ctx context.Context, after time.Time) *listed[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last != nil && s.last.begun.After(after):
		return s.last
	case s.current == nil:
		s.current = &listed[V]{ctx: unhurried(ctx), done: make(chan struct{})}
		s.begin(s.current)
		return s.current
	case s.current.begun.After(after):
		return s.current
	case s.next == nil:
		s.next = &listed[V]{ctx: unhurried(ctx), done: make(chan struct{})}
	}
	return s.next
}

// unhurried is a context for a list that others wait for too: it has neither the deadline nor the bound of admission of its first reader.
func unhurried(ctx context.Context) context.Context {
	return bizfly.AdmitWithin(context.WithoutCancel(ctx), ttl.Admission)
}

// begin is called with the lock held and lists without it.
func (s *shared[V]) begin(l *listed[V]) {
	l.begun = s.clock.Now()
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, ttl.List)
		l.value, l.err = s.fetch(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case l.err == nil:
			s.last, s.failing = l, time.Time{}
		case s.failing.IsZero():
			s.failing = l.begun
		}
		close(l.done)
		s.current, s.next = s.next, nil
		if s.current != nil {
			s.begin(s.current)
		}
	}()
}
