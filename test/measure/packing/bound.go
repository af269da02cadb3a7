// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"math"
	"strconv"
)

// Bound is a price in VND per hour that no packing of the items is below. Items that fit into no bin count for nothing.
//
// Why it holds: choose any weights u of the resources, none negative, and value item i, whose requests are r(i), at
//
//	v(i) = the minimum over the bins b that may run it of price(b) * u·r(i) / u·capacity(b).
//
// Whatever set of items a node of kind b holds, their requests are at most its capacity, so their values are at most
// price(b) * u·(sum of r(i)) / u·capacity(b), which is at most price(b). Summed up over the nodes of a packing, the values of all items are at most
// its price. That is true of all weights; the highest sum that a search of weights finds is the bound. Members of a group of which a node may hold
// m at most are worth the cheapest of their bins divided by m, for the same reason.
func Bound(items []Item, bins []Bin) float64 {
	_, bound := newProblem(items, bins, nil).bound()
	return bound
}

// class is items that are worth the same.
type class struct {
	size    []int64
	allowed []bool
	items   []int
}

// bound returns the weights that are best, and the bound.
func (p *problem) bound() (weights []float64, bound float64) {
	classes := p.classes()
	largest := make([]float64, p.dims)
	for _, c := range classes {
		for b := range p.bins {
			for d := range largest {
				if c.allowed[b] {
					largest[d] = max(largest[d], float64(p.bins[b].size[d]))
				}
			}
		}
	}
	value := func(shares []float64) float64 {
		u := make([]float64, p.dims)
		for d := range u {
			if largest[d] > 0 {
				u[d] = shares[d] / largest[d]
			}
		}
		capacity := make([]float64, len(p.bins))
		for b := range capacity {
			capacity[b] = dot(u, p.bins[b].size)
		}
		sum := 0.0
		for _, c := range classes {
			sum += float64(len(c.items)) * p.worth(dot(u, c.size), c.allowed, capacity)
		}
		return sum
	}
	best := make([]float64, p.dims)
	try := func(shares []float64) bool {
		if v := value(shares); v > bound*(1+1e-9) {
			bound = v
			copy(best, shares)
			return true
		}
		return false
	}
	p.searchWeights(best, try)
	weights = make([]float64, p.dims)
	for d := range weights {
		if largest[d] > 0 {
			weights[d] = best[d] / largest[d]
		}
	}
	for _, c := range classes {
		bound = max(bound, p.cheapest(c.allowed))
	}
	return weights, max(bound, p.groupBound())
}

// searchWeights tries pairs of resources in steps, and then changes one weight at a time while that helps.
func (p *problem) searchWeights(best []float64, try func([]float64) bool) {
	const steps = 16
	for a := range p.dims {
		for b := range a + 1 {
			for k := range steps + 1 {
				shares := make([]float64, p.dims)
				shares[a] += float64(k) / steps
				shares[b] += float64(steps-k) / steps
				try(shares)
			}
		}
	}
	for range 8 {
		improved := false
		for d := range p.dims {
			for _, factor := range []float64{0, 0.5, 0.8, 0.95, 1.05, 1.25, 2} {
				shares := append([]float64{}, best...)
				shares[d] *= factor
				improved = try(shares) || improved
			}
			if best[d] == 0 {
				for _, share := range []float64{0.01, 0.1, 0.5} {
					shares := append([]float64{}, best...)
					shares[d] = share
					improved = try(shares) || improved
				}
			}
		}
		if !improved {
			return
		}
	}
}

// worth is what an item of a weighted size costs at least.
func (p *problem) worth(size float64, allowed []bool, capacity []float64) float64 {
	least := math.Inf(1)
	for b, ok := range allowed {
		if !ok {
			continue
		}
		if capacity[b] <= 0 || size <= 0 {
			return 0
		}
		least = min(least, p.bins[b].price*size/capacity[b])
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// cheapest is the lowest price among bins; 0 if there is none.
func (p *problem) cheapest(allowed []bool) float64 {
	least := math.Inf(1)
	for b, ok := range allowed {
		if ok {
			least = min(least, p.bins[b].price)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// groupBound is the bound by limits: of the members of a group that have a limit for it, a node holds no more than the highest such limit.
func (p *problem) groupBound() float64 {
	members, most := map[int][]int{}, map[int]int{}
	for i := range p.items {
		for _, l := range p.items[i].limits {
			for _, group := range p.items[i].groups {
				if group == l.group {
					members[group] = append(members[group], i)
					most[group] = max(most[group], l.most)
				}
			}
		}
	}
	highest := 0.0
	for group, items := range members {
		if most[group] < 1 {
			continue
		}
		sum := 0.0
		for _, i := range items {
			sum += p.cheapest(p.items[i].allowed) / float64(most[group])
		}
		highest = max(highest, sum)
	}
	return highest
}

// classes joins items that are alike: replicas are.
func (p *problem) classes() []class {
	index := map[string]int{}
	var classes []class
	for i := range p.items {
		key := make([]byte, 0, 8*p.dims+len(p.bins))
		for _, amount := range p.items[i].size {
			key = append(strconv.AppendInt(key, amount, 36), ',')
		}
		for _, ok := range p.items[i].allowed {
			key = append(key, map[bool]byte{true: 1}[ok])
		}
		at, known := index[string(key)]
		if !known {
			at = len(classes)
			index[string(key)] = at
			classes = append(classes, class{size: p.items[i].size, allowed: p.items[i].allowed})
		}
		classes[at].items = append(classes[at].items, i)
	}
	return classes
}

// appraise sets the value of every item by weights.
func (p *problem) appraise(weights []float64) {
	capacity := make([]float64, len(p.bins))
	for b := range capacity {
		capacity[b] = dot(weights, p.bins[b].size)
	}
	for i := range p.items {
		p.items[i].value = p.worth(dot(weights, p.items[i].size), p.items[i].allowed, capacity)
	}
}

func dot(weights []float64, size []int64) float64 {
	sum := 0.0
	for d, weight := range weights {
		sum += weight * float64(size[d])
	}
	return sum
}
