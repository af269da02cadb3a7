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

package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// defaultTaskReadsPerPoll is that of Config.
const defaultTaskReadsPerPoll = 20

// rebootMemory exceeds the five minutes in which core repeats a reboot.
const rebootMemory = time.Hour

// errNoClusterUID makes every call fail while we do not know who we are: without the UID nothing is provably ours.
var errNoClusterUID = errors.New("the UID of the kube-system namespace is not known, so no server can be told to be this cluster's")

// Config is what the cluster and the operator's options decide.
type Config struct {
	// ClusterName is the cluster's name, for people.
	ClusterName string
	// ClusterUID is the UID of the kube-system namespace, by which we know our servers. Every call fails without it.
	ClusterUID string
	// BKEClusterID and BKEClusterToken are what BKE is told a node's leave with; without both there is no BKE to leave.
	BKEClusterID    string
	BKEClusterToken string
	// BKE gives these two where they may have to be learned, and then wins; nil means that they are all there is.
	BKE bke.Provider
	// Settings are the active settings; nil means the defaults.
	Settings *options.Store
	// TaskReadsPerPoll is the most tasks that one poll reads; the default is 20.
	TaskReadsPerPoll int
	// Clock is nil for the real one.
	Clock clock.Clock
	// OnLeftover is called once for each thing that a deleted server left and that could not be removed in time, with the
	// server's name and why; nil calls nothing. Its NodeClaim ends without it, and Reap goes on trying.
	OnLeftover func(ctx context.Context, server string, kind LeftoverKind, err error)
	// Audit gets a line for each server that is provably gone; nil writes it to the log.
	Audit *audit.Log
}

func (c Config) withDefaults() Config {
	if c.BKE == nil {
		c.BKE = bke.Values{ClusterID: c.BKEClusterID, Token: c.BKEClusterToken}
	}
	if c.Settings == nil {
		c.Settings = options.NewStore(nil)
	}
	c.TaskReadsPerPoll = lo.CoalesceOrEmpty(c.TaskReadsPerPoll, defaultTaskReadsPerPoll)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.OnLeftover == nil {
		c.OnLeftover = func(context.Context, string, LeftoverKind, error) {}
	}
	if c.Audit == nil {
		c.Audit = audit.New(log.Log)
	}
	return c
}

// DefaultProvider is the Provider over BizFly's API. It is safe for concurrent use.
type DefaultProvider struct {
	config    Config
	api       bizfly.API
	bootstrap bootstrap.Provider
	catalog   catalog.Provider
	protected func(context.Context) (sets.Set[string], error)
	servers   *sharedList[*gobizfly.Server]
	volumes   *sharedList[*gobizfly.Volume]
	ports     *sharedList[*gobizfly.NetworkInterface]
	firewalls *sharedList[*gobizfly.Firewall]
	poller    *poller
	settings  *options.Store
	deletions *tracker
	names     flavorNames
	reboots   *cache.Cache
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns a provider. protected returns the handles of the volumes that PersistentVolumes name, from
// a read that is not older than the call; when it fails no disk is deleted. deletions remembers what is being deleted
// and needs a default expiration of about an hour.
func NewDefaultProvider(config Config, api bizfly.API, bootstrapProvider bootstrap.Provider, catalogProvider catalog.Provider,
	protected func(context.Context) (sets.Set[string], error), deletions *cache.Cache) *DefaultProvider {
	config = config.withDefaults()
	if protected == nil {
		protected = func(context.Context) (sets.Set[string], error) {
			return nil, errors.New("nobody says which volumes PersistentVolumes own")
		}
	}
	p := &DefaultProvider{
		config:    config,
		api:       api,
		bootstrap: bootstrapProvider,
		catalog:   catalogProvider,
		protected: protected,
		settings:  config.Settings,
		servers:   newSharedList(config.Clock, api.ListServers),
		volumes:   newSharedList(config.Clock, api.ListVolumes),
		ports:     newSharedList(config.Clock, api.ListNetworkInterfaces),
		firewalls: newSharedList(config.Clock, api.ListFirewalls),
		deletions: &tracker{cache: deletions},
		names:     flavorNames{known: map[string]flavorName{}},
		reboots:   cache.New(rebootMemory, 0),
	}
	p.poller = newPoller(p)
	return p
}

// Get returns a server of this cluster.
func (p *DefaultProvider) Get(ctx context.Context, id string) (*Instance, error) {
	if p.config.ClusterUID == "" {
		return nil, errNoClusterUID
	}
	server, err := p.api.GetServer(ctx, id)
	if bizfly.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", id, err)
	}
	if gone(server) || !p.ours(server) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return convert(server), nil
}

// List returns all servers of this cluster.
func (p *DefaultProvider) List(ctx context.Context) ([]*Instance, error) {
	if p.config.ClusterUID == "" {
		return nil, errNoClusterUID
	}
	servers, err := p.servers.get(ctx, p.settings.Load().ServerListMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return lo.FilterMap(servers, func(server *gobizfly.Server, _ int) (*Instance, bool) {
		if !p.ours(server) {
			return nil, false
		}
		return convert(server), true
	}), nil
}
