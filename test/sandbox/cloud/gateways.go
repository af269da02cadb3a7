// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
)

// internetGateway is the record of one: by it the servers of private networks reach the Internet.
type internetGateway struct {
	seq             uint64
	id, name        string
	description     string
	zone            string
	project, region string
	networks        []string
	created, update string
}

func (g *internetGateway) order() uint64      { return g.seq }
func (g *internetGateway) owned(q *call) bool { return g.project == q.project && g.region == q.region }

type gatewayWire struct {
	ID                    string             `json:"id"`
	Name                  string             `json:"name"`
	Description           string             `json:"description"`
	TenantID              string             `json:"tenant_id"`
	ProjectID             string             `json:"project_id"`
	Status                string             `json:"status"`
	AvailabilityZones     []string           `json:"availability_zones"`
	AvailabilityZoneHints []string           `json:"availability_zone_hints"`
	FlavorID              *string            `json:"flavor_id"`
	Tags                  []string           `json:"tags"`
	CreatedAt             string             `json:"created_at"`
	UpdatedAt             string             `json:"updated_at"`
	External              gatewayExternal    `json:"external_gateway_info"`
	Interfaces            []gatewayInterface `json:"interfaces_info"`
}

type gatewayExternal struct {
	NetworkID  string      `json:"network_id"`
	EnableSNAT bool        `json:"enable_snat"`
	FixedIPs   []gatewayIP `json:"external_fixed_ips"`
}

type gatewayIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

type gatewayInterface struct {
	SubnetID  string         `json:"subnet_id"`
	PortID    string         `json:"port_id"`
	IPAddress string         `json:"ip_address"`
	NetworkID string         `json:"network_id"`
	Network   gatewayNetwork `json:"network_info"`
}

