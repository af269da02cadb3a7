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

// Package network finds the VPC networks, firewalls and SSH keys of a NodeClass.
package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
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
)

// errClusterUnknown means that the network of the cluster cannot be looked up yet.
var errClusterUnknown = errors.New("spec.networkSelectorTerms is empty, which means the network of the BKE cluster, and that cluster's id could not be " +
	"learned yet (BKE_DISCOVER_FROM_POOL): set BKE_CLUSTER_ID, or name a network by id, name or tag")

// Network is a resolved VPC network.
type Network struct {
	// ID is the network's id.
	ID string
	// Name is the network's name.
	Name string
	// Zones are the zones in which servers can have a port in it; empty when the API does not name them.
	Zones []string
	// InternetGateway is true when the network has one.
	InternetGateway bool
}

// Firewall is a resolved firewall.
type Firewall struct {
	// ID is the firewall's id.
	ID string
	// Name is the firewall's name.
	Name string
}

// Provider finds what servers are attached to. Answers are cached for a short while; a *lookup.NotFoundError says that
// something does not exist, any other error that it could not be found out.
type Provider interface {
	// Networks returns the VPC networks, in the order of the selector terms and without repetition. Without terms it
	// is the BKE cluster's own network or, without BKE, the project's default one.
	Networks(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Network, error)
	// Firewalls returns the firewalls, sorted by id.
	Firewalls(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Firewall, error)
	// SSHKey returns the name of the key, empty when the NodeClass selects none.
	SSHKey(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (string, error)
}

// DefaultProvider chooses from complete lists, which it caches for as long as its cache keeps an entry by default.
type DefaultProvider struct {
	api     bizfly.NetworkAPI
	catalog catalog.Provider
	cache   lookup.Cache
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns the provider. The catalog is asked for the network of the BKE cluster.
func NewDefaultProvider(api bizfly.NetworkAPI, catalogProvider catalog.Provider, listCache lookup.Cache) *DefaultProvider {
	return &DefaultProvider{api: api, catalog: catalogProvider, cache: listCache}
}

// Networks implements Provider.
func (p *DefaultProvider) Networks(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Network, error) {
	selectors := lo.Map(nodeClass.Spec.NetworkSelectorTerms, networkSelector)
	if len(selectors) == 0 {
		discovered, err := p.discovered()
		if err != nil {
			return nil, err
		}
		selectors = []vpc{discovered}
	}
	return lookup.Cached(ctx, p.cache, cacheKeyNetworks, p.api.ListVPCNetworks, func(all []*gobizfly.VPCNetwork) ([]Network, error) {
		selected, err := choose(all, selectors, func(n *gobizfly.VPCNetwork) string { return n.ID },
			func(n *gobizfly.VPCNetwork) string { return label(n.ID, n.Name) })
		return lo.Map(selected, func(n *gobizfly.VPCNetwork, _ int) Network {
			return Network{ID: n.ID, Name: n.Name, Zones: zones(n), InternetGateway: lo.FromPtr(n.InternetGateway) != ""}
		}), err
	})
}

// vpc selects a VPC network.
type vpc = selector[*gobizfly.VPCNetwork]

// discovered selects the network that is meant when the NodeClass names none.
func (p *DefaultProvider) discovered() (vpc, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return vpc{}, fmt.Errorf("looking up the cluster's VPC network: %w", err)
	}
	if snapshot.ClusterUnknown {
		// The default network would be found, and taken for where all nodes belong until the cluster is known.
		return vpc{}, errClusterUnknown
	}
	if snapshot.Cluster == nil {
		return vpc{
			field: "spec.networkSelectorTerms", value: "the default VPC network", remedy: "name a network by id, name or tag", matches: isDefault,
		}, nil
	}
	id := snapshot.Cluster.VPCNetworkID
	return vpc{
		field: "spec.networkSelectorTerms", value: fmt.Sprintf("%s (the BKE cluster's own)", id),
		remedy:  "the cluster's network is not among this project's: check BKE_CLUSTER_ID, project and region, or name a network by id, name or tag",
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
		return vpc{field: path, value: term.Name + " with tag " + term.Tag, remedy: "no network has both this name and this tag", matches: matches}
	case term.Name != "":
		return vpc{field: path + ".name", value: term.Name, matches: matches}
	case term.Tag != "":
		return vpc{field: path + ".tag", value: term.Tag, remedy: "no network carries this tag", matches: matches}
	case term.Alias != "":
		return vpc{field: path + ".alias", value: term.Alias, remedy: "the project has no default VPC network", matches: isDefault}
	}
	return vpc{field: path, remedy: "set one of alias, id, name and tag", matches: func(*gobizfly.VPCNetwork) bool { return false }}
}

func isDefault(n *gobizfly.VPCNetwork) bool {
	return n.IsDefault || slices.Contains(n.Tags, defaultNetworkTag)
}

// zones are the zones that were requested when the network was created and those that serve it already: the API fills the
// latter only as servers are created, so that a new network would otherwise seem to reach fewer zones than it does.
func zones(n *gobizfly.VPCNetwork) []string {
	all := lo.Uniq(lo.Compact(slices.Concat(n.AvailabilityZoneHints, n.AvailabilityZones)))
	slices.Sort(all)
	return all
}

// Firewalls implements Provider.
func (p *DefaultProvider) Firewalls(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]Firewall, error) {
	if len(nodeClass.Spec.FirewallSelectorTerms) == 0 {
		return nil, nil
	}
	selectors := lo.Map(nodeClass.Spec.FirewallSelectorTerms, func(term v1alpha1.FirewallSelectorTerm, i int) selector[*gobizfly.Firewall] {
		path := fmt.Sprintf("spec.firewallSelectorTerms[%d]", i)
		if term.ID != "" {
			return selector[*gobizfly.Firewall]{field: path + ".id", value: term.ID,
				matches: func(f *gobizfly.Firewall) bool { return f.ID == term.ID }}
		}
		return selector[*gobizfly.Firewall]{field: path + ".name", value: term.Name,
			matches: func(f *gobizfly.Firewall) bool { return term.Name != "" && f.Name == term.Name }}
	})
	return lookup.Cached(ctx, p.cache, cacheKeyFirewalls, p.api.ListFirewalls, func(all []*gobizfly.Firewall) ([]Firewall, error) {
		selected, err := choose(all, selectors, func(f *gobizfly.Firewall) string { return f.ID },
			func(f *gobizfly.Firewall) string { return label(f.ID, f.Name) })
		firewalls := lo.Map(selected, func(f *gobizfly.Firewall, _ int) Firewall { return Firewall{ID: f.ID, Name: f.Name} })
		slices.SortFunc(firewalls, func(a, b Firewall) int { return strings.Compare(a.ID, b.ID) })
		return firewalls, err
	})
}

