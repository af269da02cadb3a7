// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packing finds cheap sets of nodes for pods. It knows no cluster: items are pods, bins are flavors in a zone, and every result is
// the same for the same seed and number of iterations. What it finds is a proposal: core's scheduler decides whether the pods fit.
package packing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Bin is a kind of node, of which any number can be launched.
type Bin struct {
	// Name is the flavor.
	Name string
	Zone string
	// VNDPerHour is the price of one.
	VNDPerHour float64
	// Allocatable is what pods can request, without what DaemonSets request. Its resource "pods", where there is one, limits their number.
	Allocatable corev1.ResourceList
}

// Item is a pod.
type Item struct {
	// Name is for messages only.
	Name     string
	Requests corev1.ResourceList
	// Allowed reports whether a node of this kind may run it; nil allows every kind. It is called once for each bin.
	Allowed func(Bin) bool
	// Groups are those that it is a member of: pods that a selector selects.
	Groups []string
	// Limits hold for every node that it is on: anti-affinity, and spreading over nodes.
	Limits []Limit
}

// Limit is how many items of a group may be on one node, the item that has the limit included where it is a member.
type Limit struct {
	Group string
	Max   int
}

// Apart are the limits of an item that shares its node with no other member of these groups, of which it is one.
func Apart(groups ...string) []Limit {
	limits := make([]Limit, 0, len(groups))
	for _, group := range groups {
		limits = append(limits, Limit{Group: group, Max: 1})
	}
	return limits
}

// Existing is a node that exists. It is kept with all of its items, perhaps with more, or all of them move.
type Existing struct {
	Bin   Bin
	Items []int
}

// Node is one node of a packing.
type Node struct {
	Bin Bin
	// Existing is the index of the existing node that it is; -1 for a new one.
	Existing int
	// Items are indexes, in rising order.
	Items []int
}

// Packing is every item on a node.
type Packing struct {
	Nodes []Node
	// Unplaced are the items that fit into no bin.
	Unplaced []int
	// VNDPerHour is the price of all nodes.
	VNDPerHour float64
}

// problem is items and bins in numbers.
type problem struct {
	items []item
	// bins are the kinds first, then the existing nodes.
	bins  []bin
	kinds int
	// dims is how many resources there are; the last is the number of pods.
	dims int
	// limited is set where any item has limits.
	limited bool
}

type item struct {
	size   []int64
	groups []int
	limits []limit
	// allowed is by bin: it may run there, and fits there alone.
	allowed []bool
	// value is what it costs at least in any packing, in VND per hour.
	value float64
}

type limit struct{ group, most int }

type bin struct {
	size  []int64
	price float64
}

// newProblem turns quantities into numbers.
func newProblem(items []Item, bins []Bin, existing []Existing) *problem {
	names := resourceNames(items)
	p := &problem{kinds: len(bins), dims: len(names) + 1}
	all := slices.Clone(bins)
	for _, e := range existing {
		all = append(all, e.Bin)
	}
	for _, b := range all {
		p.bins = append(p.bins, bin{size: capacityOf(b, names), price: b.VNDPerHour})
	}
	groups := map[string]int{}
	number := func(name string) int {
		if _, ok := groups[name]; !ok {
			groups[name] = len(groups)
		}
		return groups[name]
	}
	for _, i := range items {
		in := item{size: append(amounts(i.Requests, names), 1), allowed: make([]bool, len(all))}
		for _, name := range i.Groups {
			in.groups = append(in.groups, number(name))
		}
		for _, l := range i.Limits {
			in.limits = append(in.limits, limit{number(l.Group), l.Max})
			p.limited = true
		}
		for b := range all {
			in.allowed[b] = fits(in.size, p.bins[b].size) && (i.Allowed == nil || i.Allowed(all[b]))
		}
		p.items = append(p.items, in)
	}
	// An item is where it is: whether it may be there is not asked again.
	for e := range existing {
		for _, i := range existing[e].Items {
			p.items[i].allowed[p.kinds+e] = true
		}
	}
	return p
}

// resourceNames are the resources that any item requests, without the number of pods.
func resourceNames(items []Item) []corev1.ResourceName {
	var names []corev1.ResourceName
	add := func(list corev1.ResourceList) {
		for name, amount := range list {
			if name != corev1.ResourcePods && !amount.IsZero() {
				names = append(names, name)
			}
		}
	}
	for _, i := range items {
		add(i.Requests)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// capacityOf is the size of a bin, with the number of pods at the end.
func capacityOf(b Bin, names []corev1.ResourceName) []int64 {
	pods := int64(1 << 20)
	if amount, ok := b.Allocatable[corev1.ResourcePods]; ok {
		pods = amount.Value()
	}
	return append(amounts(b.Allocatable, names), pods)
}

// amounts are millicores of CPU, and whole units of everything else.
func amounts(list corev1.ResourceList, names []corev1.ResourceName) []int64 {
	numbers := make([]int64, 0, len(names)+1)
	for _, name := range names {
		amount := list[name]
		if name == corev1.ResourceCPU {
			numbers = append(numbers, amount.MilliValue())
			continue
		}
		numbers = append(numbers, amount.Value())
	}
	return numbers
}

// fits reports whether a size fits into a capacity.
func fits(size, capacity []int64) bool {
	for d := range size {
		if size[d] > capacity[d] {
			return false
		}
	}
	return true
}

// undominated are the kinds to which no other is preferable for every item: at most as expensive, at least as large, allowed for all the same.
func (p *problem) undominated() []int {
	better := func(a, b int) bool {
		if p.bins[a].price > p.bins[b].price || !fits(p.bins[b].size, p.bins[a].size) {
			return false
		}
		for i := range p.items {
			if p.items[i].allowed[b] && !p.items[i].allowed[a] {
				return false
			}
		}
		return true
	}
	var open []int
	for b := range p.kinds {
		// Of two that are preferable to each other, the first stays.
		if !slices.ContainsFunc(open, func(a int) bool { return better(a, b) }) {
			open = append(slices.DeleteFunc(open, func(a int) bool { return better(b, a) }), b)
		}
	}
	return open
}
