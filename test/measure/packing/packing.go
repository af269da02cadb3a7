// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packing is what a bill is compared with: the lowest price that any nodes could have. It knows resources alone. Items are pods, bins are flavors.
package packing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Bin is a kind of node, of which any number can be launched.
type Bin struct {
	// Name is the flavor.
	Name string
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
}

// problem is items and bins in numbers.
type problem struct {
	// items are the sizes of each.
	items [][]int64
	bins  []bin
	// dims is how many resources there are; the last is the number of pods.
	dims int
}

type bin struct {
	size  []int64
	price float64
}

// newProblem turns quantities into numbers.
func newProblem(items []Item, bins []Bin) *problem {
	names := resourceNames(items)
	p := &problem{dims: len(names) + 1}
	for _, b := range bins {
		p.bins = append(p.bins, bin{size: capacityOf(b, names), price: b.VNDPerHour})
	}
	for _, i := range items {
		p.items = append(p.items, append(amounts(i.Requests, names), 1))
	}
	return p
}

// resourceNames are the resources that any item requests, without the number of pods.
func resourceNames(items []Item) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, i := range items {
		for name, amount := range i.Requests {
			if name != corev1.ResourcePods && !amount.IsZero() {
				names = append(names, name)
			}
		}
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
