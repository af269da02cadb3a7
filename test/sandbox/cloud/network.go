// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// port is the record of one LAN or WAN port.
type port struct {
	seq                         uint64
	id, name, ip, mac           string
	networkID, subnetID         string
	networkName                 string
	project, region, zone       string
	server                      string
	wan, implicit, paid, isMain bool
	v6, disabled                bool
	firewalls                   []string
	created                     string
}

func (p *port) order() uint64 { return p.seq }

func (p *port) owned(q *call) bool { return p.project == q.project && p.region == q.region }

func (c *Cloud) renderPort(p *port) NetworkInterface {
	w := NetworkInterface{
		ID: p.id, Name: p.name, NetworkID: p.networkID, TenantID: p.project, MacAddress: p.mac, AdminStateUp: !p.disabled, Status: "DOWN",
		FixedIPs:            []FixedIP{{SubnetID: p.subnetID, IPAddress: p.ip, IPVersion: p.version()}},
		AllowedAddressPairs: []string{}, ExtraDHCPOpts: []string{}, SecurityGroups: slices.Clone(p.firewalls), VnicType: "normal",
		PortSecurity: true, Tags: []string{}, CreatedAt: p.created, UpdatedAt: p.created, RevisionNumber: 1, ProjectID: p.project,
		Type: "LAN", BillingType: "free", IPAddress: p.ip, IPVersion: p.version(),
	}
	if p.wan {
		w.Type = "WAN"
	}
	if p.paid {
		w.BillingType = "paid"
	}
	if w.SecurityGroups == nil {
		w.SecurityGroups = []string{}
	}
	if s := c.servers[p.server]; s != nil {
		w.DeviceID, w.DeviceOwner = s.wire.ID, "compute:"+s.wire.AvailabilityZone
		if !p.disabled {
			w.Status = "ACTIVE"
		}
		w.AttachedServer = AttachedServer{ID: s.wire.ID, Name: s.wire.Name}
	}
	return w
}

func (p *port) version() int {
	if p.v6 {
		return 6
	}
	return 4
}

func (c *Cloud) renderWanIP(p *port) WanIP {
	return WanIP{NetworkInterface: c.renderPort(p), NetworkName: p.networkName, Bandwidth: 1000000, AvailabilityZone: p.zone, IsMain: p.isMain}
}

func addressNumber(text string) uint32 {
	address, err := netip.ParseAddr(text)
	if err != nil || !address.Is4() {
		return 0
	}
	raw := address.As4()
	return binary.BigEndian.Uint32(raw[:])
}

func addressText(n uint32) string {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], n)
	return netip.AddrFrom4(raw).String()
}

// freeAddress takes the next free address of a range, or returns "".
func (c *Cloud) freeAddress(network string, pool IPPool) string {
	first, last := addressNumber(pool.Start), addressNumber(pool.End)
	taken := c.taken[network]
	if taken == nil {
		taken = map[string]bool{}
		c.taken[network] = taken
	}
	next := max(c.next[network], first)
	for range last - first + 1 {
		if next > last {
			next = first
		}
		address := addressText(next)
		next++
		if !taken[address] {
			taken[address] = true
			c.next[network] = next
			return address
		}
	}
	return ""
}

// freeAddresses counts what is left in a network.
func (c *Cloud) freeAddresses(vpc VPC) int {
	total := 0
	for _, subnet := range vpc.Subnets {
		for _, pool := range subnet.AllocationPools {
			first, last := addressNumber(pool.Start), addressNumber(pool.End)
			total += int(last) - int(first) + 1
			for address := range c.taken[vpc.ID] {
				if n := addressNumber(address); n >= first && n <= last {
					total--
				}
			}
		}
	}
	return total
}

func (c *Cloud) newPort(project, region, zone, name string, firewalls []string) *port {
	p := &port{
		seq: c.nextSeq(), id: c.newUUID(), name: name, project: project, region: region, zone: zone, firewalls: slices.Clone(firewalls),
		mac: "fa:16:3e:" + c.newHex(1) + ":" + c.newHex(1) + ":" + c.newHex(1), created: seconds(c.now),
	}
	c.ports[p.id] = p
	return p
}

// addPort makes the LAN port that a server gets in a network, and that is deleted with it.
func (c *Cloud) addPort(s *server, vpc VPC, firewalls []string) {
	p := c.lanPort(s.truth.Project, s.truth.Region, s.wire.AvailabilityZone, s.wire.Name+"-"+vpc.Name, vpc, firewalls)
	if p == nil {
		return
	}
	p.implicit = true
	c.attachPort(p, s)
}

func (c *Cloud) lanPort(project, region, zone, name string, vpc VPC, firewalls []string) *port {
	for _, subnet := range vpc.Subnets {
		for _, pool := range subnet.AllocationPools {
			ip := c.freeAddress(vpc.ID, pool)
			if ip == "" {
				continue
			}
			p := c.newPort(project, region, zone, name, firewalls)
			p.ip, p.networkID, p.subnetID, p.networkName = ip, vpc.ID, subnet.ID, vpc.Name
			return p
		}
	}
	return nil
}

var wanPools = map[string]IPPool{
	RegionHN:  {Start: "103.56.156.2", End: "103.56.175.254"},
	RegionHCM: {Start: "45.124.84.2", End: "45.124.95.254"},
}

func (c *Cloud) wanPort(project, region, zone, name string, firewalls []string) *port {
	network := StableID("network", region, "EXT_DIRECTNET_0")
	ip := c.freeAddress(network, wanPools[region])
	if ip == "" {
		return nil
	}
	p := c.newPort(project, region, zone, name, firewalls)
	p.wan, p.ip, p.networkID, p.subnetID, p.networkName = true, ip, network, StableID("subnet", region, "EXT_DIRECTNET_0"), "EXT_DIRECTNET_0"
	return p
}

// addWanPort makes the free public address that a server gets, and that is deleted with it.
func (c *Cloud) addWanPort(s *server, firewalls []string) {
	p := c.wanPort(s.truth.Project, s.truth.Region, s.wire.AvailabilityZone, s.wire.Name+"-wan", firewalls)
	if p == nil {
		return
	}
	p.implicit, p.isMain = true, true
	c.attachPort(p, s)
}

// addIPv6Port makes the IPv6 address that a server gets, and that is deleted with it: a port of its own, of which no quota is
// needed.
func (c *Cloud) addIPv6Port(s *server, firewalls []string) {
	p := c.newPort(s.truth.Project, s.truth.Region, s.wire.AvailabilityZone, s.wire.Name+"-ipv6", firewalls)
	network := "EXT_DIRECTNET_V6_0"
	p.wan, p.v6, p.implicit, p.networkName, p.ip = true, true, true, network, ipv6Of(p.mac)
	p.networkID, p.subnetID = StableID("network", s.truth.Region, network), StableID("subnet", s.truth.Region, network)
	c.attachPort(p, s)
}

func (c *Cloud) attachPort(p *port, s *server) {
	p.server = s.wire.ID
	s.ports = append(s.ports, p.id)
}

func (c *Cloud) detachPort(p *port, s *server) {
	p.server = ""
	s.ports = slices.DeleteFunc(s.ports, func(id string) bool { return id == p.id })
}

func (c *Cloud) removePort(p *port) {
	if s := c.servers[p.server]; s != nil {
		c.detachPort(p, s)
	}
	delete(c.taken[p.networkID], p.ip)
	delete(c.ports, p.id)
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

func (c *Cloud) listVPCs(q *call) reply { return ok(append([]VPC{}, c.vpcs(q)...)) }
