// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// Options of Best.
type Options struct {
	// Seed decides every random choice.
	Seed uint64
	// Iterations are the steps of local search. The result depends on their number, and not on the speed of the machine.
	Iterations int
}

// Best returns the cheapest packing that it finds: several heuristics, and then a local search that takes some nodes of the best packing
// apart and packs their items anew, onto the others and into new nodes, so that a node is emptied, two become a cheaper one, one becomes two cheaper
// ones, or m become n. The context's end ends the search, not the answer; without it, the same seed finds the same packing.
func Best(ctx context.Context, items []Item, bins []Bin, o Options) *Packing {
	p := newProblem(items, bins)
	weights, _ := p.bound()
	p.appraise(weights)
	s := &search{problem: p, random: rand.New(rand.NewPCG(o.Seed, 1)), open: p.undominated()} //nolint:gosec // a seed is tried again
	best := s.improve(ctx, s.start(ctx), o.Iterations)
	packing := &Packing{VNDPerHour: best.price}
	for _, n := range best.nodes {
		packing.Nodes = append(packing.Nodes, Node{Bin: bins[n.bin], Items: slices.Sorted(slices.Values(n.items))})
	}
	return packing
}

// search is one search.
type search struct {
	*problem
	random *rand.Rand
	// open are the kinds that nodes may be.
	open []int
}

// node is a node of a solution. Solutions share nodes, so none is changed: with makes another.
type node struct {
	bin   int
	items []int
	used  []int64
	value float64
}

// solution is a packing of all items that fit anywhere.
type solution struct {
	nodes []*node
	price float64
}

func (s *search) solution(nodes []*node) *solution {
	made := &solution{nodes: nodes}
	for _, n := range nodes {
		made.price += s.bins[n.bin].price
	}
	return made
}

// new makes an empty node.
func (s *search) new(b int) *node { return &node{bin: b, used: make([]int64, s.dims)} }

// add puts an item on a node; it must be on none.
func (s *search) add(n *node, i int) {
	n.items = append(n.items, i)
	for d, amount := range s.items[i].size {
		n.used[d] += amount
	}
	n.value += s.items[i].value
}

// with is a node with one more item.
func (s *search) with(n *node, i int) *node {
	grown := &node{bin: n.bin, items: slices.Clone(n.items), used: slices.Clone(n.used), value: n.value}
	s.add(grown, i)
	return grown
}

// holds reports whether a node has capacity for one more item.
func (s *search) holds(n *node, i int) bool {
	capacity := s.bins[n.bin].size
	for d, amount := range s.items[i].size {
		if n.used[d]+amount > capacity[d] {
			return false
		}
	}
	return true
}

// start is the cheapest of the heuristics.
func (s *search) start(ctx context.Context) *solution {
	var items []int
	for i := range s.items {
		if s.placeable(i) {
			items = append(items, i)
		}
	}
	var best *solution
	consider := func(nodes []*node) {
		if made := s.solution(s.shrunk(nodes)); best == nil || made.price < best.price {
			best = made
		}
	}
	for _, by := range []order{byValue, byShare, byFirst, bySecond} {
		sorted := s.sorted(items, by)
		consider(s.pack(sorted, cheapestPerValue, 0))
		consider(s.pack(sorted, largestFirst, 0))
		for _, kind := range s.open {
			if ctx.Err() != nil {
				return best
			}
			for _, choose := range []func([]*node, int) int{s.first, s.fullest} {
				made, rest := s.single(kind, sorted, choose)
				consider(append(made, s.pack(rest, cheapestPerValue, 0)...))
			}
		}
	}
	return best
}

// improve is the local search.
func (s *search) improve(ctx context.Context, best *solution, iterations int) *solution {
	current, since := best, 0
	for range iterations {
		if ctx.Err() != nil || len(best.nodes) == 0 {
			break
		}
		next := s.neighbor(current)
		if next.price < best.price*(1-1e-9) {
			best, since = next, 0
		}
		// A little worse is allowed: the way to a better packing may lead through it. After a while the search begins at the best again.
		if since++; since > 500 {
			current, since = best, 0
		} else if next.price <= current.price*(1+1e-9) || next.price < best.price*(1+0.03*s.random.Float64()*s.random.Float64()) {
			current = next
		}
	}
	return best
}

// neighbor takes some nodes apart and packs their items anew.
func (s *search) neighbor(from *solution) *solution {
	taken := map[int]bool{}
	for range 1 + s.random.IntN(4) {
		// Of two nodes that are drawn, the one that wastes more of its price.
		a, b := s.random.IntN(len(from.nodes)), s.random.IntN(len(from.nodes))
		if s.waste(from.nodes[b]) > s.waste(from.nodes[a]) {
			a = b
		}
		taken[a] = true
	}
	var kept []*node
	var items []int
	for at, n := range from.nodes {
		if !taken[at] {
			kept = append(kept, n)
			continue
		}
		items = append(items, n.items...)
	}
	slices.Sort(items)
	by, noise := order(s.random.IntN(4)), s.random.Float64()
	items = sortedBy(s.sorted(items, by), func(i int) float64 { return s.items[i].value * (1 + noise*(s.random.Float64()-0.5)) })
	if s.random.IntN(4) > 0 {
		kept, items = s.insert(kept, items)
	}
	made := s.shrunk(s.pack(items, rule(s.random.IntN(2)), 0.3*s.random.Float64()))
	// The nodes that took items in may do with less, too.
	return s.solution(append(s.shrunk(kept), made...))
}

