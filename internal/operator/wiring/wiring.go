// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wiring builds the graph of providers and the cloud provider over it, in the one order and from the one
// reading of the settings that the controller, the kubectl plugin and all test environments share.
package wiring

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/account"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// Dependencies are what the providers are built over. API, APIReader and Settings must be set; the zero value of each
// other field is ready for use.
type Dependencies struct {
	// API is BizFly Cloud.
	API bizfly.API
	// Client is the manager's: reads come from its cache. Without it there are neither instance types nor join tokens.
	Client client.Client
	// APIReader reads from the API server itself.
	APIReader client.Reader
	// Recorder is nil where events are dropped.
	Recorder karpevents.Recorder
	// Settings are the active settings. Those that cannot be tuned are read once, here.
	Settings *options.Store
	// ClusterUID is the UID of the namespace kube-system. Without it no server is provably of this cluster, and every call
	// about one fails.
	ClusterUID string
	// CABundle is the certificate of the cluster's authority, PEM; empty is looked up.
	CABundle []byte
	// Overlay is core's store of NodeOverlays when that feature gate is on, and nil when it is off.
	Overlay cloudprovider.InstanceTypeOverlay
	// Recognized returns why this cluster may be a clone of the one whose servers it sees. Nil asks nothing.
	Recognized func(ctx context.Context) error

	// APIServer is the address at which the API server is reached from here; it may be empty.
	APIServer string
	// Clock is nil for the real one.
	Clock clock.WithDelayedExecution
	// ServerClock is that of the provider of servers, which waits for BizFly Cloud; nil means Clock.
	ServerClock clock.Clock
	// Catalog is nil where it is built like all others.
	Catalog *catalog.DefaultProvider
	// NewCache returns a cache whose entries live for a while; nil means caches that delete what has expired by
	// themselves.
	NewCache func(lifetime time.Duration) *cache.Cache
}

// Providers are the graph.
type Providers struct {
	Catalog   *catalog.DefaultProvider
	Capacity  *capacity.DefaultProvider
	Flavors   *flavor.DefaultProvider
	Images    *image.DefaultProvider
	Networks  *network.DefaultProvider
	Bootstrap *bootstrap.DefaultProvider
	Instances *instance.DefaultProvider
	BKE       *bke.DefaultProvider
	Account   *account.Provider
	// JoinTokens is nil where the controller may not create bootstrap tokens.
	JoinTokens jointoken.Provider
	// CloudProvider is the BizflyCloudProvider, undecorated, and CloudProviderConfig what it was made from, for another
	// one that differs in a part.
	CloudProvider       *cloudprovider.CloudProvider
	CloudProviderConfig cloudprovider.Config
}

// Build builds the graph. It sends no request.
func Build(d Dependencies) *Providers {
	d = d.withDefaults()
	opts, p := d.Settings.Load(), &Providers{}
	p.BKE = bke.NewDefaultProvider(bke.Config{
		Values: bke.Values{
			ClusterID:    opts.BKEClusterID,
			Token:        opts.BKEClusterToken,
			JoinEndpoint: opts.BKEJoinEndpoint,
			LogEndpoint:  opts.BKELogEndpoint,
		},
		Discover: opts.BKEDiscoverFromPool, APIServer: cmp.Or(opts.ClusterEndpoint, d.APIServer),
	}, d.APIReader, d.API, d.Clock)
	p.Catalog = d.Catalog
	if p.Catalog == nil {
		p.Catalog = catalog.NewDefaultProvider(d.API, d.Clock, catalogConfig(opts, p.BKE))
	}
	p.Capacity = capacity.NewDefaultProvider(d.Clock)
	p.buildBootstrap(d, opts)
	p.Flavors = flavor.NewDefaultProvider(p.Catalog, p.Capacity, p.Bootstrap, d.Client, d.Settings)
	p.Images = image.NewDefaultProvider(d.API, p.Catalog, d.NewCache(ttl.Lookup))
	var pools network.PoolNodes
	if opts.BKEDiscoverFromPool {
		pools = p.BKE.PoolNodes
	}
	p.Networks = network.NewDefaultProvider(d.API, p.Catalog, d.NewCache(ttl.Lookup), pools)
	p.Account = account.NewProvider(d.API, d.Clock)
	p.Instances = instance.NewDefaultProvider(instance.Config{
		ClusterName:   opts.ClusterName,
		ClusterUID:    d.ClusterUID,
		BKE:           p.BKE,
		Settings:      d.Settings,
		Clock:         d.ServerClock,
		Unpaid:        p.Account.Unpaid,
		OnLeaveFailed: func(node string, err error) { d.Recorder.Publish(events.LeaveFailed(node, err)) },
	}, d.API, p.Bootstrap, p.Catalog, func(ctx context.Context) (sets.Set[string], error) {
		return volumeHandles(ctx, d.APIReader)
	})
	p.CloudProviderConfig = cloudprovider.Config{
		KubeClient: d.Client, APIReader: d.APIReader, Recorder: d.Recorder, Clock: d.Clock,
		Instances: p.Instances, Flavors: p.Flavors, Catalog: p.Catalog, Capacity: p.Capacity,
		Overlay: d.Overlay, Settings: d.Settings, NewCache: d.NewCache, Recognized: d.Recognized,
	}
	p.CloudProvider = cloudprovider.New(p.CloudProviderConfig)
	return p
}

func (d Dependencies) withDefaults() Dependencies {
	if d.Recorder == nil {
		d.Recorder = discarded{}
	}
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.ServerClock == nil {
		d.ServerClock = d.Clock
	}
	if d.NewCache == nil {
		d.NewCache = func(lifetime time.Duration) *cache.Cache { return cache.New(lifetime, ttl.Cleanup) }
	}
	return d
}

// catalogConfig lets the catalog read the BKE cluster, whose id may have to be learned first.
func catalogConfig(opts *options.Options, values bke.Provider) catalog.Config {
	config := catalog.Config{BKEClusterID: opts.BKEClusterID, RegionLabel: opts.RegionLabel}
	if opts.BKEDiscoverFromPool {
		config.LearnedBKEClusterID = func(ctx context.Context) string {
			// Why it is not known, NodeClasses report.
			learned, _ := values.Values(ctx)
			return learned.ClusterID
		}
	}
	return config
}

func (p *Providers) buildBootstrap(d Dependencies, opts *options.Options) {
	config := bootstrap.Config{Options: opts, BKE: p.BKE, Reader: d.APIReader, CABundle: d.CABundle}
	if opts.JoinTokens {
		p.JoinTokens = jointoken.NewDefaultProvider(d.Client, d.Clock, opts.JoinTokenGroups)
		config.JoinTokens = p.JoinTokens
	}
	p.Bootstrap = bootstrap.NewDefaultProvider(config, p.Catalog)
}

// volumeHandles returns the ids of the volumes that PersistentVolumes name, of any driver: those of another one match
// no id of BizFly Cloud.
func volumeHandles(ctx context.Context, reader client.Reader) (sets.Set[string], error) {
	volumes := &corev1.PersistentVolumeList{}
	if err := reader.List(ctx, volumes); err != nil {
		return nil, fmt.Errorf("listing PersistentVolumes: %w", err)
	}
	return sets.New(lo.FilterMap(volumes.Items, func(v corev1.PersistentVolume, _ int) (string, bool) {
		return lo.FromPtr(v.Spec.CSI).VolumeHandle, v.Spec.CSI != nil
	})...), nil
}

// discarded drops events.
type discarded struct{}

// Publish implements core's events.Recorder.
func (discarded) Publish(...karpevents.Event) {}
