// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// The defaults of the cluster-autoscaler: how often it looks, below which part of its requests a node is not needed, and for how long that
// must be so, and how long after a new node nothing is removed.
const (
	scan      = 10 * time.Second
	threshold = 0.5
	unneeded  = 10 * time.Minute
	afterAdd  = 10 * time.Minute
)

// pool is worker nodes of one flavor that a cluster-autoscaler adds and removes.
type pool struct {
	*Live
	flavor      string
	allocatable corev1.ResourceList
	servers     map[*machine]string
	// coming are nodes that boot.
	coming []*machine
	// idle is since when a node is not needed.
	idle     map[*machine]time.Time
	added    time.Time
	scanning bool
}

// NewPool makes an empty cluster with one pool of workers and a cluster-autoscaler. Its nodes have what nodes of Karpenter have of that flavor.
// CloseCloud ends it.
func NewPool(ctx context.Context, flavor string, allocatable corev1.ResourceList) *Live {
	l := newLive(ctx)
	l.scaler = &pool{Live: l, flavor: flavor, allocatable: allocatable, servers: map[*machine]string{}, idle: map[*machine]time.Time{}, added: l.start}
	return l
}

func (p *pool) pending(context.Context, *pod) {}

func (p *pool) bound(context.Context, *pod) {}

func (p *pool) gone(context.Context, *pod, *machine) {
	p.wanted()
}

// observe implements scaler. No program runs in such a cluster.
func (p *pool) observe(context.Context) {}

// wanted implements scaler: as long as there is anything, it looks.
func (p *pool) wanted() {
	if p.scanning {
		return
	}
	p.scanning = true
	next := p.now().Sub(p.start).Truncate(scan) + scan
	p.agenda.add(p.start.Add(next), func(ctx context.Context) {
		p.scanning = false
		p.scan(ctx)
		if len(p.machines)+len(p.coming) > 0 {
			p.wanted()
		}
	})
}

func (p *pool) scan(ctx context.Context) {
	if len(p.waiting) > 0 && p.scaleUp() {
		return
	}
	p.scaleDown(ctx)
}

// scaleUp adds the nodes that pods need which do not fit those that boot, largest pods first.
func (p *pool) scaleUp() bool {
	waiting := slices.Clone(p.waiting)
	slices.SortStableFunc(waiting, func(a, b *pod) int { return cmp.Compare(p.share(b), p.share(a)) })
	planned := copies(p.coming)
	known := len(planned)
	for _, wants := range waiting {
		m := first(planned, wants)
		if m == nil {
			m = newMachine("", p.allocatable)
			if !m.fits(wants) {
				continue // no node holds it
			}
			planned = append(planned, m)
		}
		place(m, wants)
	}
	for range len(planned) - known {
		p.addNode()
	}
	return len(planned) > known
}

// share is the larger part of a node that a pod requests.
func (p *pool) share(of *pod) float64 {
	m := newMachine("", p.allocatable)
	place(m, of)
	return m.used()
}

func (p *pool) addNode() {
	p.launches++
	name := fmt.Sprintf("worker-%d", p.launches)
	server := p.Sandbox.AddServer(cloud.ServerSpec{Name: name, Flavor: p.flavor})
	m := newMachine(name, p.allocatable)
	p.coming, p.servers[m], p.added, p.changed = append(p.coming, m), server.ID, p.now(), p.now()
	p.after(build+boot, func(ctx context.Context) {
		p.coming = slices.DeleteFunc(p.coming, func(other *machine) bool { return other == m })
		p.machines, p.changed = append(p.machines, m), p.now()
		p.schedule(ctx)
	})
}

// scaleDown removes the nodes that are empty, or one whose pods fit elsewhere, once they have not been needed for long enough.
func (p *pool) scaleDown(ctx context.Context) {
	var ripe []*machine
	for _, m := range p.machines {
		if m.blocked || m.used() >= threshold || !p.movable(m) {
			delete(p.idle, m)
			continue
		}
		if p.idle[m].IsZero() {
			p.idle[m] = p.now()
		}
		if p.now().Sub(p.idle[m]) >= unneeded && p.now().Sub(p.added) >= afterAdd {
			ripe = append(ripe, m)
		}
	}
	slices.SortStableFunc(ripe, func(a, b *machine) int { return cmp.Compare(a.used(), b.used()) })
	for _, m := range ripe {
		full := len(m.pods) > 0
		if full && !p.movable(m) {
			continue
		}
		p.removeNode(ctx, m)
		if full {
			break
		}
	}
}

// movable reports whether the pods of a node fit the others.
func (p *pool) movable(m *machine) bool {
	others := copies(slices.DeleteFunc(slices.Clone(p.machines), func(other *machine) bool { return other == m || other.blocked }))
	for _, on := range m.pods {
		to := first(others, on)
		if to == nil {
			return false
		}
		place(to, on)
	}
	return true
}

func (p *pool) removeNode(ctx context.Context, m *machine) {
	delete(p.idle, m)
	p.evict(ctx, m)
	p.after(drain, func(context.Context) {
		p.removeMachine(m)
		var disks []string
		for _, volume := range p.Sandbox.State().Volumes {
			for _, attachment := range volume.Attachments {
				if attachment.ServerID == p.servers[m] {
					disks = append(disks, volume.ID)
				}
			}
		}
		lo.Must0(p.Sandbox.RemoveServer(p.servers[m]))
		for _, disk := range disks {
			lo.Must0(p.Sandbox.RemoveVolume(disk))
		}
	})
}

// copies are machines that a plan may fill. place does not tell the pod.
func copies(machines []*machine) []*machine {
	var result []*machine
	for _, m := range machines {
		c := *m
		c.pods = slices.Clone(m.pods)
		result = append(result, &c)
	}
	return result
}

func place(m *machine, p *pod) {
	m.pods, m.usedCPU, m.usedBytes = append(m.pods, p), m.usedCPU+p.MilliCPU, m.usedBytes+p.bytes()
}

// first returns the first machine that a pod fits, nil for none.
func first(machines []*machine, p *pod) *machine {
	for _, m := range machines {
		if m.fits(p) {
			return m
		}
	}
	return nil
}
