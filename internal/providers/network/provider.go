// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network finds the VPC networks, firewalls and SSH keys of a NodeClass.
package network

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// The keys of the cache are also what an error calls the list.
	cacheKeyNetworks  = "VPC networks"
	cacheKeyFirewalls = "firewalls"
	cacheKeySSHKeys   = "SSH keys"

	// defaultNetworkTag marks the project's default network where is_default is not sent.
	defaultNetworkTag = "default-vpc-network"
	// defaultFirewall is the firewall that the cloud attaches where none is requested.
	defaultFirewall = "default"
)

// Network is a resolved VPC network.
type Network struct {
	// ID is the network's id.
	ID string
	// Name is the network's name.
	Name string
	// Zones are the zones in which servers can have a port in it; empty when the API does not limit them.
	Zones []string
	// InternetGateway is true when the network has one.
	InternetGateway bool
}

// API is the part of BizFly Cloud that is used.
type API interface {
	bizfly.NetworkAPI
	// GetServer returns one server with its addresses.
	GetServer(ctx context.Context, id string) (*gobizfly.Server, error)
}

// DefaultProvider finds what servers are attached to, in complete lists, which it caches for as long as its cache keeps
// an entry by default. A *lookup.NotFoundError says that something does not exist, any other error that it could not be
// found out.
type DefaultProvider struct {
	api     API
	catalog catalog.Provider
	cache   *cache.Cache
	pools   PoolNodes
}

// NewDefaultProvider returns the provider. The catalog is asked for the network of the BKE cluster. The pools may be
// nil: then nothing is learned from their servers.
func NewDefaultProvider(api API, catalogProvider catalog.Provider, listCache *cache.Cache,
	pools PoolNodes) *DefaultProvider {
	return &DefaultProvider{api: api, catalog: catalogProvider, cache: listCache, pools: pools}
}

// Networks returns the VPC networks, one for each selector term, in their order and without repetition. Without terms
// they are those of status.poolServer, else the BKE cluster's own network or, without BKE, the project's default one.
// Of several that match a term it is the one that the NodeClass has resolved to already, and otherwise an error:
// whoever creates a network must not give every new server another interface.
func (p *DefaultProvider) Networks(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Network, error) {
	selectors := lo.Map(nodeClass.Spec.NetworkSelectorTerms, networkSelector)
	if pool := nodeClass.Status.PoolServer; len(selectors) == 0 && pool != nil {
		selectors = lo.Map(pool.Networks, func(id string, _ int) vpc {
			return vpc{field: "spec.networkSelectorTerms", value: id + " (that of node " + pool.Node + ")",
				remedy:  "the pool's network is not among this project's: name a network by id, name or tag",
				matches: func(n *gobizfly.VPCNetwork) bool { return n.ID == id }}
		})
	}
	if len(selectors) == 0 {
		discovered, err := p.discovered()
		if err != nil {
			return nil, err
		}
		selectors = []vpc{discovered}
	}
	used, list := networkIDs(nodeClass), lookup.NotEmpty(p.api.ListVPCNetworks)
	return lookup.Cached(ctx, p.cache, lookup.Reads{}, cacheKeyNetworks, list,
		func(all []*gobizfly.VPCNetwork) ([]Network, error) {
			selected, err := choose(all, selectors, func(n *gobizfly.VPCNetwork) string { return n.ID },
				func(n *gobizfly.VPCNetwork) string { return label(n.ID, n.Name) }, used, false)
			return lo.Map(selected, func(n *gobizfly.VPCNetwork, _ int) Network {
				return Network{ID: n.ID, Name: n.Name, Zones: zones(n), InternetGateway: lo.FromPtr(n.InternetGateway) != ""}
			}), err
		})
}

func networkIDs(nodeClass *v1alpha1.BizflyNodeClass) []string {
	return lo.Map(nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID })
}

// vpc selects a VPC network.
type vpc = selector[*gobizfly.VPCNetwork]

