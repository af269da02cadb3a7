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
}

// Steps is how many steps of local search so many items are given. A step with more of them takes longer, so that they get fewer: 2,000 items are
// packed within seconds, and of 200 or fewer more steps hardly find a cheaper packing.
func Steps(items int) int { return min(4000, max(50, 800_000/max(items, 1))) }

// Best returns the cheapest packing that it finds: several heuristics, and then a local search that takes some nodes of the best packing
// apart and packs their items anew, onto the others and into new nodes, so that a node is emptied, two become a cheaper one, one becomes two cheaper
// ones, or m become n. The context's end ends the search, not the answer; without it, the same seed finds the same packing.
func Best(ctx context.Context, items []Item, bins []Bin, o Options) *Packing {
	p := newProblem(items, bins, o.Existing)
	weights, _ := p.bound()
	p.appraise(weights)
	s := &search{problem: p, random: rand.New(rand.NewPCG(o.Seed, 1)), replace: o.ReplaceVNDPerHour, open: p.undominated()} //nolint:gosec // a seed is tried again
	best := s.start(ctx, o.Existing)
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