// SSHKey implements Provider.
func (p *DefaultProvider) SSHKey(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (string, error) {
	name := nodeClass.Spec.SSHKeyName
	if name == "" {
		return "", nil
	}
	keyName := func(k *gobizfly.KeyPair) string { return k.SSHKeyPair.Name }
	return lookup.Cached(ctx, p.cache, cacheKeySSHKeys, p.api.ListSSHKeys, func(all []*gobizfly.KeyPair) (string, error) {
		_, err := choose(all, []selector[*gobizfly.KeyPair]{{
			field: "spec.sshKeyName", value: name,
			remedy:  "keys belong to the user whose credentials the controller has",
			matches: func(k *gobizfly.KeyPair) bool { return keyName(k) == name },
		}}, keyName, keyName)
		return lo.Ternary(err == nil, name, ""), err
	})
}

// selector is one selector term in a form that does not depend on what it selects.
type selector[E any] struct {
	// field, value and remedy are those of the error when nothing matches.
	field, value, remedy string
	matches              func(E) bool
}

// choose returns what the selectors select: in their order, several matches of one by id, each thing once. A selector
// that selects nothing is an error, because a server without one of its networks or firewalls is not what was asked for.
func choose[E comparable](all []E, selectors []selector[E], id, label func(E) string) ([]E, error) {
	var selected []E
	var none E
	all = lo.Without(all, none)
	for _, s := range selectors {
		matching := lo.Filter(all, func(e E, _ int) bool { return s.matches(e) })
		if len(matching) == 0 {
			return nil, &lookup.NotFoundError{Field: s.field, Value: s.value, Remedy: s.remedy,
				Available: lookup.Shorten(lo.Map(all, func(e E, _ int) string { return label(e) }))}
		}
		slices.SortFunc(matching, func(a, b E) int { return strings.Compare(id(a), id(b)) })
		selected = append(selected, matching...)
	}
	return lo.UniqBy(selected, id), nil
}

func label(id, name string) string {
	if name == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", name, id)
}
