// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"

	"k8s.io/utils/ptr"
)

// firewallPorts are the ports that a request names, itself or by their servers.
func (c *Cloud) firewallPorts(q *call, request firewallRequest) (map[string]bool, *reply) {
	if request.Targets == nil && request.NetworkInterfaces == nil {
		return nil, nil
	}
	ports := map[string]bool{}
	for _, id := range ptr.Deref(request.NetworkInterfaces, nil) {
		if p := c.ports[id]; p == nil || !p.owned(q) {
			return nil, bad("Port %s could not be found.", id)
		}
		ports[id] = true
	}
	for _, id := range ptr.Deref(request.Targets, nil) {
		s := c.visibleServer(q, id)
		if s == nil {
			return nil, bad("Instance %s could not be found.", id)
		}
		for _, port := range s.ports {
			ports[port] = true
		}
	}
	return ports, nil
}

// setFirewallPorts gives a firewall to these ports and to no others; nil changes nothing.
func (c *Cloud) setFirewallPorts(id string, wanted map[string]bool) {
	if wanted == nil {
		return
	}
	for _, p := range c.ports {
		switch has := slices.Contains(p.firewalls, id); {
		case wanted[p.id] && !has:
			p.firewalls = append(slices.Clone(p.firewalls), id)
		case !wanted[p.id] && has:
			p.removeFirewall(id)
		}
	}
}

func (p *port) removeFirewall(id string) {
	p.firewalls = slices.DeleteFunc(slices.Clone(p.firewalls), func(other string) bool { return other == id })
}

type firewallServersRequest struct {
	Servers []string `json:"servers"`
}

// removeFirewallServers takes the firewall off every port of servers.
func (c *Cloud) removeFirewallServers(q *call) reply {
	request, rejection := decode[firewallServersRequest](q)
	if rejection != nil {
		return *rejection
	}
	firewall, found := c.findFirewall(q)
	switch {
	case !found:
		return noSuchFirewall(q.vars[0])
	case len(request.Servers) == 0:
		return reject(http.StatusBadRequest, "servers is required")
	}
	for _, id := range request.Servers {
		if c.visibleServer(q, id) == nil {
			return *bad("Instance %s could not be found.", id)
		}
	}
	for _, id := range request.Servers {
		for _, port := range c.servers[id].ports {
			c.ports[port].removeFirewall(firewall.ID)
		}
	}
	detail := c.firewallDetailOf(firewall)
	firewall.Servers = []string{}
	for _, s := range detail.Servers {
		firewall.Servers = append(firewall.Servers, s.ID)
	}
	firewall.ServersCount, firewall.NetworkInterfaceCount = detail.ServersCount, detail.NetworkInterfaceCount
	return ok(firewall)
}

// checkGroups rejects what names no firewall of the project.
func (c *Cloud) checkGroups(q *call, ids []string) *reply {
	if len(ids) == 0 {
		return bad("security_groups is required")
	}
	for _, id := range ids {
		if !slices.ContainsFunc(c.firewalls(q), func(f Firewall) bool { return f.ID == id }) {
			return bad("Security group %s not found.", id)
		}
	}
	return nil
}

func (c *Cloud) addFirewalls(q *call, p *port, ids []string) (*port, *reply) {
	if rejection := c.checkGroups(q, ids); rejection != nil {
		return nil, rejection
	}
	for _, id := range ids {
		if !slices.Contains(p.firewalls, id) {
			p.firewalls = append(p.firewalls, id)
		}
	}
	return p, nil
}

func (c *Cloud) removeFirewalls(q *call, p *port, ids []string) (*port, *reply) {
	if rejection := c.checkGroups(q, ids); rejection != nil {
		return nil, rejection
	}
	p.firewalls = slices.DeleteFunc(slices.Clone(p.firewalls), func(id string) bool { return slices.Contains(ids, id) })
	return p, nil
}
