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
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// What users make and delete themselves beside servers: snapshots, images, networks, firewalls and keys. The catalog is
// where they are; each change makes a list anew, since answers under way may still refer to the one before.

func (c *Cloud) mayChange(q *call) *reply {
	if q.project == c.opts.Project {
		return nil
	}
	refusal := problem(http.StatusForbidden, "Project "+q.project+" is not yours")
	return &refusal
}

type snapshotRequest struct {
	Name     string `json:"name"`
	VolumeID string `json:"volume_id"`
	Force    bool   `json:"force"`
}

// createSnapshot makes a snapshot that is available at once; one of a disk in use must be forced.
func (c *Cloud) createSnapshot(q *call) reply {
	request, refusal := decode[snapshotRequest](q)
	if refusal == nil {
		refusal = c.mayChange(q)
	}
	if refusal != nil {
		return *refusal
	}
	v := c.volumes[request.VolumeID]
	switch {
	case request.Name == "":
		return refuse(http.StatusBadRequest, "name is required")
	case v == nil || !v.owned(q):
		return problem(http.StatusNotFound, "Volume "+request.VolumeID+" could not be found.")
	case v.wire.Status != volumeAvailable && !request.Force:
		return refuse(http.StatusBadRequest, fmt.Sprintf("Invalid volume: Volume %s status must be available, but is %s", v.wire.ID, v.wire.Status))
	}
	made := Snapshot{
		ID: c.newUUID(), Name: request.Name, Status: volumeAvailable, Size: v.wire.Size, VolumeID: v.wire.ID,
		VolumeTypeID: stableID("volume-type", v.wire.VolumeType), BillingPlan: v.wire.BillingPlan, CreatedAt: micros(c.now), Progress: "100%",
		ProjectID: q.project, Metadata: map[string]string{"category": v.wire.Category}, Category: v.wire.Category,
		ZoneName: v.wire.AvailabilityZone, RegionName: c.region(q.region).RegionName,
	}
	c.opts.Catalog.Snapshots = with(c.opts.Catalog.Snapshots, q.region, made)
	return ok(made)
}

func (c *Cloud) deleteSnapshot(q *call) reply {
	return c.withdraw(q, "Snapshot %s could not be found.", reply{status: http.StatusNoContent}, func(id string) bool {
		return without(&c.opts.Catalog.Snapshots, q.region, func(s Snapshot) bool { return s.ID == id })
	})
}

func (c *Cloud) deleteCustomImage(q *call) reply {
	return c.withdraw(q, "Image %s could not be found.", reply{status: http.StatusNoContent}, func(id string) bool {
		return without(&c.opts.Catalog.CustomImages, q.region, func(i CustomImage) bool { return i.ID == id })
	})
}

type vpcRequest struct {
	Name        string `json:"name"`
	CIDR        string `json:"cidr"`
	Description string `json:"description"`
	IsDefault   bool   `json:"is_default"`
}

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

type keyPairReply struct {
	SSHKey
	UserID string `json:"user_id"`
}

func (c *Cloud) createKeyPair(q *call) reply {
	request, refusal := decode[SSHKey](q)
	if refusal != nil {
		return *refusal
	}
	switch {
	case request.Name == "" || !strings.HasPrefix(request.PublicKey, "ssh-"):
		return refuse(http.StatusBadRequest, "name and public_key are required")
	case slices.ContainsFunc(c.opts.Catalog.SSHKeys, func(k SSHKey) bool { return k.Name == request.Name }):
		return refuse(http.StatusConflict, "Key pair '"+request.Name+"' already exists.")
	}
	request.Fingerprint = c.newHex(16)
	c.opts.Catalog.SSHKeys = append(slices.Clone(c.opts.Catalog.SSHKeys), request)
	return ok(keyPairReply{SSHKey: request, UserID: userID(q.project)})
}

func (c *Cloud) deleteKeyPair(q *call) reply {
	return c.withdraw(q, "Keypair %s not found", ok(apiMessage{Message: "Xóa SSH key thành công"}), func(name string) bool {
		left := slices.DeleteFunc(slices.Clone(c.opts.Catalog.SSHKeys), func(k SSHKey) bool { return k.Name == name })
		found := len(left) < len(c.opts.Catalog.SSHKeys)
		c.opts.Catalog.SSHKeys = left
		return found
	})
}

// withdraw answers a deletion: done where take has found the thing.
func (c *Cloud) withdraw(q *call, missing string, done reply, take func(id string) bool) reply {
	if q.project != c.opts.Project || !take(q.vars[0]) {
		return problem(http.StatusNotFound, fmt.Sprintf(missing, q.vars[0]))
	}
	return done
}

// with returns the lists with one thing more in a region.
func with[E any](lists map[string][]E, region string, made E) map[string][]E {
	changed := maps.Clone(lists)
	changed[region] = append(slices.Clone(lists[region]), made)
	return changed
}

// without takes what matches out of a region and says whether there was such a thing.
func without[E any](lists *map[string][]E, region string, matches func(E) bool) bool {
	changed := maps.Clone(*lists)
	changed[region] = slices.DeleteFunc(slices.Clone((*lists)[region]), matches)
	found := len(changed[region]) < len((*lists)[region])
	*lists = changed
	return found
}
