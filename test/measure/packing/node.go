// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import "slices"

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
