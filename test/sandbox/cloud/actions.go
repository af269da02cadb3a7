// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
)

// actionRequest is the body of POST /servers/{id}/action.
type actionRequest struct {
	Action         string   `json:"action"`
	NewName        string   `json:"new_name"`
	NewNetworkPlan string   `json:"new_network_plan"`
	BillingPlan    string   `json:"billing_plan"`
	Type           string   `json:"type"`
	FlavorName     string   `json:"flavor_name"`
	VPCNetworkIDs  []string `json:"vpc_network_ids"`
	NewType        string   `json:"new_type"`
	Image          string   `json:"image"`
	WanIPs         []string `json:"wan_ips"`
}

// serverActions are what POST /servers/{id}/action knows, each with the fields that it uses.
var serverActions = map[string]struct {
	fields []string
	act    func(*Cloud, *call, *server, actionRequest) reply
}{
	"start":               {nil, (*Cloud).startServer},
	"stop":                {nil, (*Cloud).stopServer},
	"soft_reboot":         {nil, (*Cloud).softReboot},
	"hard_reboot":         {nil, (*Cloud).hardReboot},
	"rename":              {[]string{"new_name"}, (*Cloud).renameServer},
	"change_network_plan": {[]string{"new_network_plan"}, (*Cloud).changeNetworkPlan},
	"switch_billing_plan": {[]string{"billing_plan"}, (*Cloud).switchBillingPlan},
	"resize":              {[]string{"flavor_name"}, (*Cloud).resizeServer},
	"change_type":         {[]string{"new_type"}, (*Cloud).changeType},
	"rebuild":             {[]string{"image"}, (*Cloud).rebuildServer},
	"add_vpc":             {[]string{"vpc_network_ids"}, (*Cloud).addVPCs},
	"remove_vpc":          {[]string{"vpc_network_ids"}, (*Cloud).removeVPCs},
	"attach_wan_ips":      {[]string{"wan_ips"}, (*Cloud).attachWanIPs},
	"enable_ipv6":         {nil, (*Cloud).enableIPv6},
	"get_vnc":             {[]string{"type"}, (*Cloud).getVNC},
}

var _ = serverAPI.serve(on(http.MethodPost, "/servers/{id}/action", (*Cloud).serverAction))

func (c *Cloud) serverAction(q *call) reply {
	request, rejection := decode[actionRequest](q)
	if rejection != nil {
		return *rejection
	}
	s := c.visibleServer(q, q.vars[0])
	if s == nil {
		return noSuchServer(q.vars[0])
	}
	known := actions{}
	for name, action := range serverActions {
		known[name] = action.fields
	}
	if rejection := known.rejection(q, "action", request.Action); rejection != nil {
		return *rejection
	}
	if s.truth.Deleting || s.wire.Status == StatusBuild {
		return problem(http.StatusConflict, "Cannot '"+request.Action+"' instance "+s.wire.ID+" while it is in task_state deleting or building")
	}
	if c.quota.Suspended && slices.Contains([]string{"start", "soft_reboot", "hard_reboot"}, request.Action) {
		return reply{status: http.StatusForbidden, body: apiMessage{}}
	}
	return serverActions[request.Action].act(c, q, s, request)
}

func (c *Cloud) renameServer(_ *call, s *server, request actionRequest) reply {
	if request.NewName == "" || len(request.NewName) > 255 {
		return problem(http.StatusBadRequest, "Tên máy chủ không hợp lệ")
	}
	s.wire.Name = request.NewName
	return ok(c.nested(s))
}

func (c *Cloud) changeNetworkPlan(_ *call, s *server, request actionRequest) reply {
	if !slices.Contains(networkPlans, request.NewNetworkPlan) {
		return problem(http.StatusBadRequest, "network_plan không hợp lệ: "+request.NewNetworkPlan)
	}
	s.wire.NetworkPlan = request.NewNetworkPlan
	s.wire.Metadata["network_plan"] = request.NewNetworkPlan
	return ok(c.nested(s))
}

