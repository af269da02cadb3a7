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
	on(http.MethodDelete, "/vpc-networks/{id}", (*Cloud).deleteVPC),
)

// createVPC makes a network in all zones of the region, without an internet gateway.
func (c *Cloud) createVPC(q *call) reply {
	request, refusal := decode[vpcRequest](q)
	if refusal == nil {
		refusal = c.mayChange(q)
	}
	if refusal != nil {
		return *refusal
	}
	cidr, err := netip.ParsePrefix(orDefault(request.CIDR, "10.40.0.0/20"))
	if err != nil || !cidr.Addr().Is4() || cidr.Bits() > 29 || request.Name == "" {
		return refuse(http.StatusBadRequest, "name and a valid cidr of at most /29 are required")
	}
	cidr = cidr.Masked()
	first := addressNumber(cidr.Addr().String())
	last := first + 1<<(32-cidr.Bits()) - 2
	made := vpcNetwork(q.region, c.newUUID(), cidr.String(), addressText(first+2), addressText(last), zoneNames(c.region(q.region)))
	made.Name, made.Description, made.IsDefault, made.CreatedAt, made.UpdatedAt = request.Name, request.Description, request.IsDefault, seconds(c.now), seconds(c.now)
	c.opts.Catalog.VPCs = with(c.opts.Catalog.VPCs, q.region, made)
	made.TenantID = q.project
	return ok(made)
}

func (c *Cloud) deleteVPC(q *call) reply {
	for _, p := range c.ports {
		if p.networkID == q.vars[0] {
			return refuse(http.StatusConflict, "Unable to complete operation on network "+q.vars[0]+". There are one or more ports still in use on the network.")
		}
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
		return problem(http.StatusNotFound, "Network "+q.vars[0]+" could not be found.")
	}
	return ok(vpc)
}