// waste is the part of a node's price that its items are not worth.
func (s *search) waste(n *node) float64 { return 1 - n.value/s.bins[n.bin].price }

// single packs into nodes of one kind, and returns what fits into none of them.
func (s *search) single(kind int, items []int, choose func([]*node, int) int) (nodes []*node, rest []int) {
	for _, i := range items {
		at := choose(nodes, i)
		if at < 0 {
			n := s.new(kind)
			if !s.holds(n, i) {
				rest = append(rest, i)
				continue
			}
			at = len(nodes)
			nodes = append(nodes, n)
		}
		s.add(nodes[at], i)
	}
	return nodes, rest
}

// first is the first node with capacity for an item; -1 if there is none.
func (s *search) first(nodes []*node, i int) int {
	return slices.IndexFunc(nodes, func(n *node) bool { return s.holds(n, i) })
}

// fullest is the node with capacity for an item that wastes least of its price; -1 if there is none.
func (s *search) fullest(nodes []*node, i int) int {
	best, least := -1, 0.0
	for at, n := range nodes {
		if !s.holds(n, i) {
			continue
		}
		if waste := s.bins[n.bin].price - n.value; best < 0 || waste < least {
			best, least = at, waste
		}
	}
	return best
}

// insert puts items onto nodes that have capacity, and returns the nodes and what is left.
func (s *search) insert(nodes []*node, items []int) ([]*node, []int) {
	nodes = slices.Clone(nodes)
	var rest []int
	for _, i := range items {
		at := s.fullest(nodes, i)
		if at < 0 {
			rest = append(rest, i)
			continue
		}
		nodes[at] = s.with(nodes[at], i)
	}
	return nodes, rest
}

// rule is how pack chooses the next node.
type rule int

const (
	// cheapestPerValue takes the kind whose items are worth most for its price.
	cheapestPerValue rule = iota
	// largestFirst does so among nodes that hold the first item.
	largestFirst
)

// pack puts items into new nodes, in their order. Noise makes it choose worse kinds now and then.
func (s *search) pack(items []int, r rule, noise float64) []*node {
	var nodes []*node
	for len(items) > 0 {
		var best *node
		highest := 0.0
		for _, kind := range s.open {
			n := s.new(kind)
			if r == largestFirst && !s.holds(n, items[0]) {
				continue
			}
			for _, i := range items {
				if s.holds(n, i) {
					s.add(n, i)
				}
			}
			if len(n.items) == 0 {
				continue
			}
			worth := (n.value + 1e-9*float64(len(n.items))) / s.bins[kind].price
			if noise > 0 {
				worth *= 1 + noise*(s.random.Float64()-0.5)
			}
			if best == nil || worth > highest {
				best, highest = n, worth
			}
		}
		nodes = append(nodes, best)
		taken := make(map[int]bool, len(best.items))
		for _, i := range best.items {
			taken[i] = true
		}
		items = slices.DeleteFunc(slices.Clone(items), func(i int) bool { return taken[i] })
	}
	return nodes
}

// shrunk makes every node the cheapest that holds its items.
func (s *search) shrunk(nodes []*node) []*node {
	shrunk := slices.Clone(nodes)
	for at, n := range shrunk {
		best := n.bin
		for _, kind := range s.open {
			if s.bins[kind].price < s.bins[best].price && fits(n.used, s.bins[kind].size) {
				best = kind
			}
		}
		shrunk[at] = &node{bin: best, items: n.items, used: n.used, value: n.value}
	}
	return shrunk
}

// order is by what items are sorted, the largest first.
type order int

const (
	byValue order = iota
	byShare
	byFirst
	bySecond
)

// sorted is the items in an order. Equal ones stay as they are.
func (s *search) sorted(items []int, by order) []int {
	key := func(i int) float64 {
		size := s.items[i].size
		switch {
		case by == byFirst:
			return float64(size[0])
		case by == bySecond && s.dims > 2:
			return float64(size[1])
		case by == byShare:
			share := 0.0
			for d, amount := range size {
				largest := int64(1)
				for _, kind := range s.open {
					largest = max(largest, s.bins[kind].size[d])
				}
				share = max(share, float64(amount)/float64(largest))
			}
			return share
		}
		return s.items[i].value
	}
	return sortedBy(items, key)
}

func sortedBy(items []int, key func(int) float64) []int {
	keys := make(map[int]float64, len(items))
	for _, i := range items {
		keys[i] = key(i)
	}
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(keys[b], keys[a]) })
	return sorted
}
