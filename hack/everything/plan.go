// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"
	"strings"
)

// Order is the order in which .ci/run tries the groups that rotate. The first place belongs to the rotation alone, so that each group has
// its turn, however much the others change; then come those whose files have changed, then the rest, both in the order of the rotation.
func Order(groups []Check, changed []string, hash string) []Check {
	if len(groups) == 0 {
		return nil
	}
	first := turn(hash) % len(groups)
	order := slices.Concat(groups[first:], groups[:first])
	slices.SortStableFunc(order[1:], func(a, b Check) int {
		return btoi(b.touched(changed)) - btoi(a.touched(changed))
	})
	return order
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

// turn is a number from the hash of a commit. Its beginning is as random as the whole.
func turn(hash string) int {
	number, err := strconv.ParseUint(hash[:min(8, len(hash))], 16, 32)
	if err != nil {
		return 0 // outside of a repository
	}
	return int(number)
}

func (c Check) touched(changed []string) bool {
	return slices.ContainsFunc(changed, func(file string) bool {
		return slices.ContainsFunc(c.Paths, func(path string) bool { return strings.HasPrefix(file, path) })
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