type gatewayNetwork struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Status      string `json:"status"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/internet-gateways", (*Cloud).listGateways, "name", "detailed"),
	on(http.MethodPost, "/internet-gateways", (*Cloud).createGateway),
	on(http.MethodGet, "/internet-gateways/{id}", (*Cloud).getGateway),
	on(http.MethodPut, "/internet-gateways/{id}", (*Cloud).updateGateway),
	on(http.MethodDelete, "/internet-gateways/{id}", (*Cloud).deleteGateway),
)

// seedGateways makes the gateways that the networks of the catalog name.
func (c *Cloud) seedGateways() {
	for _, region := range c.opts.Catalog.Regions {
		for _, vpc := range c.opts.Catalog.VPCs[region.ShortName] {
			if vpc.InternetGateway == nil {
				continue
			}
			c.gateways[*vpc.InternetGateway] = &internetGateway{
				seq: c.nextSeq(), id: *vpc.InternetGateway, name: vpc.Name + "-gateway", zone: zoneNames(region)[0], project: c.opts.Project,
				region: region.ShortName, networks: []string{vpc.ID}, created: catalogTime, update: catalogTime,
			}
		}
	}
}

func (c *Cloud) renderGateway(q *call, g *internetGateway) gatewayWire {
	network := StableID("network", g.region, "EXT_DIRECTNET_0")
	w := gatewayWire{
		ID: g.id, Name: g.name, Description: g.description, TenantID: g.project, ProjectID: g.project, Status: "ACTIVE",
		AvailabilityZones: []string{g.zone}, AvailabilityZoneHints: []string{g.zone}, Tags: []string{"IGW"}, CreatedAt: g.created, UpdatedAt: g.update,
		External: gatewayExternal{NetworkID: network, EnableSNAT: true, FixedIPs: []gatewayIP{{
			SubnetID: StableID("subnet", g.region, "EXT_DIRECTNET_0"), IPAddress: "103.107.180.104",
		}}},
		Interfaces: []gatewayInterface{},
	}
	if q.query.Get("detailed") == "false" {
		return w
	}
	for _, id := range g.networks {
		if vpc, found := c.vpc(q, id); found {
			pool := vpc.Subnets[0].AllocationPools[0]
			w.Interfaces = append(w.Interfaces, gatewayInterface{
				SubnetID: vpc.Subnets[0].ID, PortID: StableID("gateway-port", g.id, id), IPAddress: addressText(addressNumber(pool.Start) - 1), NetworkID: id,
				Network: gatewayNetwork{ID: id, Name: vpc.Name, Description: vpc.Description, Status: vpc.Status},
			})
		}
	}
	return w
}

func (c *Cloud) listGateways(q *call) reply {
	gateways := []gatewayWire{}
	for _, g := range sorted(c.gateways) {
		if name := q.query.Get("name"); g.owned(q) && (name == "" || name == g.name) {
			gateways = append(gateways, c.renderGateway(q, g))
		}
	}
	return ok(map[string]any{"internet_gateways": gateways, "meta": map[string]any{"next_page": nil, "prev_page": nil}})
}

func (c *Cloud) getGateway(q *call) reply {
	g, rejection := find(q, c.gateways, "Internet gateway", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderGateway(q, g))
}

type gatewayRequest struct {
	Name             string   `json:"name"`
	Description      string   `json:"description"`
	NetworkIDs       []string `json:"network_ids"`
	AvailabilityZone string   `json:"availability_zone"`
}

func (c *Cloud) createGateway(q *call) reply {
	request, rejection := decodeChange[gatewayRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	zones := zoneNames(c.region(q.region))
	g := &internetGateway{
		seq: c.nextSeq(), id: c.newUUID(), name: request.Name, description: request.Description, project: q.project, region: q.region,
		zone: orDefault(request.AvailabilityZone, zones[0]), created: seconds(c.now),
	}
	switch {
	case g.name == "":
		return reject(http.StatusBadRequest, "name is required")
	case !slices.Contains(zones, g.zone):
		return *bad("The requested availability zone is not available: %s", g.zone)
	}
	if rejection := c.setGatewayNetworks(q, g, request.NetworkIDs); rejection != nil {
		return *rejection
	}
	c.gateways[g.id] = g
	return ok(c.renderGateway(q, g))
}

type gatewayUpdate struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	NetworkIDs  []string `json:"network_ids"`
}

// updateGateway replaces all of it: the one client that is known always sends all.
func (c *Cloud) updateGateway(q *call) reply {
	request, rejection := decode[gatewayUpdate](q)
	if rejection != nil {
		return *rejection
	}
	g, rejection := find(q, c.gateways, "Internet gateway", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	if request.Name == "" {
		return reject(http.StatusBadRequest, "name is required")
	}
	if rejection := c.setGatewayNetworks(q, g, request.NetworkIDs); rejection != nil {
		return *rejection
	}
	g.name, g.description = request.Name, request.Description
	return ok(c.renderGateway(q, g))
}

func (c *Cloud) deleteGateway(q *call) reply {
	g, rejection := find(q, c.gateways, "Internet gateway", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	_ = c.setGatewayNetworks(q, g, nil)
	delete(c.gateways, g.id)
	return reply{status: http.StatusNoContent}
}

// setGatewayNetworks makes a gateway that of these networks and of no others. A network has one at most.
func (c *Cloud) setGatewayNetworks(q *call, g *internetGateway, ids []string) *reply {
	for _, id := range ids {
		vpc, found := c.vpc(q, id)
		switch {
		case !found:
			return bad("Network %s could not be found.", id)
		case vpc.InternetGateway != nil && *vpc.InternetGateway != g.id:
			conflict := reject(http.StatusConflict, "Network "+id+" has an internet gateway already")
			return &conflict
		}
	}
	vpcs := slices.Clone(c.opts.Catalog.VPCs[q.region])
	for i := range vpcs {
		switch {
		case slices.Contains(ids, vpcs[i].ID):
			vpcs[i].InternetGateway = &g.id
		case vpcs[i].InternetGateway != nil && *vpcs[i].InternetGateway == g.id:
			vpcs[i].InternetGateway = nil
		}
	}
	c.opts.Catalog.VPCs = inRegion(c.opts.Catalog.VPCs, q.region, vpcs)
	g.networks, g.update = slices.Clone(ids), seconds(c.now)
	return nil
}
