// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
)

// firewallRequest creates or changes a firewall; in a change, what is absent stays as it is.
type firewallRequest struct {
	Name     string  `json:"name"`
	Inbound  *[]rule `json:"inbound"`
	Outbound *[]rule `json:"outbound"`
	// Targets are servers, all of whose ports get the firewall; NetworkInterfaces are ports.
	Targets           *[]string `json:"targets"`
	NetworkInterfaces *[]string `json:"network_interfaces"`
}

// rule is one rule as requested. Type is a label such as SSH or CUSTOM; no protocol is all of them, no range all ports.
type rule struct {
	Type      *string `json:"type"`
	Protocol  *string `json:"protocol"`
	PortRange *string `json:"port_range"`
	CIDR      string  `json:"cidr"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/firewalls", (*Cloud).listFirewalls),
	on(http.MethodPost, "/firewalls", (*Cloud).createFirewall),
	on(http.MethodGet, "/firewalls/{id}", (*Cloud).getFirewall),
	on(http.MethodPatch, "/firewalls/{id}", (*Cloud).updateFirewall),
	on(http.MethodDelete, "/firewalls/{id}", (*Cloud).deleteFirewall),
	withBody(on(http.MethodDelete, "/firewalls/{id}/servers", (*Cloud).removeFirewallServers)),
)

func (c *Cloud) createFirewall(q *call) reply {
	request, rejection := decodeChange[firewallRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	if request.Name == "" {
		return reject(http.StatusBadRequest, "name is required")
	}
	made := Firewall{
		ID: c.newUUID(), Name: request.Name, Description: request.Name + " created " + c.now.In(hanoi).Format("2006-01-02 15:04:05.000000"),
		TenantID: q.project, ProjectID: q.project, Tags: []string{}, CreatedAt: seconds(c.now), Servers: []string{},
		Inbound: []FirewallRule{}, Outbound: []FirewallRule{},
	}
	ports, rejection := c.applyFirewall(q, &made, request)
	if rejection != nil {
		return *rejection
	}
	c.opts.Catalog.Firewalls = with(c.opts.Catalog.Firewalls, q.region, made)
	c.setFirewallPorts(made.ID, ports)
	return ok(c.firewallDetailOf(made))
}

func (c *Cloud) updateFirewall(q *call) reply {
	request, rejection := decodeChange[firewallRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	firewall, found := c.findFirewall(q)
	if !found {
		return noSuchFirewall(q.vars[0])
	}
	ports, rejection := c.applyFirewall(q, &firewall, request)
	if rejection != nil {
		return *rejection
	}
	c.opts.Catalog.Firewalls = replaced(c.opts.Catalog.Firewalls, q.region, firewall, func(f Firewall) bool { return f.ID == firewall.ID })
	c.setFirewallPorts(firewall.ID, ports)
	return ok(c.firewallDetailOf(firewall))
}

// applyFirewall writes a request into a firewall and returns the ports that have it from then on; nil leaves them.
func (c *Cloud) applyFirewall(q *call, f *Firewall, request firewallRequest) (ports map[string]bool, rejection *reply) {
	if request.Name != "" {
		f.Name = request.Name
	}
	for _, side := range []struct {
		direction string
		wanted    *[]rule
		rules     *[]FirewallRule
	}{{"ingress", request.Inbound, &f.Inbound}, {"egress", request.Outbound, &f.Outbound}} {
		if side.wanted == nil {
			continue
		}
		rules := []FirewallRule{}
		for _, wanted := range *side.wanted {
			made, rejection := c.newRule(f.ID, side.direction, wanted)
			if rejection != nil {
				return nil, rejection
			}
			rules = append(rules, made)
		}
		*side.rules = rules
	}
	if ports, rejection = c.firewallPorts(q, request); rejection != nil {
		return nil, rejection
	}
	f.RulesCount = len(f.Inbound) + len(f.Outbound)
	f.UpdatedAt = seconds(c.now)
	f.RevisionNumber++
	return ports, nil
}

// newRule is a rule as the network service keeps it: the family of addresses follows from the range.
func (c *Cloud) newRule(firewall, direction string, wanted rule) (FirewallRule, *reply) {
	made := FirewallRule{
		ID: c.newUUID(), SecurityGroupID: firewall, EtherType: "IPv4", Direction: direction, Type: ptr.Deref(wanted.Type, ""),
		Tags: []string{}, CreatedAt: seconds(c.now),
	}
	if wanted.CIDR != "" {
		prefix, err := netip.ParsePrefix(wanted.CIDR)
		if err != nil {
			return made, bad("'%s' is not a valid cidr", wanted.CIDR)
		}
		if prefix.Addr().Is6() {
			made.EtherType = "IPv6"
		}
		made.CIDR, made.RemoteIPPrefix = prefix.Masked().String(), ptr.To(prefix.Masked().String())
	}
	switch protocol := strings.ToLower(ptr.Deref(wanted.Protocol, "")); protocol {
	case "", "any", "all":
	case "tcp", "udp", "icmp":
		made.Protocol = &protocol
	default:
		return made, bad("Security group rule protocol %s not supported", protocol)
	}
	ports := ptr.Deref(wanted.PortRange, "")
	if ports == "" {
		return made, nil
	}
	if made.Protocol == nil || *made.Protocol == "icmp" {
		return made, bad("port_range %s needs the protocol tcp or udp", ports)
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	from, fromErr := strconv.Atoi(strings.TrimSpace(first))
	to, toErr := strconv.Atoi(strings.TrimSpace(last))
	if fromErr != nil || toErr != nil || from < 1 || to > 65535 || from > to {
		return made, bad("Invalid port_range: %s", ports)
	}
	made.PortRangeMin, made.PortRangeMax, made.PortRange = &from, &to, &ports
	return made, nil
}

func (c *Cloud) findFirewall(q *call) (Firewall, bool) {
	firewalls := c.firewalls(q)
	i := slices.IndexFunc(firewalls, func(f Firewall) bool { return f.ID == q.vars[0] })
	if i < 0 {
		return Firewall{}, false
	}
	return firewalls[i], true
}

func noSuchFirewall(id string) reply {
	return problem(http.StatusNotFound, "Security group "+id+" not found.")
}

// deleteFirewall deletes a firewall, or a rule of one: clients delete both by id at the same path.
func (c *Cloud) deleteFirewall(q *call) reply {
	if c.deleteRule(q) {
		return ok(apiMessage{Message: "Deleted Firewall Rule"})
	}
	for _, p := range c.ports {
		if slices.Contains(p.firewalls, q.vars[0]) {
			return reject(http.StatusConflict, "Security Group "+q.vars[0]+" in use.")
		}
	}
	return c.withdraw(q, "Security group %s not found.", ok(apiMessage{Message: "Xóa tường lửa thành công"}), func(id string) bool {
		return without(&c.opts.Catalog.Firewalls, q.region, func(f Firewall) bool { return f.ID == id && f.Name != defaultFirewall })
	})
}

func (c *Cloud) deleteRule(q *call) bool {
	if q.project != c.opts.Project {
		return false
	}
	is := func(r FirewallRule) bool { return r.ID == q.vars[0] }
	list := slices.Clone(c.opts.Catalog.Firewalls[q.region])
	for i := range list {
		f := &list[i]
		if !slices.ContainsFunc(f.Inbound, is) && !slices.ContainsFunc(f.Outbound, is) {
			continue
		}
		f.Inbound, f.Outbound = slices.DeleteFunc(slices.Clone(f.Inbound), is), slices.DeleteFunc(slices.Clone(f.Outbound), is)
		f.RulesCount = len(f.Inbound) + len(f.Outbound)
		f.UpdatedAt = seconds(c.now)
		f.RevisionNumber++
		c.opts.Catalog.Firewalls = inRegion(c.opts.Catalog.Firewalls, q.region, list)
		return true
	}
	return false
}

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

// firewallDetail is a firewall by id, where servers are complete objects.
type firewallDetail struct {
	Firewall
	Servers          []Server           `json:"servers"`
	NetworkInterface []NetworkInterface `json:"network_interface"`
}

func (c *Cloud) getFirewall(q *call) reply {
	firewall, found := c.findFirewall(q)
	if !found {
		return noSuchFirewall(q.vars[0])
	}
	return ok(c.firewallDetailOf(firewall))
}

func (c *Cloud) firewallDetailOf(firewall Firewall) firewallDetail {
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
	detail.ServersCount, detail.NetworkInterfaceCount = len(detail.Servers), len(detail.NetworkInterface)
	return detail
}

// defaultFirewalls are those that a port gets where none is named.
func (c *Cloud) defaultFirewalls(q *call) []string {
	for _, firewall := range c.firewalls(q) {
		if firewall.Name == defaultFirewall && !c.opts.NoDefaultFirewall {
			return []string{firewall.ID}
		}
	}
	return nil
}
