// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guest is what runs inside the sandbox's servers: a machine that boots, reads its own user data and metadata
// and joins the cluster as a Node if a real one would, and beside it a stand-in for the cloud controller manager.
package guest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// LabelAlive is on the Nodes of servers that run. KWOK manages Nodes by it, so that the Node of a dead server goes
// silent.
const LabelAlive = "sandbox.bizflycloud.vn/alive"

// Options describe the machines.
type Options struct {
	// Client reaches the cluster that they join.
	Client kubernetes.Interface
	// Cluster is where its API server is and by which authority it is known, for machines that join by kubeadm or k3s.
	Cluster *rest.Config
	// Region is the region label that the cloud controller manager writes; empty is "HN", its real default.
	Region string
	// MemoryOverhead is the share of the advertised memory that a machine does not see; 0 is 4 %.
	MemoryOverhead float64
	// ImageMemoryOverhead is MemoryOverhead by image id.
	ImageMemoryOverhead map[string]float64
	// Reserved is what the kubelet of the worker image keeps from pods beyond the Kubernetes Engine's one public answer.
	Reserved corev1.ResourceList
	// Interval is how often the cloud is read besides its notifications, and a fifth of it how far apart passes are at least; 0 is
	// half a second.
	Interval time.Duration
	// NoCCM leaves the cloud controller manager out, for a cluster that has one.
	NoCCM bool
	// NodeSilence is how long the Node of a server that is gone must have been silent before the cloud controller manager
	// deletes it; 0 is 30 s, which with the 5 s between its passes is what the real one takes, and less than 0 is at once.
	NodeSilence time.Duration
	// Machines boots servers as real machines, which join by themselves, instead of imitating them; nil imitates.
	Machines Machines
	// Ready registers Nodes that are Ready, for suites without KWOK.
	Ready bool
	// Log gets what happens; nil discards it.
	Log *slog.Logger
}

// Guests are the machines inside the servers of one cloud, and the cloud controller manager of their cluster.
type Guests struct {
	cloud *cloud.Cloud
	opts  Options
	wake  chan struct{}
	nodes corelisters.NodeLister // nil until Run

	mu       sync.Mutex // held for a whole pass: passes do not overlap
	machines map[string]*machine
	silent   map[types.UID]time.Time // since when the Nodes of servers that do not run are silent
}

// machine is what is known of the inside of one server.
type machine struct {
	bootedAt time.Time // the ActiveAt of the boot that was dealt with
	node     string    // the Node that it registered
	alive    bool
	gone     bool     // that the real machine is deleted
	attempt  *attempt // of a machine that has to prove that it may join, until it has
}

// New returns the guests of a cloud. They live by Run, or by Sync one pass at a time.
func New(c *cloud.Cloud, opts Options) *Guests {
	if opts.Region == "" {
		opts.Region = cloud.RegionHN
	}
	if opts.MemoryOverhead == 0 {
		opts.MemoryOverhead = 0.04
	}
	if opts.Interval == 0 {
		opts.Interval = 500 * time.Millisecond
	}
	if opts.NodeSilence == 0 {
		opts.NodeSilence = 30 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guests{cloud: c, opts: opts, wake: make(chan struct{}, 1), machines: map[string]*machine{}, silent: map[types.UID]time.Time{}}
	c.OnServer(func(cloud.Server) { g.poke() }, func(cloud.Server) { g.poke() })
	return g
}

func (g *Guests) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Run makes passes until the context ends. Errors are logged and tried again: machines outlive an API server that is
// away.
func (g *Guests) Run(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(g.opts.Client, 0)
	informer := factory.Core().V1().Nodes()
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.poke() }, UpdateFunc: func(any, any) { g.poke() }, DeleteFunc: func(any) { g.poke() },
	})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return
	}
	g.mu.Lock()
	g.nodes = informer.Lister()
	g.mu.Unlock()

	ticker := time.NewTicker(g.opts.Interval)
	defer ticker.Stop()
	for {
		if err := g.Sync(ctx); err != nil && ctx.Err() == nil {
			g.opts.Log.Warn("a pass over the guests failed, trying again", "error", err)
		}
		// A pass looks at every machine, so that one for each change of a Node would leave no processor time for anything else.
		select {
		case <-ctx.Done():
			return
		case <-time.After(g.opts.Interval / 5):
		}
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		case <-ticker.C:
		}
	}
}

