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
	// Iterations are the steps of local search; 0 takes Steps. The result depends on their number, and not on the speed of the machine.
	Iterations int
	// Existing are nodes to start from. Their items are on them and on no other.
	Existing []Existing
	// ReplaceVNDPerHour is what it must save to replace an existing node, beside its price.
	ReplaceVNDPerHour float64
	// OnProgress is called with the price of every better packing; it may be nil.
	OnProgress func(vndPerHour float64)
}

// Steps is how many steps of local search so many items are given. A step with more of them takes longer, so that they get fewer: 2,000 items are
// packed within seconds, and of 200 or fewer more steps hardly find a cheaper packing.
func Steps(items int) int { return min(4000, max(50, 800_000/max(items, 1))) }

// Best returns the cheapest packing that it finds: several heuristics, and then a local search that takes some nodes of the best packing
// apart and packs their items anew, onto the others and into new nodes, so that a node is emptied, two become a cheaper one, one becomes two cheaper
// ones, or m become n. The context's end ends the search, not the answer; without it, the same seed finds the same packing.
func Best(ctx context.Context, items []Item, bins []Bin, o Options) *Packing {
	p := newProblem(items, bins, o.Existing)
	p.spread(items, bins, o.Existing)
	weights, _ := p.bound()
	p.appraise(weights)
	s := &search{problem: p, random: rand.New(rand.NewPCG(o.Seed, 1)), replace: o.ReplaceVNDPerHour, open: p.undominated()} //nolint:gosec // a seed is tried again
	best := s.start(ctx, o.Existing)
	if o.OnProgress != nil {
		o.OnProgress(best.price)
	}
	best = s.improve(ctx, best, o)
	return s.result(best, items, bins, o.Existing)
}

// search is one search.
type search struct {
	*problem
	random  *rand.Rand
	replace float64
	// open are the kinds that new nodes may be.
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
	// price is that of all nodes, less what the search gains by keeping existing ones.
	price float64
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
	if !s.items[i].allowed[n.bin] {
		return false
	}
	capacity := s.bins[n.bin].size
	for d, amount := range s.items[i].size {
		if n.used[d]+amount > capacity[d] {
			return false
		}
	}
	return !s.limited || s.within(n, i)
}

// within reports whether the limits of an item and of those on a node allow it there.
func (s *search) within(n *node, i int) bool {
	count := func(group int) int {
		c := 0
		for _, j := range n.items {
			if slices.Contains(s.items[j].groups, group) {
				c++
			}
		}
		if slices.Contains(s.items[i].groups, group) {
			c++
		}
		return c
	}
	for _, l := range s.items[i].limits {
		if count(l.group) > l.most {
			return false
		}
	}
	for _, j := range n.items {
		for _, l := range s.items[j].limits {
			if slices.Contains(s.items[i].groups, l.group) && count(l.group) > l.most {
				return false
			}
		}
	}
	return true
}

// cost is what a node adds to a solution's price.
func (s *search) cost(n *node) float64 {
	if n.bin >= s.kinds {
		return s.bins[n.bin].price - s.replace
	}
	return s.bins[n.bin].price
}

func (s *search) solution(nodes []*node) *solution {
	made := &solution{nodes: nodes}
	for _, n := range nodes {
		made.price += s.cost(n)
	}
	return made
}

// existing are the nodes that exist, and which item is on which.
func (s *search) existing(existing []Existing) (nodes []*node, at map[int]*node) {
	at = map[int]*node{}
	for e := range existing {
		n := s.new(s.kinds + e)
		for _, i := range existing[e].Items {
			s.add(n, i)
			at[i] = n
		}
		nodes = append(nodes, n)
	}
	return nodes, at
}

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

// improve is the local search.
func (s *search) improve(ctx context.Context, best *solution, o Options) *solution {
	current, since := best, 0
	for range cmp.Or(o.Iterations, Steps(len(s.items))) {
		if ctx.Err() != nil || len(best.nodes) == 0 {
			break
		}
		next := s.neighbor(current)
		if next == nil {
			continue
		}
		if next.price < best.price*(1-1e-9) {
			best, since = next, 0
			if o.OnProgress != nil {
				o.OnProgress(best.price)
			}
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

// neighbor takes some nodes apart and packs their items anew; nil if one of them fits nowhere else.
func (s *search) neighbor(from *solution) *solution {
	taken := map[int]bool{}
	for range 1 + s.random.IntN(4) {
		// Of two nodes that are drawn, the one that wastes more of its price.
		a, b := s.random.IntN(len(from.nodes)), s.random.IntN(len(from.nodes))
		if s.waste(from.nodes[b]) > s.waste(from.nodes[a]) {
			a = b
		}
		if !s.fixed(from.nodes[a]) {
			taken[a] = true
		}
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
	before := len(items)
	made := s.shrunk(s.pack(items, rule(s.random.IntN(2)), 0.3*s.random.Float64()))
	for _, n := range made {
		before -= len(n.items)
	}
	if before > 0 {
		return nil
	}
	// The nodes that took items in may do with less, too.
	return s.solution(append(s.shrunk(kept), made...))
}

// waste is the part of a node's price that its items are not worth.
func (s *search) waste(n *node) float64 { return 1 - n.value/s.bins[n.bin].price }

// result is a solution in the caller's terms.
func (s *search) result(found *solution, items []Item, bins []Bin, existing []Existing) *Packing {
	packing := &Packing{}
	placed := make([]bool, len(items))
	for _, n := range found.nodes {
		made := Node{Existing: -1, Items: slices.Sorted(slices.Values(n.items))}
		if n.bin >= s.kinds {
			made.Existing = n.bin - s.kinds
			made.Bin = existing[made.Existing].Bin
		} else {
			made.Bin = bins[n.bin]
		}
		for _, i := range n.items {
			placed[i] = true
		}
		packing.Nodes = append(packing.Nodes, made)
		packing.VNDPerHour += made.Bin.VNDPerHour
	}
	for i := range items {
		if !placed[i] {
			packing.Unplaced = append(packing.Unplaced, i)
		}
	}
	slices.SortFunc(packing.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Bin.Name, b.Bin.Name), cmp.Compare(a.Bin.Zone, b.Bin.Zone), slices.Compare(a.Items, b.Items))
	})
	return packing
}
