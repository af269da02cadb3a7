// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// machine is a node as the kube-scheduler sees it.
type machine struct {
	name string
	// milliCPU, bytes and most are what pods may request, and how many may run.
	milliCPU, bytes, most int64
	pods                  []*pod
	usedCPU, usedBytes    int64
	// blocked is true where no pod may be bound.
	blocked bool
	// guests are pods of other programs, which request nothing.
	guests []*guest
}

func newMachine(name string, allocatable corev1.ResourceList) *machine {
	return &machine{name: name, milliCPU: allocatable.Cpu().MilliValue(), bytes: allocatable.Memory().Value(), most: allocatable.Pods().Value()}
}

func (p *pod) bytes() int64 { return p.MiB << 20 }

func (m *machine) add(p *pod) {
	place(m, p)
	p.on = m
}

func (m *machine) remove(p *pod) {
	m.pods = slices.DeleteFunc(m.pods, func(other *pod) bool { return other == p })
	m.usedCPU, m.usedBytes, p.on = m.usedCPU-p.MilliCPU, m.usedBytes-p.bytes(), nil
}

func (m *machine) fits(p *pod) bool {
	return !m.blocked && int64(len(m.pods)+len(m.guests)) < m.most && !m.rejects(p) && m.usedCPU+p.MilliCPU <= m.milliCPU && m.usedBytes+p.bytes() <= m.bytes
}

// used is the larger part of what is requested there.
func (m *machine) used() float64 {
	return max(float64(m.usedCPU)/float64(m.milliCPU), float64(m.usedBytes)/float64(m.bytes))
}

// choose returns where the kube-scheduler binds a pod, nil for nowhere. By default it prefers nodes with least requested (NodeResourcesFit,
// weight 1), with CPU and memory requested in the same proportion (NodeResourcesBalancedAllocation, weight 1), and with few pods of the
// same Deployment (PodTopologySpread with its default constraints, weight 2).
func choose(machines []*machine, p *pod) *machine {
	var best *machine
	highest, most := math.Inf(-1), 0
	alike := map[*machine]int{}
	for _, m := range machines {
		for _, other := range m.pods {
			if other.App == p.App {
				alike[m]++
			}
		}
		most = max(most, alike[m])
	}
	for _, m := range machines {
		if !m.fits(p) {
			continue
		}
		cpu, memory := float64(m.usedCPU+p.MilliCPU)/float64(m.milliCPU), float64(m.usedBytes+p.bytes())/float64(m.bytes)
		score := (1-cpu+1-memory)/2 + 1 - math.Abs(cpu-memory)/2
		if most > 0 {
			score += 2 * float64(most-alike[m]) / float64(most)
		}
		if score > highest {
			best, highest = m, score
		}
	}
	return best
}
