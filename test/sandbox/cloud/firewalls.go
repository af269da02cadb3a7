// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"net/http"
	"slices"
)

var _ = serverAPI.serve(on(http.MethodGet, "/firewalls", (*Cloud).listFirewalls))

// firewalls are the security groups of the call's project; other projects than ours have only the default one.
func (c *Cloud) firewalls(q *call) []Firewall {
	var firewalls []Firewall
	for _, firewall := range c.opts.Catalog.Firewalls[q.region] {
		if q.project != c.opts.Project {
			if firewall.Name != defaultFirewall {
				continue
			}
			firewall.ID = StableID("firewall", q.region, q.project, firewall.Name)
		}
		firewall.TenantID, firewall.ProjectID = q.project, q.project
		firewalls = append(firewalls, firewall)
	}
	return firewalls
}

func (c *Cloud) firewallName(p *port, id string) string {
	for _, firewall := range c.firewalls(&call{project: p.project, region: p.region}) {
		if firewall.ID == id {
			return firewall.Name
		}
	}
	return id
}

func (c *Cloud) listFirewalls(q *call) reply {
	users, ports := map[string]map[string]bool{}, map[string]int{}
	for _, p := range c.ports {
		for _, id := range p.firewalls {
			ports[id]++
			if p.server == "" {
				continue
			}
			if users[id] == nil {
				users[id] = map[string]bool{}
			}
			users[id][p.server] = true
		}
	}
	firewalls := []Firewall{}
	for _, firewall := range c.firewalls(q) {
		firewall.Servers = append([]string{}, slices.Sorted(maps.Keys(users[firewall.ID]))...)
		firewall.ServersCount, firewall.NetworkInterfaceCount = len(firewall.Servers), ports[firewall.ID]
		firewalls = append(firewalls, firewall)
	}
	return ok(firewalls)
}

// defaultFirewalls are those that a port gets where none is named.
func (c *Cloud) defaultFirewalls(q *call) []string {
	for _, firewall := range c.firewalls(q) {
		if firewall.Name == defaultFirewall {
			return []string{firewall.ID}
		}
	}
	return nil
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

func (c *Cloud) addFirewalls(q *call, p *port, ids []string) *reply {
	if rejection := c.checkGroups(q, ids); rejection != nil {
		return rejection
	}
	for _, id := range ids {
		if !slices.Contains(p.firewalls, id) {
			p.firewalls = append(p.firewalls, id)
		}
	}
	return nil
}

func (c *Cloud) removeFirewalls(q *call, p *port, ids []string) *reply {
	if rejection := c.checkGroups(q, ids); rejection != nil {
		return rejection
	}
	p.firewalls = slices.DeleteFunc(slices.Clone(p.firewalls), func(id string) bool { return slices.Contains(ids, id) })
	return nil
}
