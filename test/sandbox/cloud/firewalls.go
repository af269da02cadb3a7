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

package cloud

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

type firewallRequest struct {
	Name     string `json:"name"`
	Inbound  []rule `json:"inbound"`
	Outbound []rule `json:"outbound"`
}

type rule struct {
	Type     string `json:"type"`
	Protocol string `json:"protocol"`
	CIDR     string `json:"cidr"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/firewalls", (*Cloud).listFirewalls),
	on(http.MethodPost, "/firewalls", (*Cloud).createFirewall),
	on(http.MethodGet, "/firewalls/{id}", (*Cloud).getFirewall),
	on(http.MethodDelete, "/firewalls/{id}", (*Cloud).deleteFirewall),
)

func (c *Cloud) createFirewall(q *call) reply {
	request, refusal := decode[firewallRequest](q)
	if refusal == nil {
		refusal = c.mayChange(q)
	}
	if refusal != nil {
		return *refusal
	}
	if request.Name == "" {
		return refuse(http.StatusBadRequest, "name is required")
	}
	made := Firewall{
		ID: c.newUUID(), Name: request.Name, TenantID: q.project, ProjectID: q.project, Tags: []string{}, CreatedAt: seconds(c.now), UpdatedAt: seconds(c.now),
		RevisionNumber: 1, Servers: []string{}, RulesCount: len(request.Inbound) + len(request.Outbound),
	}
	rules := func(direction string, wanted []rule) []FirewallRule {
		all := []FirewallRule{}
		for _, r := range wanted {
			all = append(all, FirewallRule{
				ID: c.newUUID(), SecurityGroupID: made.ID, EtherType: "IPv4", Direction: direction, Protocol: ptr.To(strings.ToLower(r.Protocol)),
				RemoteIPPrefix: ptr.To(r.CIDR), Type: r.Type, CIDR: r.CIDR, Tags: []string{}, CreatedAt: seconds(c.now),
			})
		}
		return all
	}
	made.Inbound, made.Outbound = rules("ingress", request.Inbound), rules("egress", request.Outbound)
	c.opts.Catalog.Firewalls = with(c.opts.Catalog.Firewalls, q.region, made)
	return ok(made)
}

func (c *Cloud) deleteFirewall(q *call) reply {
	for _, p := range c.ports {
		if slices.Contains(p.firewalls, q.vars[0]) {
			return refuse(http.StatusConflict, "Security Group "+q.vars[0]+" in use.")
		}
	}
	return c.withdraw(q, "Security group %s not found.", ok(apiMessage{Message: "Xóa tường lửa thành công"}), func(id string) bool {
		return without(&c.opts.Catalog.Firewalls, q.region, func(f Firewall) bool { return f.ID == id && f.Name != defaultFirewall })
	})
}

// firewalls are the security groups of the call's project; other projects than ours have only the default one.
func (c *Cloud) firewalls(q *call) []Firewall {
	var firewalls []Firewall
	for _, firewall := range c.opts.Catalog.Firewalls[q.region] {
		if q.project != c.opts.Project {
			if firewall.Name != defaultFirewall {
				continue
			}
			firewall.ID = stableID("firewall", q.region, q.project, firewall.Name)
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
	users := map[string]map[string]bool{}
	for _, p := range c.ports {
		for _, id := range p.firewalls {
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
		firewall.ServersCount = len(firewall.Servers)
		firewalls = append(firewalls, firewall)
	}
	return ok(firewalls)
}

// firewallDetail is a firewall by id, where servers are whole objects.
type firewallDetail struct {
	Firewall
	Servers          []Server           `json:"servers"`
	NetworkInterface []NetworkInterface `json:"network_interface"`
}

func (c *Cloud) getFirewall(q *call) reply {
	for _, firewall := range c.firewalls(q) {
		if firewall.ID != q.vars[0] {
			continue
		}
		detail := firewallDetail{Firewall: firewall, Servers: []Server{}, NetworkInterface: []NetworkInterface{}}
		seen := map[string]bool{}
		for _, p := range sorted(c.ports) {
			if !slices.Contains(p.firewalls, firewall.ID) {
				continue
			}
			detail.NetworkInterface = append(detail.NetworkInterface, c.renderPort(p))
			if s := c.servers[p.server]; s != nil && !seen[p.server] {
				seen[p.server] = true
				detail.Servers = append(detail.Servers, c.nested(s))
			}
		}
		detail.ServersCount = len(detail.Servers)
		return ok(detail)
	}
	return problem(http.StatusNotFound, "Security group "+q.vars[0]+" not found.")
}

// checkGroups refuses what names no firewall of the project.
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
	if refusal := c.checkGroups(q, ids); refusal != nil {
		return nil, refusal
	}
	for _, id := range ids {
		if !slices.Contains(p.firewalls, id) {
			p.firewalls = append(p.firewalls, id)
		}
	}
	return p, nil
}

func (c *Cloud) removeFirewalls(q *call, p *port, ids []string) (*port, *reply) {
	if refusal := c.checkGroups(q, ids); refusal != nil {
		return nil, refusal
	}
	p.firewalls = slices.DeleteFunc(slices.Clone(p.firewalls), func(id string) bool { return slices.Contains(ids, id) })
	return p, nil
}
