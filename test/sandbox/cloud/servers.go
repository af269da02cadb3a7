// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The statuses of servers that the sandbox gives by itself; SetServerStatus accepts any text.
const (
	StatusBuild   = "BUILD"
	StatusActive  = "ACTIVE"
	StatusShutoff = "SHUTOFF"
	StatusError   = "ERROR"
)

// server is the record of one server. What the API shows of its disks and ports is computed from those.
type server struct {
	seq       uint64
	wire      Server // without volumes, addresses and security groups
	truth     ServerTruth
	hidden    bool // not listed until its create task is ready
	volumes   []string
	ports     []string
	stock     []stockKey // what a delete gives back
	addData   func()     // creates and attaches the data disks; nil once that is done
	history   []statusAt // the last statuses, for lists that are stale
	deletedAt time.Time
}

type statusAt struct {
	at     time.Time
	status string
}

func (s *server) order() uint64 { return s.seq }

func (s *server) owned(q *call) bool {
	return s.truth.Project == q.project && s.truth.Region == q.region
}

// setStatus changes the status with everything that follows from it; the caller holds the lock.
func (c *Cloud) setStatus(s *server, status string) {
	s.wire.Status = status
	s.wire.Updated = seconds(c.now)
	s.wire.VMState, s.wire.PowerState = "building", 0
	switch status {
	case StatusActive:
		s.wire.VMState, s.wire.PowerState = "active", 1
	case StatusShutoff:
		s.wire.VMState, s.wire.PowerState = "stopped", 4
	case StatusReboot, StatusHardReboot:
		s.wire.VMState = "active"
	case StatusBuild:
	default:
		s.wire.VMState = strings.ToLower(status)
	}
	s.wire.IsAvailable = status == StatusActive
	s.history = append(s.history, statusAt{c.now, status})
	if len(s.history) > 16 {
		s.history = s.history[1:]
	}
	c.chargeServer(s)
	if status != StatusActive {
		s.truth.ActiveAt = time.Time{}
		return
	}
	s.hidden = false
	s.wire.Fault = nil
	if s.truth.ActiveAt.IsZero() {
		s.truth.ActiveAt = c.now
	}
	if s.wire.LaunchedAt == nil {
		launched := micros(c.now)
		s.wire.LaunchedAt = &launched
	}
	c.hooks = append(c.hooks, hook{server: c.truthOf(s)})
}

// render is the server as the API shows it. Nothing in it is shared with the record.
func (c *Cloud) render(s *server) Server {
	w := s.wire
	w.Metadata = maps.Clone(s.wire.Metadata)
	w.VolumesAttached = []AttachedVolume{}
	for _, id := range s.volumes {
		if v := c.volumes[id]; v != nil {
			w.VolumesAttached = append(w.VolumesAttached, c.renderAttached(v))
		}
	}
	w.Addresses = map[string][]Address{}
	w.IPAddresses = IPAddresses{LAN: []Address{}, WANV4: []Address{}, WANV6: []Address{}}
	w.SecurityGroups = []SecurityGroup{}
	for _, id := range s.ports {
		p := c.ports[id]
		if p == nil {
			continue
		}
		address := Address{Version: p.version(), Addr: p.ip, Type: "fixed", MAC: p.mac}
		switch {
		case p.v6:
			w.IPAddresses.WANV6 = append(w.IPAddresses.WANV6, address)
		case p.wan:
			w.IPAddresses.WANV4 = append(w.IPAddresses.WANV4, address)
		default:
			w.IPAddresses.LAN = append(w.IPAddresses.LAN, address)
		}
		address.NetworkName = p.networkName
		w.Addresses[p.networkName] = append(w.Addresses[p.networkName], address)
		for _, firewall := range p.firewalls {
			w.SecurityGroups = append(w.SecurityGroups, SecurityGroup{Name: c.firewallName(p, firewall)})
		}
	}
	return w
}

// ipv6Of is the address that a port makes of its hardware address.
func ipv6Of(mac string) string {
	parts := strings.Split(mac, ":")
	return "2001:df0:66::" + strings.Join(parts[:2], "") + ":" + strings.Join(parts[2:4], "") + ":" + strings.Join(parts[4:], "")
}

// nested is the form in replies of actions: of the volumes only the ids.
func (c *Cloud) nested(s *server) Server {
	w := c.render(s)
	for i := range w.VolumesAttached {
		w.VolumesAttached[i].brief = true
	}
	return w
}

// truthOf is the server with the ground truth.
func (c *Cloud) truthOf(s *server) Server {
	w := c.render(s)
	truth := s.truth
	if truth.Guest != nil {
		guest := *truth.Guest
		truth.Guest = &guest
	}
	w.Truth = &truth
	return w
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/servers", (*Cloud).listServers, "name", "status", "ip"),
	on(http.MethodGet, "/servers/{id}", (*Cloud).getServer),
)

func (c *Cloud) listServers(q *call) reply {
	servers := []Server{}
	at := c.now.Add(-q.fx.staleness())
	for _, s := range c.serversAt(q, at) {
		switch {
		case !strings.Contains(s.Name, q.query.Get("name")):
		case q.query.Get("status") != "" && !strings.EqualFold(s.Status, q.query.Get("status")):
		case q.query.Get("ip") != "" && !hasIP(s, q.query.Get("ip")):
		default:
			servers = append(servers, s)
		}
	}
	return ok(servers)
}

// serversAt is what a list at that time showed: servers deleted since are still there with their last status before,
// servers made since are not.
func (c *Cloud) serversAt(q *call, at time.Time) []Server {
	var records []*server
	if q.fx.staleness() > 0 {
		for _, s := range c.tombstones {
			if s.deletedAt.After(at) {
				records = append(records, s)
			}
		}
	}
	records = append(records, sorted(c.servers)...)
	slices.SortStableFunc(records, func(a, b *server) int { return cmp.Compare(a.seq, b.seq) })
	var servers []Server
	for _, s := range records {
		if !s.owned(q) || s.hidden || s.truth.CreatedAt.After(at) {
			continue
		}
		w := c.render(s)
		for _, then := range s.history {
			if !then.at.After(at) {
				w.Status = then.status
			}
		}
		servers = append(servers, w)
	}
	return servers
}

func hasIP(s Server, ip string) bool {
	has := func(a Address) bool { return a.Addr == ip }
	return slices.ContainsFunc(s.IPAddresses.LAN, has) || slices.ContainsFunc(s.IPAddresses.WANV4, has)
}

// visibleServer returns a server that this call may see.
func (c *Cloud) visibleServer(q *call, id string) *server {
	if s, rejection := find(q, c.servers, "Instance", id); rejection == nil && !s.hidden {
		return s
	}
	return nil
}

func noSuchServer(id string) reply {
	return problem(http.StatusNotFound, "Instance "+id+" could not be found.")
}

func (c *Cloud) getServer(q *call) reply {
	if staleness := q.fx.staleness(); staleness > 0 {
		for _, s := range c.serversAt(q, c.now.Add(-staleness)) {
			if s.ID == q.vars[0] {
				return ok(s)
			}
		}
		return noSuchServer(q.vars[0])
	}
	s := c.visibleServer(q, q.vars[0])
	if s == nil {
		return noSuchServer(q.vars[0])
	}
	return ok(c.render(s))
}
