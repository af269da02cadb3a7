// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Order is the order in which .ci/run tries the groups that rotate: a draw by the hash of the commit. A group is as likely to be the next one as it
// is long, since a short one still fits in after others, and twice as likely if its files have changed. So each runs every few commits.
func Order(groups []Check, changed []string, hash string) []Check {
	random := rand.New(rand.NewPCG(number(hash), 0)) //nolint:gosec // the same for the same commit
	draws := map[string]float64{}
	for _, group := range groups {
		weight := float64(group.Seconds)
		if group.touched(changed) {
			weight *= 2
		}
		draws[group.Name] = random.ExpFloat64() / weight
	}
	return slices.SortedFunc(slices.Values(groups), func(a, b Check) int { return cmp.Compare(draws[a.Name], draws[b.Name]) })
}

// Fill starts one group of an order after the other, as long as it fits into the seconds that are left, and returns those that did not.
func Fill(order []Check, left func() int, start func(Check)) (waiting []Check) {
	for _, group := range order {
		if group.Seconds > left() {
			waiting = append(waiting, group)
			continue
		}
		start(group)
	}
	return waiting
}

// number is the beginning of the hash of a commit, which is as random as the whole.
func number(hash string) uint64 {
	number, err := strconv.ParseUint(hash[:min(16, len(hash))], 16, 64)
	if err != nil {
		return 0 // outside of a repository
	}
	return number
}

func (c Check) touched(changed []string) bool {
	return slices.ContainsFunc(changed, func(file string) bool {
		return slices.ContainsFunc(c.Paths, func(path string) bool { return strings.HasPrefix(file, path) })
	})
}
