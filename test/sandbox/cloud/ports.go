// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"
)

var _ = serverAPI.serve(
	on(http.MethodGet, "/network-interfaces", (*Cloud).listPorts, "vpc-network-id", "status", "type", "detailed"),
	on(http.MethodDelete, "/network-interfaces/{id}", (*Cloud).deletePort),
	on(http.MethodPost, "/network-interfaces/{id}/action", (*Cloud).portAction),
	on(http.MethodGet, "/wanips", (*Cloud).listWanIPs, "detailed"),
	on(http.MethodDelete, "/wanips/{id}", (*Cloud).deleteWanIP),
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

type portActionRequest struct {
	Action         string   `json:"action"`
	SecurityGroups []string `json:"security_groups"`
}

var portActions = actions{"add_firewall": {"security_groups"}, "remove_firewall": {"security_groups"}}

func (c *Cloud) portAction(q *call) reply {
	request, rejection := decode[portActionRequest](q)
	if rejection == nil {
		rejection = portActions.rejection(q, "action", request.Action)
	}
	if rejection != nil {
		return *rejection
	}
	p, rejection := c.findPort(q, false)
	switch {
	case rejection != nil:
	case request.Action == "add_firewall":
		rejection = c.addFirewalls(q, p, request.SecurityGroups)
	default:
		rejection = c.removeFirewalls(q, p, request.SecurityGroups)
	}
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderPort(p))
}
