// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"cmp"
	"context"
	"slices"
)

// start is the cheapest of the heuristics, and of what exists.
func (s *search) start(ctx context.Context, existing []Existing) *solution {
	var placeable, waiting, free []int
	nodes, at := s.existing(existing)
	fixed := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return !s.fixed(n) })
	for i := range s.items {
		if !slices.Contains(s.items[i].allowed, true) {
			continue
		}
		placeable = append(placeable, i)
		if at[i] == nil {
			waiting = append(waiting, i)
		}
		if !slices.Contains(fixed, at[i]) {
			free = append(free, i)
		}
	}
	var best *solution
	consider := func(nodes []*node) {
		placed := 0
		for _, n := range nodes {
			placed += len(n.items)
		}
		if made := s.solution(s.shrunk(nodes)); placed == len(placeable) && (best == nil || made.price < best.price) {
			best = made
		}
	}
	// What is on no node yet comes in beside those that exist. One that is empty is not needed.
	nodes, waiting = s.insert(nodes, s.sorted(waiting, byValue))
	nodes = append(nodes, s.pack(waiting, cheapestPerValue, 0)...)
	consider(slices.DeleteFunc(nodes, func(n *node) bool { return len(n.items) == 0 }))
	for _, by := range []order{byValue, byShare, byFirst, bySecond} {
		sorted := s.sorted(free, by)
		consider(append(slices.Clip(fixed), s.pack(sorted, cheapestPerValue, 0)...))
		consider(append(slices.Clip(fixed), s.pack(sorted, largestFirst, 0)...))
		for _, kind := range s.open {
			if ctx.Err() != nil && best != nil {
				return best
			}
			for _, choose := range []func([]*node, int) int{s.first, s.fullest} {
				made, rest := s.single(kind, sorted, choose)
				consider(append(append(slices.Clip(fixed), made...), s.pack(rest, cheapestPerValue, 0)...))
			}
		}
	}
	return best
}

// fixed reports whether a node holds an item that can run on no new one.
func (s *search) fixed(n *node) bool {
	return n.bin >= s.kinds && slices.ContainsFunc(n.items, func(i int) bool { return !slices.Contains(s.items[i].allowed[:s.kinds], true) })
}

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
			if r == largestFirst && !s.items[items[0]].allowed[kind] {
				continue
			}
			n := s.new(kind)
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
		if best == nil {
			return nodes // nothing is left that fits anywhere
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

// shrunk makes every new node the cheapest that holds its items.
func (s *search) shrunk(nodes []*node) []*node {
	shrunk := slices.Clone(nodes)
	for at, n := range shrunk {
		if n.bin >= s.kinds {
			continue
		}
		if kind := s.cheapestFor(n.items, n.used); kind >= 0 && s.bins[kind].price < s.bins[n.bin].price {
			shrunk[at] = &node{bin: kind, items: n.items, used: n.used, value: n.value}
		}
	}
	return shrunk
}

// cheapestFor is the cheapest kind that holds items; -1 if there is none.
func (s *search) cheapestFor(items []int, used []int64) int {
	best := -1
	for _, kind := range s.open {
		if best >= 0 && s.bins[kind].price >= s.bins[best].price || !fits(used, s.bins[kind].size) {
			continue
		}
		if !slices.ContainsFunc(items, func(i int) bool { return !s.items[i].allowed[kind] }) {
			best = kind
		}
	}
	return best
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
	type keyed struct {
		item int
		key  float64
	}
	all := make([]keyed, 0, len(items))
	for _, i := range items {
		all = append(all, keyed{i, key(i)})
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Compare(b.key, a.key) })
	sorted := make([]int, 0, len(items))
	for _, k := range all {
		sorted = append(sorted, k.item)
	}
	return sorted
}