// discovered selects the network that is meant when the NodeClass names none.
func (p *DefaultProvider) discovered() (vpc, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return vpc{}, fmt.Errorf("looking up the cluster's VPC network: %w", err)
	}
	if snapshot.Cluster == nil && snapshot.ClusterUnknown {
		// The default network would be found, and taken for where all nodes belong until the cluster is known.
		return vpc{}, fmt.Errorf("spec.networkSelectorTerms is empty, which means the network of the BKE cluster: %w; set "+
			"BKE_CLUSTER_ID, or name a network by id, name or tag", catalog.ErrClusterUnknown)
	}
	if snapshot.Cluster == nil {
		return vpc{
			field:   "spec.networkSelectorTerms",
			value:   "the default VPC network",
			remedy:  "name a network by id, name or tag",
			matches: isDefault,
		}, nil
	}
	id := snapshot.Cluster.VPCNetworkID
	return vpc{
		field: "spec.networkSelectorTerms", value: fmt.Sprintf("%s (the BKE cluster's own)", id),
		remedy: "the cluster's network is not among this project's: check BKE_CLUSTER_ID, project and region, or name a " +
			"network by id, name or tag",
		matches: func(n *gobizfly.VPCNetwork) bool { return n.ID == id },
	}, nil
}

func networkSelector(term v1alpha1.NetworkSelectorTerm, i int) vpc {
	path := fmt.Sprintf("spec.networkSelectorTerms[%d]", i)
	matches := func(n *gobizfly.VPCNetwork) bool {
		return (term.Name == "" || n.Name == term.Name) && (term.Tag == "" || slices.Contains(n.Tags, term.Tag))
	}
	switch {
	case term.ID != "":
		return vpc{field: path + ".id", value: term.ID, matches: func(n *gobizfly.VPCNetwork) bool { return n.ID == term.ID }}
	case term.Name != "" && term.Tag != "":
		return vpc{field: path, value: term.Name + " with tag " + term.Tag,
			remedy: "no network has both this name and this tag", matches: matches}
	case term.Name != "":
		return vpc{field: path + ".name", value: term.Name, matches: matches}
	case term.Tag != "":
		return vpc{field: path + ".tag", value: term.Tag, remedy: "no network carries this tag", matches: matches}
	case term.Alias != "":
		return vpc{field: path + ".alias", value: term.Alias, remedy: "the project has no default VPC network",
			matches: isDefault}
	}
	return vpc{field: path, remedy: "set one of alias, id, name and tag", matches: func(*gobizfly.VPCNetwork) bool {
		return false
	}}
}

func isDefault(n *gobizfly.VPCNetwork) bool {
	return n.IsDefault || slices.Contains(n.Tags, defaultNetworkTag)
}

// zones are the zones that were requested when the network was created and those that serve it already: the API fills
// the latter only as servers are created, so that alone they are no limit.
func zones(n *gobizfly.VPCNetwork) []string {
	if len(lo.Compact(n.AvailabilityZoneHints)) == 0 {
		return nil
	}
	all := lo.Uniq(lo.Compact(slices.Concat(n.AvailabilityZoneHints, n.AvailabilityZones)))
	slices.Sort(all)
	return all
}

// Firewalls returns the firewalls, sorted by id; without terms those of status.poolServer, and none where these are the
// cloud's default. One of the pool's that the NodeClass has resolved to must be listed, as one that a term selects: all
// running servers would lose it, or get the default one instead.
func (p *DefaultProvider) Firewalls(ctx context.Context,
	nodeClass *v1alpha1.BizflyNodeClass) ([]v1alpha1.FirewallStatus, error) {
	pool := lo.FromPtr(nodeClass.Status.PoolServer)
	if len(nodeClass.Spec.FirewallSelectorTerms) == 0 && len(pool.Firewalls) == 0 {
		return nil, nil
	}
	selectors := lo.Map(nodeClass.Spec.FirewallSelectorTerms, func(term v1alpha1.FirewallSelectorTerm,
		i int) selector[*gobizfly.Firewall] {
		path := fmt.Sprintf("spec.firewallSelectorTerms[%d]", i)
		if term.ID != "" {
			return selector[*gobizfly.Firewall]{field: path + ".id", value: term.ID,
				matches: func(f *gobizfly.Firewall) bool { return f.ID == term.ID }}
		}
		return selector[*gobizfly.Firewall]{field: path + ".name", value: term.Name,
			matches: func(f *gobizfly.Firewall) bool { return term.Name != "" && f.Name == term.Name }}
	})
	ofTerms := len(selectors) > 0
	for _, used := range nodeClass.Status.Firewalls {
		if !ofTerms && slices.Contains(pool.Firewalls, used.ID) {
			selectors = append(selectors, selector[*gobizfly.Firewall]{
				field: "spec.firewallSelectorTerms", value: used.ID + " (that of node " + pool.Node + ")",
				remedy:  "the pool's firewall is not among this project's any more: select one by id or name",
				matches: func(f *gobizfly.Firewall) bool { return f.ID == used.ID }})
		}
	}
	return lookup.Cached(ctx, p.cache, lookup.Reads{}, cacheKeyFirewalls, p.api.ListFirewalls,
		func(all []*gobizfly.Firewall) ([]v1alpha1.FirewallStatus, error) {
			selected, err := choose(all, selectors, func(f *gobizfly.Firewall) string { return f.ID },
				func(f *gobizfly.Firewall) string { return label(f.ID, f.Name) }, nil, true)
			if !ofTerms && err == nil {
				selected = ofPool(all, pool)
			}
			firewalls := lo.Map(selected, func(f *gobizfly.Firewall, _ int) v1alpha1.FirewallStatus {
				return v1alpha1.FirewallStatus{ID: f.ID, Name: f.Name}
			})
			slices.SortFunc(firewalls, func(a, b v1alpha1.FirewallStatus) int { return strings.Compare(a.ID, b.ID) })
			return firewalls, err
		})
}

