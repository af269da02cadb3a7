// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"fmt"
	"math"
)

// Bound is a price in VND per hour that no packing of the items is below. Items that fit into no bin count for nothing.
//
// Why it holds: choose any weights u of the resources, none negative, and value item i, whose requests are r(i), at
//
//	v(i) = the minimum over the bins b that it fits into of price(b) * u·r(i) / u·capacity(b).
//
// Whatever set of items a node of kind b holds, their requests are at most its capacity, so their values are at most
// price(b) * u·(sum of r(i)) / u·capacity(b), which is at most price(b). Summed up over the nodes of a packing, the values of all items are at most
// its price. That is true of all weights; the highest sum that a search of weights finds is the bound.
func Bound(items []Item, bins []Bin) float64 {
	return newProblem(items, bins).bound()
}

// class is items that are alike: replicas are.
type class struct {
	size  []int64
	count int
}

// bound is the highest that a search of weights finds.
func (p *problem) bound() (bound float64) {
	classes := p.classes()
	largest := make([]float64, p.dims)
	for _, c := range classes {
		for _, b := range p.bins {
			for d := range largest {
				if fits(c.size, b.size) {
					largest[d] = max(largest[d], float64(b.size[d]))
				}
			}
		}
	}
	weightsOf := func(shares []float64) []float64 {
		u := make([]float64, p.dims)
		for d := range u {
			if largest[d] > 0 {
				u[d] = shares[d] / largest[d]
			}
		}
		return u
	}
	value := func(shares []float64) float64 {
		u := weightsOf(shares)
		capacity := p.capacities(u)
		sum := 0.0
		for _, c := range classes {
			sum += float64(c.count) * p.worth(u, c.size, capacity)
		}
		return sum
	}
	best := make([]float64, p.dims)
	p.searchWeights(best, func(shares []float64) bool {
		if v := value(shares); v > bound*(1+1e-9) {
			bound = v
			copy(best, shares)
			return true
		}
		return false
	})
	for _, c := range classes {
		bound = max(bound, p.cheapest(c.size))
	}
	return bound
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

// worth is what an item of a size costs at least.
func (p *problem) worth(weights []float64, size []int64, capacity []float64) float64 {
	least, weighted := math.Inf(1), dot(weights, size)
	for b := range p.bins {
		if !fits(size, p.bins[b].size) {
			continue
		}
		if capacity[b] <= 0 || weighted <= 0 {
			return 0
		}
		least = min(least, p.bins[b].price*weighted/capacity[b])
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// cheapest is the lowest price among the bins that a size fits into; 0 if there is none.
func (p *problem) cheapest(size []int64) float64 {
	least := math.Inf(1)
	for _, b := range p.bins {
		if fits(size, b.size) {
			least = min(least, b.price)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// classes joins items that are alike, in the order of the first of each.
func (p *problem) classes() []class {
	index := map[string]int{}
	var classes []class
	for _, i := range p.items {
		key := fmt.Sprint(i)
		at, known := index[key]
		if !known {
			at = len(classes)
			index[key] = at
			classes = append(classes, class{size: i})
		}
		classes[at].count++
	}
	return classes
}

// capacities are those of the bins, weighted.
func (p *problem) capacities(weights []float64) []float64 {
	capacity := make([]float64, len(p.bins))
	for b := range capacity {
		capacity[b] = dot(weights, p.bins[b].size)
	}
	return capacity
}

func dot(weights []float64, size []int64) float64 {
	sum := 0.0
	for d, weight := range weights {
		sum += weight * float64(size[d])
	}
	return sum
}
