// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// PoolNodes returns nodes of BKE's own pools, in the order in which their servers are to be learned from.
type PoolNodes func(ctx context.Context) ([]corev1.Node, error)

// PoolServer returns what a server of BKE's own pools has: once learned for a spec, that of the NodeClass's status. For
// another spec it is that of the status as long as a new node of a pool has it, or as nothing is to be learned any
// more. It is returned with an error where the pools cannot be read.
func (p *DefaultProvider) PoolServer(ctx context.Context,
	nodeClass *v1alpha1.BizflyNodeClass) (*v1alpha1.PoolServerStatus, error) {
	known := nodeClass.Status.PoolServer
	// Pools, lists and settings change, and running servers must not get other firewalls or public addresses for that.
	if p.pools == nil || known != nil && v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeNetworksReady) {
		return known, nil
	}
	nodes, err := p.pools(ctx)
	if err != nil {
		return known, fmt.Errorf("finding nodes of BKE's pools: %w", err)
	}
	found, err := p.Interfaces(ctx, nodes, known)
	return cmp.Or(found, known), err
}

// Interfaces returns what the interfaces of most of the nodes have, or what is known if any node has the same: pools
// may differ, and new servers must not change with the order of nodes. It returns nil where no server of them exists.
func (p *DefaultProvider) Interfaces(ctx context.Context, nodes []corev1.Node,
	known *v1alpha1.PoolServerStatus) (*v1alpha1.PoolServerStatus, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	ports, err := p.api.ListNetworkInterfaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	byServer := lo.GroupBy(lo.Compact(ports), bizfly.UsedBy)
	var all []*v1alpha1.PoolServerStatus
	var failures []error
	for _, node := range nodes {
		found, err := p.interfacesOf(ctx, byServer[serverOf(node)], node)
		if bizfly.IsNotFound(err) {
			continue
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("reading what node %s has, which is of a pool of BKE: %w", node.Name, err))
			continue
		}
		if known != nil && sameInterfaces(found, known) {
			return known, nil
		}
		all = append(all, found)
	}
	if len(all) == 0 || known != nil && len(failures) > 0 {
		return nil, errors.Join(failures...) // what is known may be what the others have
	}
	return mostCommon(all, failures)
}

// mostCommon returns what more than half of the nodes have, with those that could not be read. Who may create a Node
// may let it name any server of this cluster.
func mostCommon(all []*v1alpha1.PoolServerStatus, unread []error) (*v1alpha1.PoolServerStatus, error) {
	for _, candidate := range all {
		same := lo.CountBy(all, func(other *v1alpha1.PoolServerStatus) bool { return sameInterfaces(candidate, other) })
		if 2*same > len(all)+len(unread) {
			return candidate, nil
		}
	}
	if len(unread) > 0 {
		return nil, errors.Join(unread...)
	}
	names := lo.Map(all, func(found *v1alpha1.PoolServerStatus, _ int) string { return found.Node })
	return nil, fmt.Errorf("nodes %s of BKE's pools have different networks, firewalls or public addresses, and no more "+
		"than half of them the same", strings.Join(names, ", "))
}

// serverOf returns the id of the node's server.
func serverOf(node corev1.Node) string {
	id, _ := providerid.Parse(node.Spec.ProviderID)
	return id
}

// interfacesOf returns what the interfaces of a node's server have. Which of them are private follows from the
// addresses of the server: no public sample of the list has the type of an interface. Where it does not follow, that is
// an error: new servers might become public although those of the pools are private.
func (p *DefaultProvider) interfacesOf(ctx context.Context, ports []*gobizfly.NetworkInterface,
	node corev1.Node) (*v1alpha1.PoolServerStatus, error) {
	server, err := p.api.GetServer(ctx, serverOf(node))
	if err != nil {
		return nil, err
	}
	if len(ports) == 0 {
		return nil, errors.New("none of the network interfaces of its server is listed")
	}
	addresses := server.IPAddresses
	if len(addresses.LanAddresses)+len(addresses.WanV4Addresses)+len(addresses.WanV6Addresses) == 0 {
		return nil, errors.New("its server is listed without addresses, so it may be public or private")
	}
	found := &v1alpha1.PoolServerStatus{Node: node.Name, PublicIPv4: len(addresses.WanV4Addresses) > 0}
	for _, private := range addresses.LanAddresses {
		of := lo.Filter(ports, func(port *gobizfly.NetworkInterface, _ int) bool { return hasAddress(port, private.Address) })
		if len(of) == 0 {
			return nil, fmt.Errorf("no interface of its server with the address %q is listed, so one of its networks is unknown",
				private.Address)
		}
		found.Networks = lo.Union(found.Networks, lo.Map(of, func(port *gobizfly.NetworkInterface, _ int) string {
			return port.NetworkID
		}))
	}
	for _, port := range ports {
		found.Firewalls = lo.Union(found.Firewalls, port.SecurityGroups)
	}
	slices.Sort(found.Networks)
	slices.Sort(found.Firewalls)
	return found, nil
}

func hasAddress(port *gobizfly.NetworkInterface, address string) bool {
	return port.IPAddress == address || slices.ContainsFunc(port.FixedIps, func(ip gobizfly.FixedIp) bool {
		return ip.IPAddress == address
	})
}

func sameInterfaces(a, b *v1alpha1.PoolServerStatus) bool {
	return a.PublicIPv4 == b.PublicIPv4 && slices.Equal(a.Networks, b.Networks) && slices.Equal(a.Firewalls, b.Firewalls)
}
