// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// PoolNodes returns nodes of BKE's own pools, in the order in which their servers are to be learned from.
type PoolNodes func(ctx context.Context) ([]corev1.Node, error)

// PoolServer returns what a server of BKE's own pools has: once learned for a spec, that of the NodeClass's status. For another spec it is that
// of the status as long as a new node of a pool has it. It is returned with an error where the pools cannot be read, and nil where they are
// not to be learned from.
func (p *DefaultProvider) PoolServer(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*v1alpha1.PoolServerStatus, error) {
	if p.pools == nil {
		return nil, nil //nolint:nilnil // nothing is to be learned
	}
	known := nodeClass.Status.PoolServer
	if known != nil && lookup.Resolved(nodeClass, v1alpha1.ConditionTypeNetworksReady) {
		return known, nil // pools and lists change, and running servers must not get other firewalls for that
	}
	nodes, err := p.pools(ctx)
	if err != nil {
		return known, fmt.Errorf("finding nodes of BKE's pools: %w", err)
	}
	found, err := p.Interfaces(ctx, nodes, known)
	return cmp.Or(found, known), err
}

// Interfaces returns what the interfaces of the first of the nodes have that has any, or what is known if any node has the same: pools
// may differ, and new servers must not change with the order of nodes. It returns nil where none is listed.
func (p *DefaultProvider) Interfaces(ctx context.Context, nodes []corev1.Node, known *v1alpha1.PoolServerStatus) (*v1alpha1.PoolServerStatus, error) {
	found, err := lookup.Cached(ctx, p.cache, lookup.Reads{}, cacheKeyPorts, p.api.ListNetworkInterfaces,
		func(ports []*gobizfly.NetworkInterface) (*v1alpha1.PoolServerStatus, error) {
			var first *v1alpha1.PoolServerStatus
			for i := range nodes {
				found := interfacesOf(ports, &nodes[i])
				if found != nil && known != nil && sameInterfaces(found, known) {
					return known, nil
				}
				first = cmp.Or(first, found)
			}
			if first == nil && len(nodes) > 0 {
				return nil, errNoInterface
			}
			return first, nil
		})
	if errors.Is(err, errNoInterface) {
		return nil, nil
	}
	return found, err
}

// errNoInterface says that a list has no interface of the nodes; a cached one may be older than they are.
var errNoInterface = errors.New("no interface of a pool's server is listed")

// interfacesOf returns what the interfaces of a node's server have, nil where none is listed or the type of one is unknown.
func interfacesOf(ports []*gobizfly.NetworkInterface, node *corev1.Node) *v1alpha1.PoolServerStatus {
	id, _ := providerid.Parse(node.Spec.ProviderID)
	var found *v1alpha1.PoolServerStatus
	for _, port := range lo.Compact(ports) {
		if id == "" || lo.CoalesceOrEmpty(port.AttachedServer.ID, port.DeviceID) != id {
			continue
		}
		found = cmp.Or(found, &v1alpha1.PoolServerStatus{Node: node.Name})
		switch port.Type {
		case "WAN":
			found.PublicIPv4 = true
		case "LAN":
			found.Networks = lo.Union(found.Networks, []string{port.NetworkID})
		default:
			return nil // it may be public
		}
		found.Firewalls = lo.Union(found.Firewalls, port.SecurityGroups)
	}
	if found != nil {
		slices.Sort(found.Networks)
		slices.Sort(found.Firewalls)
	}
	return found
}

func sameInterfaces(a, b *v1alpha1.PoolServerStatus) bool {
	return a.PublicIPv4 == b.PublicIPv4 && slices.Equal(a.Networks, b.Networks) && slices.Equal(a.Firewalls, b.Firewalls)
}