func (c *Cloud) switchBillingPlan(_ *call, s *server, request actionRequest) reply {
	if !slices.Contains([]string{PlanOnDemand, PlanSaving}, request.BillingPlan) {
		return problem(http.StatusBadRequest, "billing_plan không hợp lệ: "+request.BillingPlan)
	}
	s.wire.BillingPlan = request.BillingPlan
	s.wire.Metadata["billing_plan"] = request.BillingPlan
	c.chargeServer(s)
	return ok(c.nested(s))
}

// setFlavor changes the flavor of a server, independent of stock.
func (c *Cloud) setFlavor(s *server, flavor Flavor) {
	s.wire.Flavor.ID, s.wire.Flavor.Name, s.wire.Flavor.RAM, s.wire.Flavor.VCPUs = flavor.ID, flavor.Name, flavor.RAM, flavor.VCPUs
	s.wire.FlavorName, s.wire.Category = shortName(flavor.Name), flavor.Category
	flavor.Omit = nil
	s.truth.Flavor = flavor
	c.chargeServer(s)
}

func (c *Cloud) addVPCs(q *call, s *server, request actionRequest) reply {
	var added []VPC
	for _, id := range request.VPCNetworkIDs {
		vpc, found := c.vpc(q, id)
		if !found {
			return problem(http.StatusBadRequest, "Network "+id+" could not be found.")
		}
		added = append(added, vpc)
	}
	for _, vpc := range added {
		if !c.hasPortIn(s, vpc.ID) {
			c.addPort(s, vpc, c.firewallsOf(s))
		}
	}
	return ok(c.nested(s))
}

func (c *Cloud) removeVPCs(_ *call, s *server, request actionRequest) reply {
	for _, id := range request.VPCNetworkIDs {
		if !c.hasPortIn(s, id) {
			return problem(http.StatusBadRequest, "Instance "+s.wire.ID+" has no port in network "+id)
		}
	}
	c.removePortsIn(s, request.VPCNetworkIDs)
	return ok(c.nested(s))
}

func (c *Cloud) hasPortIn(s *server, network string) bool {
	return slices.ContainsFunc(s.ports, func(id string) bool { return c.ports[id] != nil && c.ports[id].networkID == network })
}

// firewallsOf are those that the server's first port has.
func (c *Cloud) firewallsOf(s *server) []string {
	for _, id := range s.ports {
		if p := c.ports[id]; p != nil {
			return slices.Clone(p.firewalls)
		}
	}
	return nil
}

// removePortsIn takes a server out of networks: ports that were made for it go, others become free.
func (c *Cloud) removePortsIn(s *server, networks []string) {
	for _, id := range slices.Clone(s.ports) {
		switch p := c.ports[id]; {
		case p == nil || p.wan || !slices.Contains(networks, p.networkID):
		case p.implicit:
			c.removePort(p)
		default:
			c.detachPort(p, s)
		}
	}
}

func (c *Cloud) enableIPv6(_ *call, s *server, _ actionRequest) reply {
	if s.wire.IPv6 {
		return problem(http.StatusConflict, "Instance "+s.wire.ID+" has an IPv6 address already")
	}
	s.wire.IPv6 = true
	c.addIPv6Port(s, c.firewallsOf(s))
	return ok(c.nested(s))
}

// attachWanIPs gives a server public addresses that the project has.
func (c *Cloud) attachWanIPs(q *call, s *server, request actionRequest) reply {
	if len(request.WanIPs) == 0 {
		return *bad("wan_ips is required")
	}
	for _, id := range request.WanIPs {
		if p := c.ports[id]; p == nil || !p.owned(q) || !p.wan {
			return *bad("Port %s could not be found.", id)
		} else if p.server != "" {
			return problem(http.StatusConflict, "Port "+id+" is still in use.")
		}
	}
	for _, id := range request.WanIPs {
		c.attachPort(c.ports[id], s)
	}
	return ok(c.nested(s))
}

func (c *Cloud) getVNC(q *call, s *server, request actionRequest) reply {
	return ok(map[string]any{"console": map[string]string{"url": q.base + "/vnc?token=" + s.wire.ID, "type": request.Type}})
}
