// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
)

// AttachFirewall attaches a firewall to an interface, as a user of the dashboard would.
func (c *Cloud) AttachFirewall(portID, firewallID string) error {
	err := fmt.Errorf("port %s: %w", portID, ErrNotFound)
	c.with(func() {
		if p := c.ports[portID]; p != nil {
			err = nil
			if !slices.Contains(p.firewalls, firewallID) {
				p.firewalls = append(p.firewalls, firewallID)
			}
		}
	})
	return err
}

// DetachFirewall takes a firewall off a network interface, as a user of the console can.
func (c *Cloud) DetachFirewall(portID, firewallID string) error {
	err := fmt.Errorf("port %s: %w", portID, ErrNotFound)
	c.with(func() {
		if p := c.ports[portID]; p != nil {
			err = nil
			p.firewalls = slices.DeleteFunc(p.firewalls, func(id string) bool { return id == firewallID })
		}
	})
	return err
}

// PayForAddresses makes every interface of a server one that is paid for, so that it outlives the server, as a user of the dashboard
// does who converts an address to a paid one. It returns their ids.
func (c *Cloud) PayForAddresses(serverID string) []string {
	var ids []string
	c.with(func() {
		if s := c.servers[serverID]; s != nil {
			for _, id := range s.ports {
				c.ports[id].paid, c.ports[id].implicit = true, false
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// AddWanIP allocates a public address in the zone of a server and attaches it, as a user of the dashboard would. It returns
// its id, and "" where there is no such server or no address left.
func (c *Cloud) AddWanIP(serverID, name string) string {
	id := ""
	c.with(func() {
		s := c.servers[serverID]
		if s == nil {
			return
		}
		if p := c.wanPort(s.truth.Project, s.truth.Region, s.wire.AvailabilityZone, name, nil); p != nil {
			p.paid = true
			c.attachPort(p, s)
			id = p.id
		}
	})
	return id
}

// MovePort takes an interface from its server and gives it to another; "" leaves it free.
func (c *Cloud) MovePort(portID, serverID string) {
	c.with(func() {
		p := c.ports[portID]
		if p == nil {
			return
		}
		if s := c.servers[p.server]; s != nil {
			c.detachPort(p, s)
		}
		if s := c.servers[serverID]; s != nil {
			c.attachPort(p, s)
		}
	})
}
