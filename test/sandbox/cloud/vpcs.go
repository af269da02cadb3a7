// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

type vpcRequest struct {
	Name        string `json:"name"`
	CIDR        string `json:"cidr"`
	Description string `json:"description"`
	IsDefault   bool   `json:"is_default"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/vpc-networks", (*Cloud).listVPCs, "igw_attached"),
	on(http.MethodPost, "/vpc-networks", (*Cloud).createVPC),
	on(http.MethodGet, "/vpc-networks/{id}", (*Cloud).getVPC),
	on(http.MethodPut, "/vpc-networks/{id}", (*Cloud).updateVPC),
	on(http.MethodDelete, "/vpc-networks/{id}", (*Cloud).deleteVPC),
)

// createVPC makes a network in all zones of the region, without an internet gateway.
func (c *Cloud) createVPC(q *call) reply {
	request, rejection := decodeChange[vpcRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	if request.Name == "" {
		return reject(http.StatusBadRequest, "name is required")
	}
	id := c.newUUID()
	made, rejection := c.newVPC(q, id, orDefault(request.CIDR, "10.40.0.0/20"))
	if rejection != nil {
		return *rejection
	}
	made.Name, made.Description, made.CreatedAt = request.Name, request.Description, seconds(c.now)
	c.opts.Catalog.VPCs = with(c.opts.Catalog.VPCs, q.region, made)
	return c.changedVPC(q, made, request.IsDefault)
}

func (c *Cloud) newVPC(q *call, id, text string) (VPC, *reply) {
	cidr, err := netip.ParsePrefix(text)
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() > 29 {
		return VPC{}, bad("'%s' is not a valid cidr of at most /29", text)
	}
	cidr = cidr.Masked()
	first := addressNumber(cidr.Addr().String())
	last := first + 1<<(32-cidr.Bits()) - 2
	return vpcNetwork(q.region, id, cidr.String(), addressText(first+2), addressText(last), zoneNames(c.region(q.region))), nil
}

// changedVPC stores a network. There is one default: a network that becomes it takes that from the one before.
func (c *Cloud) changedVPC(q *call, changed VPC, isDefault bool) reply {
	changed.UpdatedAt = seconds(c.now)
	changed.IsDefault = changed.IsDefault || isDefault
	all := slices.Clone(c.opts.Catalog.VPCs[q.region])
	for i := range all {
		switch {
		case all[i].ID == changed.ID:
			all[i] = changed
		case isDefault:
			all[i].IsDefault = false
		}
	}
	c.opts.Catalog.VPCs = inRegion(c.opts.Catalog.VPCs, q.region, all)
	changed.TenantID = q.project
	return ok(changed)
}

// updateVPC changes what the request names; the range of addresses only while no port has one.
func (c *Cloud) updateVPC(q *call) reply {
	request, rejection := decodeChange[vpcRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	vpc, found := c.vpc(q, q.vars[0])
	if !found {
		return noSuchVPC(q.vars[0])
	}
	if request.CIDR != "" && request.CIDR != vpc.Subnets[0].CIDR {
		if c.hasPorts(vpc.ID) {
			return vpcInUse(vpc.ID)
		}
		other, rejection := c.newVPC(q, vpc.Subnets[0].Name, request.CIDR)
		if rejection != nil {
			return *rejection
		}
		subnet := other.Subnets[0]
		subnet.ID, subnet.NetworkID = vpc.Subnets[0].ID, vpc.ID
		vpc.Subnets = []Subnet{subnet}
		delete(c.next, vpc.ID)
	}
	vpc.Name = orDefault(request.Name, vpc.Name)
	vpc.Description = orDefault(request.Description, vpc.Description)
	vpc.RevisionNumber++
	return c.changedVPC(q, vpc, request.IsDefault)
}

func (c *Cloud) hasPorts(network string) bool {
	for _, p := range c.ports {
		if p.networkID == network {
			return true
		}
	}
	return false
}

func noSuchVPC(id string) reply {
	return problem(http.StatusNotFound, "Network "+id+" could not be found.")
}

func vpcInUse(id string) reply {
	return reject(http.StatusConflict, "Unable to complete operation on network "+id+". There are one or more ports still in use on the network.")
}

func (c *Cloud) deleteVPC(q *call) reply {
	if c.hasPorts(q.vars[0]) {
		return vpcInUse(q.vars[0])
	}
	return c.withdraw(q, "Network %s could not be found.", reply{status: http.StatusNoContent}, func(id string) bool {
		return without(&c.opts.Catalog.VPCs, q.region, func(v VPC) bool { return v.ID == id })
	})
}

// vpcs are the private networks of the call's project; other projects than ours have none.
func (c *Cloud) vpcs(q *call) []VPC {
	if q.project != c.opts.Project {
		return nil
	}
	vpcs := slices.Clone(c.opts.Catalog.VPCs[q.region])
	for i := range vpcs {
		vpcs[i].TenantID = q.project
	}
	return vpcs
}

func (c *Cloud) vpc(q *call, id string) (VPC, bool) {
	vpcs := c.vpcs(q)
	i := slices.IndexFunc(vpcs, func(v VPC) bool { return v.ID == id })
	if i < 0 {
		return VPC{}, false
	}
	return vpcs[i], true
}

func (c *Cloud) listVPCs(q *call) reply {
	vpcs := []VPC{}
	for _, vpc := range c.vpcs(q) {
		if wanted := q.query.Get("igw_attached"); wanted == "" || strings.EqualFold(wanted, "true") == (vpc.InternetGateway != nil) {
			vpcs = append(vpcs, vpc)
		}
	}
	return ok(vpcs)
}

func (c *Cloud) getVPC(q *call) reply {
	vpc, found := c.vpc(q, q.vars[0])
	if !found {
		return noSuchVPC(q.vars[0])
	}
	return ok(vpc)
}
