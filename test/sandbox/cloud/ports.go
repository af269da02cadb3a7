// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
)

var _ = serverAPI.serve(
	on(http.MethodPost, "/vpc-networks/{id}/network-interfaces", (*Cloud).createPort),
	on(http.MethodGet, "/network-interfaces", (*Cloud).listPorts, "vpc-network-id", "status", "type", "detailed"),
	on(http.MethodGet, "/network-interfaces/{id}", (*Cloud).getPort),
	on(http.MethodPut, "/network-interfaces/{id}", (*Cloud).updatePort),
	on(http.MethodDelete, "/network-interfaces/{id}", (*Cloud).deletePort),
	on(http.MethodPost, "/network-interfaces/{id}/action", (*Cloud).portAction),
	on(http.MethodGet, "/wanips", (*Cloud).listWanIPs, "detailed"),
	on(http.MethodPost, "/wanips", (*Cloud).createWanIP),
	on(http.MethodGet, "/wanips/{id}", (*Cloud).getWanIP),
	on(http.MethodDelete, "/wanips/{id}", (*Cloud).deleteWanIP),
	on(http.MethodPost, "/wanips/{id}/action", (*Cloud).wanIPAction),
)

func (c *Cloud) listPorts(q *call) reply {
	ports := []NetworkInterface{}
	for _, p := range sorted(c.ports) {
		w := c.renderPort(p)
		network, status, kind := q.query.Get("vpc-network-id"), q.query.Get("status"), q.query.Get("type")
		switch {
		case !p.owned(q):
		case network != "" && network != w.NetworkID:
		case status != "" && status != w.Status:
		case kind != "" && kind != "LAN_WAN" && kind != w.Type:
		default:
			ports = append(ports, c.listedPort(q, w))
		}
	}
	return ok(ports)
}

// listedPort is a port as a list shows it: without its server where details are not wanted.
func (c *Cloud) listedPort(q *call, w NetworkInterface) NetworkInterface {
	if c.opts.Shape.InterfacesWithoutType {
		w.Type = ""
	}
	if strings.EqualFold(q.query.Get("detailed"), "false") {
		w.AttachedServer = AttachedServer{}
	}
	return w
}

func (c *Cloud) listWanIPs(q *call) reply {
	ips := []WanIP{}
	for _, p := range sorted(c.ports) {
		if p.wan && p.owned(q) {
			ip := c.renderWanIP(p)
			ip.NetworkInterface = c.listedPort(q, ip.NetworkInterface)
			ips = append(ips, ip)
		}
	}
	return ok(ips)
}

// findPort returns a port of the call's project; wan asks for a public one.
func (c *Cloud) findPort(q *call, wan bool) (*port, *reply) {
	p, rejection := find(q, c.ports, "Port", q.vars[0])
	if rejection == nil && wan && !p.wan {
		return nil, notFound("Port", p.id)
	}
	return p, rejection
}

func (c *Cloud) getPort(q *call) reply {
	p, rejection := c.findPort(q, false)
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderPort(p))
}

func (c *Cloud) getWanIP(q *call) reply {
	p, rejection := c.findPort(q, true)
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderWanIP(p))
}

func (c *Cloud) deletePort(q *call) reply { return c.freePort(q, false) }

func (c *Cloud) deleteWanIP(q *call) reply { return c.freePort(q, true) }

func (c *Cloud) freePort(q *call, wan bool) reply {
	p, rejection := c.findPort(q, wan)
	if rejection != nil {
		return *rejection
	}
	if p.server != "" {
		return problem(http.StatusConflict, "Port "+p.id+" is still in use by "+p.server)
	}
	c.removePort(p)
	return reply{status: http.StatusNoContent}
}

type portRequest struct {
	Name           string `json:"name"`
	FixedIP        string `json:"fixed_ip"`
	AttachedServer string `json:"attached_server"`
}

func (c *Cloud) createPort(q *call) reply {
	request, rejection := decode[portRequest](q)
	if rejection != nil {
		return *rejection
	}
	vpc, found := c.vpc(q, q.vars[0])
	if !found {
		return noSuchVPC(q.vars[0])
	}
	s, rejection := c.portServer(q, request.AttachedServer)
	if rejection != nil {
		return *rejection
	}
	var p *port
	if request.FixedIP != "" {
		subnet, rejection := c.takeAddress(vpc, request.FixedIP)
		if rejection != nil {
			return *rejection
		}
		p = c.newPort(q.project, q.region, "", request.Name, c.defaultFirewalls(q))
		p.ip, p.networkID, p.subnetID, p.networkName = request.FixedIP, vpc.ID, subnet, vpc.Name
	} else if p = c.lanPort(q.project, q.region, "", request.Name, vpc, c.defaultFirewalls(q)); p == nil {
		return reject(http.StatusConflict, "No more IP addresses available on network "+vpc.ID+".")
	}
	if s != nil {
		c.attachPort(p, s)
	}
	return ok(c.renderPort(p))
}