// Sync makes one pass: machines that have booted join or record why not, dead ones fall silent, and the cloud controller
// manager updates every Node.
func (g *Guests) Sync(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cloud.Settle()
	servers := map[string]cloud.Server{}
	for _, s := range g.cloud.Servers() {
		servers[s.ID] = s
	}
	if g.opts.NoCCM {
		return g.live(ctx, servers)
	}
	return errors.Join(g.live(ctx, servers), g.manage(ctx, servers))
}

// each calls fn for all items, a few at a time, and returns all errors.
func each[T any](ctx context.Context, items []T, fn func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(16)
	failures := make([]error, len(items))
	for i, item := range items {
		group.Go(func() error {
			callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			failures[i] = fn(callCtx, item)
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(failures...)
}

// live is the life of the machines: boot, death, boot again.
func (g *Guests) live(ctx context.Context, servers map[string]cloud.Server) error {
	now := g.cloud.Clock().Now()
	var booting []cloud.Server
	var dying []string
	for id, s := range servers {
		m := g.machines[id]
		if m == nil {
			m = &machine{}
			g.machines[id] = m
		}
		switch up := s.Status == cloud.StatusActive; {
		case up && !m.bootedAt.Equal(s.Truth.ActiveAt) && !now.Before(s.Truth.ActiveAt.Add(g.cloud.Options().Boot)):
			booting = append(booting, s)
		case !up && m.alive:
			dying = append(dying, id)
		}
	}
	for id, m := range g.machines {
		if _, exists := servers[id]; exists {
			continue
		}
		if m.alive || g.opts.Machines != nil { // one without power has a disk
			dying = append(dying, id)
		} else {
			delete(g.machines, id)
		}
	}
	if g.opts.Machines != nil {
		return g.power(ctx, servers, booting, dying)
	}
	return errors.Join(
		each(ctx, booting, func(ctx context.Context, s cloud.Server) error { return g.boot(ctx, s, g.machines[s.ID]) }),
		each(ctx, dying, func(ctx context.Context, id string) error { return g.silence(ctx, g.machines[id]) }),
	)
}

// boot lets a machine join, or records why it does not.
func (g *Guests) boot(ctx context.Context, s cloud.Server, m *machine) error {
	p, reason := g.prepare(ctx, s)
	if reason == "" {
		_, _, reason = g.resources(s, p.kubelet)
	}
	if reason != "" {
		g.opts.Log.Info("a guest does not join", "server", s.Name, "reason", reason)
		g.cloud.SetGuest(s.ID, cloud.Guest{Reason: reason})
		m.bootedAt = s.Truth.ActiveAt
		return nil
	}
	own := g.opts.Client
	if p.credentials != nil {
		if m.attempt == nil || !m.attempt.bootedAt.Equal(s.Truth.ActiveAt) {
			m.attempt = &attempt{bootedAt: s.Truth.ActiveAt}
		}
		var err error
		if own, err = p.credentials.admit(ctx, g, m.attempt, cmp.Or(p.kubelet.nodeName, hostname(s))); err != nil {
			// Whoever joins tries again indefinitely; what it waits for is worth knowing.
			g.cloud.SetGuest(s.ID, cloud.Guest{Reason: err.Error()})
			return nil //nolint:nilerr // it is recorded, and tried again in the next pass
		}
	}
	if err := g.register(ctx, own, s, p.kubelet); err != nil {
		return err // the kubelet tries again indefinitely
	}
	node := cmp.Or(p.kubelet.nodeName, hostname(s))
	g.opts.Log.Info("a guest joined", "server", s.Name, "zone", s.AvailabilityZone, "flavor", s.Flavor.Name)
	g.cloud.SetGuest(s.ID, cloud.Guest{Joined: true, Node: node})
	m.bootedAt, m.node, m.alive, m.attempt = s.Truth.ActiveAt, node, true, nil
	return nil
}
