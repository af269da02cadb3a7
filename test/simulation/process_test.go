// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coregc "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/garbagecollection"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
)

// core is core's own lifecycle controller. It starts the janitor of a cache, which must not run in simulated time, so it is
// created before and gets its client and provider later.
type core struct {
	kube      *lateClient
	provider  *lateProvider
	lifecycle *lifecycle.Controller
}

type lateClient struct{ client.Client }

type lateProvider struct {
	corecloudprovider.CloudProvider
}

// recorder keeps the reasons of the warnings that were published. The zero value is ready for use.
type recorder struct {
	mu       sync.Mutex
	warnings map[string]int
}

// Publish implements core's events.Recorder.
func (r *recorder) Publish(events ...karpevents.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range events {
		if event.Type == corev1.EventTypeWarning {
			if r.warnings == nil {
				r.warnings = map[string]int{}
			}
			r.warnings[event.Reason]++
		}
	}
}

func newCore(told karpevents.Recorder) *core {
	c := &core{kube: &lateClient{}, provider: &lateProvider{}}
	c.lifecycle = lifecycle.NewController(clock.RealClock{}, c.kube, c.provider, told, state.NewCluster(clock.RealClock{}, c.kube, c.provider),
		nodepoolhealth.NewState(), nil)
	return c
}

// process is one process of the controller. All its calls go through enter and step.
type process struct {
	sim    *simulation
	number int
	ctx    context.Context
	cancel context.CancelFunc
	kube   client.Client

	core          *core
	caches        []*cache.Cache
	instances     *instance.DefaultProvider
	cloudProvider *cloudprovider.CloudProvider
	server        *server.Controller
	collector     *garbagecollection.Controller
	coreCollector *coregc.Controller
	status        *status.Controller

	mu   sync.Mutex
	dead bool
	// left is after how many steps it dies; negative is never. committing means that the last one still has its effect.
	left       int
	committing bool
	// frozen is until when none of its calls proceed, as on a frozen machine.
	frozen time.Time
	// deposed is true when another process leads, although this one may not have ended.
	deposed bool
}

// enter is the moment before a call leaves the process.
func (p *process) enter(ctx context.Context) error {
	for {
		p.mu.Lock()
		dead, wait := p.dead, time.Until(p.frozen)
		p.mu.Unlock()
		switch {
		case dead:
			return errDead
		case wait <= 0:
			return ctx.Err()
		}
		// A frozen machine does not notice that a context has ended either.
		_ = sleep(context.Background(), wait)
	}
}

// step makes one call unless the process dies before it, and returns its result unless the process dies during it.
func (p *process) step(what string, call func() error) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errDead
	}
	dies := p.left == 0
	if p.left > 0 {
		p.left--
	}
	if dies {
		p.dead = true
	}
	committing := p.committing
	p.mu.Unlock()
	if blow := p.sim.nextBlow(what); blow != "" {
		return p.strike(blow, what, call)
	}
	if !dies {
		err := call()
		p.sim.trace("%d: %s: %v", p.number, what, err)
		return err
	}
	p.sim.trace("%d: dies at %s, with effect: %t", p.number, what, committing)
	if committing {
		_ = call()
	}
	p.cancel()
	return errDead
}

// dieAfter lets the process die at the n-th call from now.
func (p *process) dieAfter(n int, committing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.committing = n, committing
}

func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cancel()
}

func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = time.Now().Add(d)
}

// gone reports whether another process must lead.
func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead || p.deposed
}

// newProcess starts a controller without state, as internal/operator builds it.
func (sim *simulation) newProcess() *process {
	p := &process{sim: sim, number: len(sim.processes) + 1, left: -1, core: sim.cores[len(sim.processes)]}
	p.ctx, p.cancel = context.WithCancel(sim.ctx)
	p.kube = sim.kubeFor(p)
	credentials, bke := sim.cloud.Credentials(), sim.cloud.BKE()
	api := lo.Must(bizfly.NewClient(bizfly.Config{
		APIURL: "http://cloud.test/api", AllowHTTP: true, Region: credentials.Region, AuthMethod: bizfly.AuthMethodAppCredential,
		AppCredID: credentials.AppCredID, AppCredSecret: credentials.AppCredSecret, Registerer: prometheus.NewRegistry(),
		Transport: wire{p},
		// Randomness that does not follow from the seed would make a simulation impossible to replay.
		Spread: func(n int64) int64 { return n / 2 },
	}))
	api.Confirm(bizfly.Scope{Host: "cloud.test", Region: lo.Must(bizfly.ParseRegion(credentials.Region)), ProjectID: credentials.ProjectID})
	opts := options.Defaults()
	opts.ClusterName, opts.BKEClusterID, opts.BKEClusterToken = clusterName, bke.ClusterUID, bke.ClusterToken
	opts.BKEJoinEndpoint, opts.BKELogEndpoint, opts.JoinTokens = bke.JoinEndpoint, bke.LogEndpoint, true
	opts.ClusterEndpoint = "10.0.0.1:6443"
	// Not a divisor of the other times, so that no two things happen at the same moment by design.
	opts.ServerPollInterval, opts.GarbageCollectionGrace = 1970*time.Millisecond, sim.grace
	settings := options.NewStore(opts)
	built := wiring.Build(wiring.Dependencies{
		API: api, Client: p.kube, APIReader: p.kube, Recorder: &sim.told, Settings: settings, ClusterUID: clusterUID, Catalog: sim.shared,
		// A janitor would outlive the simulation.
		NewCache: func(lifetime time.Duration) *cache.Cache {
			p.caches = append(p.caches, cache.New(lifetime, 0))
			return p.caches[len(p.caches)-1]
		},
	})
	if sim.shared == nil {
		sim.shared = built.Catalog
		if err := sim.shared.Refresh(sim.ctx); err != nil {
			sim.trace("the catalog: %v", err)
		}
	}
	sim.providers = built
	if sim.nodeClass == nil {
		sim.makeNodeClass()
	}
	p.instances, p.cloudProvider = built.Instances, built.CloudProvider
	p.server = server.NewController(p.kube, p.instances, built.Networks, p.cloudProvider.Launches, built.JoinTokens, &sim.told, clock.RealClock{})
	p.collector = garbagecollection.NewController(garbagecollection.Config{Settings: settings},
		p.kube, p.kube, p.instances, &sim.told, clock.RealClock{})
	p.status = status.NewController(p.kube, clock.RealClock{}, built.Catalog, built.Images, built.Networks, built.Bootstrap, built.Flavors)
	p.coreCollector = coregc.NewController(clock.RealClock{}, p.kube, p.cloudProvider)
	p.core.kube.Client, p.core.provider.CloudProvider = p.kube, p.cloudProvider
	sim.processes = append(sim.processes, p)
	sim.trace("%d: starts", p.number)
	return p
}

// serverID returns the server id in a provider id.
func serverID(providerID string) string {
	return providerID[strings.LastIndex(providerID, "/")+1:]
}