type wanIPRequest struct {
	Name             string `json:"name"`
	AttachedServer   string `json:"attached_server"`
	AvailabilityZone string `json:"availability_zone"`
}

func (c *Cloud) createWanIP(q *call) reply {
	request, rejection := decode[wanIPRequest](q)
	if rejection != nil {
		return *rejection
	}
	s, rejection := c.portServer(q, request.AttachedServer)
	if rejection != nil {
		return *rejection
	}
	if zone := request.AvailabilityZone; zone != "" && !slices.Contains(zoneNames(c.region(q.region)), zone) {
		return *bad("The requested availability zone is not available: %s", zone)
	}
	if message := c.quotaExceeded(q.project, need{wanIPs: 1}); message != "" {
		return reject(http.StatusForbidden, message)
	}
	p := c.wanPort(q.project, q.region, request.AvailabilityZone, request.Name, c.defaultFirewalls(q))
	if p == nil {
		return reject(http.StatusConflict, "Không đủ địa chỉ IP")
	}
	p.paid = true
	if s != nil {
		c.attachPort(p, s)
	}
	return ok(c.renderWanIP(p))
}

type portUpdate struct {
	Name string `json:"name"`
}

// updatePort renames a port.
func (c *Cloud) updatePort(q *call) reply {
	request, rejection := decode[portUpdate](q)
	if rejection != nil {
		return *rejection
	}
	p, rejection := c.findPort(q, false)
	if rejection != nil {
		return *rejection
	}
	p.name = request.Name
	return ok(c.renderPort(p))
}

// portServer finds the server that a port is to be attached to; nil where none is named.
func (c *Cloud) portServer(q *call, id string) (*server, *reply) {
	if id == "" {
		return nil, nil
	}
	s := c.servers[id]
	if s == nil || !s.owned(q) {
		rejection := noSuchServer(id)
		return nil, &rejection
	}
	return s, nil
}

type portActionRequest struct {
	Action         string   `json:"action"`
	ServerID       string   `json:"server_id"`
	SecurityGroups []string `json:"security_groups"`
}

var portActions = actions{
	"attach_server": {"server_id"}, "detach_server": {"server_id"}, "add_firewall": {"security_groups"}, "remove_firewall": {"security_groups"},
	"enable": nil, "disable": nil, "convert_to_paid": nil,
}

func (c *Cloud) portAction(q *call) reply {
	p, rejection := c.actOnPort(q, false)
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderPort(p))
}

func (c *Cloud) wanIPAction(q *call) reply {
	p, rejection := c.actOnPort(q, true)
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderWanIP(p))
}

func (c *Cloud) actOnPort(q *call, wan bool) (*port, *reply) {
	request, rejection := decode[portActionRequest](q)
	if rejection == nil {
		rejection = portActions.rejection(q, "action", request.Action)
	}
	if rejection != nil {
		return nil, rejection
	}
	p, rejection := c.findPort(q, wan)
	if rejection != nil {
		return nil, rejection
	}
	switch request.Action {
	case "attach_server":
		return c.attachPortTo(q, p, request.ServerID)
	case "detach_server":
		if request.ServerID != "" && request.ServerID != p.server {
			return nil, bad("Port %s is not attached to instance %s", p.id, request.ServerID)
		}
		if s := c.servers[p.server]; s != nil {
			c.detachPort(p, s)
		}
	case "add_firewall":
		return c.addFirewalls(q, p, request.SecurityGroups)
	case "remove_firewall":
		return c.removeFirewalls(q, p, request.SecurityGroups)
	case "enable", "disable":
		p.disabled = request.Action == "disable"
	case "convert_to_paid":
		p.paid = true
		p.implicit = false
	}
	return p, nil
}

func (c *Cloud) attachPortTo(q *call, p *port, serverID string) (*port, *reply) {
	s, rejection := c.portServer(q, serverID)
	if rejection != nil {
		return nil, rejection
	}
	if s == nil || p.server != "" {
		conflict := problem(http.StatusConflict, "Port "+p.id+" is still in use.")
		return nil, &conflict
	}
	c.attachPort(p, s)
	return p, nil
}
