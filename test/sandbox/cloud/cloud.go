// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud is a stateful BizFly Cloud over HTTP for tests: it keeps servers, disks, ports and tasks, rejects what
// the real API would reject, and misbehaves on request. It knows nothing of the client that it serves.
package cloud

import (
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	maxRequests   = 10_000
	maxTombstones = 2_000
	maxLeftNodes  = 10_000
	maxTokens     = 10_000
	taskTTL       = time.Hour
)

// Cloud is one BizFly Cloud. It is safe for concurrent use. One mutex guards everything: handlers only touch memory,
// and neither I/O nor a hook happens under it.
type Cloud struct {
	opts Options

	mu     sync.Mutex
	rng    *rand.ChaCha8
	now    time.Time // the time of the event or request being handled
	events eventQueue
	seq    uint64
	wake   chan struct{}

	hooks    []hook
	draining bool
	active   []func(Server)
	deleted  []func(Server)

	tokens     map[string]token
	issued     int
	servers    map[string]*server
	volumes    map[string]*volume
	ports      map[string]*port
	tasks      map[string]*task
	pools      map[string]*pool
	taken      map[string]map[string]bool // addresses in use by network id
	next       map[string]uint32          // where the search for a free address continues
	tombstones []*server
	left       []string

	stock []*stockRule
	quota Quota
	// rejected counts the create requests that were rejected for lack of capacity or quota.
	rejected map[stockKey]int

	faults []*armedFault

	log     requestLog
	meter   meter
	foreign int
}

// New returns a cloud with the catalog's networks, firewalls, keys and images, and no servers.
func New(opts Options) *Cloud {
	c := &Cloud{
		opts: opts.withDefaults(), wake: make(chan struct{}, 1),
		tokens: map[string]token{}, servers: map[string]*server{}, volumes: map[string]*volume{}, ports: map[string]*port{},
		pools: map[string]*pool{},
		meter: meter{open: map[string]BillLine{}}, rejected: map[stockKey]int{},
		tasks: map[string]*task{}, taken: map[string]map[string]bool{}, next: map[string]uint32{},
	}
	var seed [32]byte
	copy(seed[:], strconv.FormatInt(c.opts.Seed, 10))
	c.rng = rand.NewChaCha8(seed)
	c.now = c.opts.Clock.Now()
	return c
}

// Options returns the options, defaults filled in.
func (c *Cloud) Options() Options { return c.opts }

// Clock is the clock that all progress is computed from.
func (c *Cloud) Clock() clock.Clock { return c.opts.Clock }

// Edit changes what the running cloud offers and has: a newer image, a flavor that is withdrawn, a network that gets a
// gateway. What servers were made from before stays as it was.
func (c *Cloud) Edit(change func(*Catalog)) {
	c.with(func() { change(c.opts.Catalog) })
}

// Credentials are what POST /token accepts.
func (c *Cloud) Credentials() Credentials {
	return Credentials{
		Email: c.opts.Email, Password: c.opts.Password, AppCredID: c.opts.AppCredID, AppCredSecret: c.opts.AppCredSecret,
		ProjectID: c.opts.Project, Region: c.opts.Region,
	}
}

// BKE is the Kubernetes Engine's cluster.
func (c *Cloud) BKE() BKE {
	c.mu.Lock()
	defer c.mu.Unlock()
	return BKE{
		ClusterUID: c.opts.ClusterUID, ClusterToken: c.opts.ClusterToken, JoinEndpoint: c.opts.JoinEndpoint, LogEndpoint: c.opts.LogEndpoint,
		Version: c.opts.Version, NetworkID: c.clusterNetwork(), ClusterName: c.opts.ClusterName,
	}
}

// clusterNetwork is the network named "kubernetes" of the cluster's region, or its first.
func (c *Cloud) clusterNetwork() string {
	vpcs := c.opts.Catalog.VPCs[c.opts.Region]
	for _, vpc := range vpcs {
		if vpc.Name == "kubernetes" {
			return vpc.ID
		}
	}
	if len(vpcs) == 0 {
		return ""
	}
	return vpcs[0].ID
}

// OnServer adds hooks: active is called when a server becomes ACTIVE, deleted when it is gone; either may be nil. They
// are called one at a time, in order, and never under a lock, so that they may call back.
func (c *Cloud) OnServer(active, deleted func(Server)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if active != nil {
		c.active = append(c.active, active)
	}
	if deleted != nil {
		c.deleted = append(c.deleted, deleted)
	}
}

// with runs fn under the lock at the current time, after all due events, and fires the hooks that follow from it.
func (c *Cloud) with(fn func()) {
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.advance()
		fn()
		c.advance()
	}()
	c.fireHooks()
}

// State returns the ground truth in the order of creation.
func (c *Cloud) State() State {
	var state State
	c.with(func() {
		state.Servers = []Server{}
		for _, s := range sorted(c.servers) {
			state.Servers = append(state.Servers, c.truthOf(s))
		}
		state.Volumes = []Volume{}
		for _, v := range sorted(c.volumes) {
			state.Volumes = append(state.Volumes, c.renderVolume(v))
		}
		state.NetworkInterfaces, state.WanIPs = []NetworkInterface{}, []WanIP{}
		for _, p := range sorted(c.ports) {
			if p.wan {
				state.WanIPs = append(state.WanIPs, c.renderWanIP(p))
			} else {
				state.NetworkInterfaces = append(state.NetworkInterfaces, c.renderPort(p))
			}
		}
		state.Tasks = []Task{}
		for _, t := range sorted(c.tasks) {
			state.Tasks = append(state.Tasks, t.Task)
		}
		state.LeftNodes = append([]string{}, c.left...)
		state.ForeignRequests = c.foreign
		state.TokensIssued = c.issued
	})
	return state
}

// Servers is the servers of State alone, which is much cheaper.
func (c *Cloud) Servers() []Server {
	var servers []Server
	c.with(func() {
		for _, s := range sorted(c.servers) {
			servers = append(servers, c.truthOf(s))
		}
	})
	return servers
}

// SetGuest records what became of the machine inside a server; an unknown server is ignored.
func (c *Cloud) SetGuest(serverID string, guest Guest) {
	c.with(func() {
		if s := c.servers[serverID]; s != nil {
			s.truth.Guest = &guest
		}
	})
}

type ordered interface{ order() uint64 }

func sorted[T ordered](m map[string]T) []T {
	all := make([]T, 0, len(m))
	for _, entry := range m {
		all = append(all, entry)
	}
	slices.SortFunc(all, func(a, b T) int {
		if a.order() < b.order() {
			return -1
		}
		return 1
	})
	return all
}

func (c *Cloud) nextSeq() uint64 {
	c.seq++
	return c.seq
}

func (c *Cloud) newUUID() string {
	var random [16]byte
	_, _ = io.ReadFull(c.rng, random[:]) // it never fails
	return uuid(random, 4)
}

// uuid writes 16 bytes as a UUID of a version.
func uuid(b [16]byte, version byte) string {
	b[6], b[8] = b[6]&0x0f|version<<4, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (c *Cloud) newHex(n int) string {
	raw := make([]byte, n)
	_, _ = c.rng.Read(raw)
	return hex.EncodeToString(raw)
}

// The API writes times in two forms.
func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
func micros(t time.Time) string  { return t.UTC().Format("2006-01-02T15:04:05.000000") }

// userID is the id of the project's user in the form in which the identity service writes ids.
func userID(project string) string { return strings.ReplaceAll(StableID("user", project), "-", "") }