// DefaultFirewall returns the id of the firewall that the cloud attaches where none is requested.
func (p *DefaultProvider) DefaultFirewall(ctx context.Context) (string, error) {
	return lookup.Cached(ctx, p.cache, lookup.Reads{}, cacheKeyFirewalls, p.api.ListFirewalls,
		func(all []*gobizfly.Firewall) (string, error) {
			found, ok := lo.Find(all, func(f *gobizfly.Firewall) bool { return f != nil && f.Name == defaultFirewall })
			if !ok {
				return "", &lookup.NotFoundError{Field: "spec.firewallSelectorTerms", Value: defaultFirewall}
			}
			return found.ID, nil
		})
}

// ofPool are the firewalls of a pool's server, none where the cloud attaches them to every server. What the project
// does not list is left out, since it cannot be requested.
func ofPool(all []*gobizfly.Firewall, pool v1alpha1.PoolServerStatus) []*gobizfly.Firewall {
	listed := lo.Filter(all, func(f *gobizfly.Firewall, _ int) bool {
		return f != nil && slices.Contains(pool.Firewalls, f.ID)
	})
	if lo.EveryBy(listed, func(f *gobizfly.Firewall) bool { return f.Name == defaultFirewall }) {
		return nil
	}
	return listed
}

// SSHKey returns the name of the key, empty when the NodeClass selects none.
func (p *DefaultProvider) SSHKey(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (string, error) {
	name := nodeClass.Spec.SSHKeyName
	if name == "" {
		return "", nil
	}
	return lookup.Cached(ctx, p.cache, lookup.Reads{}, cacheKeySSHKeys, p.api.ListSSHKeys,
		func(all []*gobizfly.KeyPair) (string, error) {
			names := lo.Map(lo.Compact(all), func(k *gobizfly.KeyPair, _ int) string { return k.SSHKeyPair.Name })
			if slices.Contains(names, name) {
				return name, nil
			}
			return "", &lookup.NotFoundError{Field: "spec.sshKeyName", Value: name, Available: lookup.Shorten(names),
				Remedy: "keys belong to the user whose credentials the controller has"}
		})
}

// selector is one selector term in a form that does not depend on what it selects.
type selector[E any] struct {
	// field, value and remedy are those of the error when nothing matches.
	field, value, remedy string
	matches              func(E) bool
}

// choose returns what the selectors select: in their order, several matches of one by id, each thing once. Where
// several are not allowed, it is the one that is used already. A selector that selects nothing is an error, because a
// server without one of its networks or firewalls is not what was asked for.
func choose[E comparable](all []E, selectors []selector[E], id, label func(E) string,
	used []string, several bool) ([]E, error) {
	var selected []E
	var none E
	all = lo.Without(all, none)
	labels := func(of []E) []string { return lookup.Shorten(lo.Map(of, func(e E, _ int) string { return label(e) })) }
	for _, s := range selectors {
		matching := lo.Filter(all, func(e E, _ int) bool { return s.matches(e) })
		slices.SortFunc(matching, func(a, b E) int { return strings.Compare(id(a), id(b)) })
		chosen := matching
		if !several && len(matching) > 1 {
			chosen = lo.Filter(matching, func(e E, _ int) bool { return slices.Contains(used, id(e)) })
		}
		switch {
		case len(matching) == 0:
			return nil, &lookup.NotFoundError{Field: s.field, Value: s.value, Remedy: s.remedy, Available: labels(all)}
		case len(chosen) == 0:
			return nil, &lookup.NotFoundError{Field: s.field, Value: s.value, Remedy: "select one by its id",
				Several: labels(matching)}
		}
		selected = append(selected, chosen...)
	}
	return lo.UniqBy(selected, id), nil
}

func label(id, name string) string {
	if name == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", name, id)
}
