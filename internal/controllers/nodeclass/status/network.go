// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// resolvePoolServer reads what a server of a pool has. Its error says that it was never read: a server must not get a
// public address, or another network, because a list failed.
func (c *Controller) resolvePoolServer(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	found, err := c.networks.PoolServer(ctx, nodeClass)
	nodeClass.Status.PoolServer = found
	if found != nil && err != nil {
		log.FromContext(ctx).Info("the interfaces of a server of BKE's pools cannot be read, what is known of them stays",
			"error", err.Error())
		return nil
	}
	return err
}

// resolveNetworks finds the VPC networks.
func (c *Controller) resolveNetworks(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	spec := nodeClass.Spec
	if err := c.resolvePoolServer(ctx, nodeClass); err != nil &&
		(len(spec.NetworkSelectorTerms) == 0 || len(spec.FirewallSelectorTerms) == 0 || spec.PublicIPv4 == nil) {
		return unavailable(
			fmt.Errorf("%w (not needed once networkSelectorTerms, firewallSelectorTerms and publicIPv4 are set)", err))
	}
	networks, err := c.networks.Networks(ctx, nodeClass)
	if err != nil {
		return missingOr(err, reasonNetworkNotFound)
	}
	nodeClass.Status.Networks = lo.Map(networks, func(n network.Network, _ int) v1alpha1.NetworkStatus {
		return v1alpha1.NetworkStatus{ID: n.ID, Name: n.Name}
	})
	return fine()
}

// resolveFirewalls finds the firewalls. Without terms they are those of a pool's server: before it was read, running
// servers must not get BizFly Cloud's default firewall instead of theirs.
func (c *Controller) resolveFirewalls(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	if len(nodeClass.Spec.FirewallSelectorTerms) == 0 && nodeClass.Status.PoolServer == nil &&
		!v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeNetworksReady) {
		return awaiting(reasonAwaitingNetworks,
			"without spec.firewallSelectorTerms, firewalls may be those of BKE's pools, which are read with the networks")
	}
	firewalls, err := c.networks.Firewalls(ctx, nodeClass)
	if err != nil {
		return missingOr(err, reasonFirewallNotFound)
	}
	nodeClass.Status.Firewalls = firewalls
	switch {
	case len(firewalls) == 0 && nodeClass.EffectivePublicIPv4():
		return fine(publicWithoutFirewall)
	case len(firewalls) > 0 && len(nodeClass.Spec.FirewallSelectorTerms) == 0:
		return fine("servers have the firewalls of node " + nodeClass.Status.PoolServer.Node + ", which is of a pool of BKE")
	}
	return fine()
}

// publicWithoutFirewall names the risk. It is not rejected: what BizFly Cloud's default firewall lets in is up to the
// project.
const publicWithoutFirewall = "risk: servers have public IPv4 addresses, and no firewall is selected: " +
	"BizFly Cloud attaches its default one, which may let the internet reach the kubelet and NodePorts; " +
	"select a firewall by spec.firewallSelectorTerms, or set spec.publicIPv4 to false"

// resolveSSHKey finds the SSH key.
func (c *Controller) resolveSSHKey(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	name, err := c.networks.SSHKey(ctx, nodeClass)
	if err != nil {
		return missingOr(err, reasonSSHKeyNotFound)
	}
	nodeClass.Status.SSHKeyName = name
	return fine()
}

// resolveEgress warns of servers that can reach nothing outside their networks. Ready does not depend on it: with
// mirrored images and the cluster on the same network, nothing from outside is needed.
func (c *Controller) resolveEgress(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	if nodeClass.EffectivePublicIPv4() {
		return fine("servers have public IPv4 addresses")
	}
	if nodeClass.Spec.PublicIPv4 == nil {
		return fine("node " + nodeClass.Status.PoolServer.Node +
			", which is of a pool of BKE, has joined without a public IPv4 address, too")
	}
	if !v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeNetworksReady) {
		return awaiting(reasonAwaitingNetworks, "whether there is a way out depends on the networks, which are not known yet")
	}
	networks, err := c.networks.Networks(ctx, nodeClass)
	if err != nil {
		return unavailable(err)
	}
	if gateway, ok := lo.Find(networks, func(n network.Network) bool { return n.InternetGateway }); ok {
		return fine(fmt.Sprintf("network %s has an internet gateway", gateway.Name))
	}
	names := lo.Map(networks, func(n network.Network, _ int) string { return fmt.Sprintf("%s (%s)", n.Name, n.ID) })
	return doubtful(reasonNoEgress, fmt.Sprintf(
		"spec.publicIPv4 is false and no network of the servers has an internet gateway (%s): "+
			"they reach no image registry and, unless it is on these networks, no cluster; set spec.publicIPv4 to true, "+
			"attach an internet gateway, or select a network that has one by spec.networkSelectorTerms",
		strings.Join(names, ", ")))
}
