// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The choice of the groups that rotate", func() {
	groups := []Check{
		{Name: "a", Seconds: 300, Paths: []string{"a/"}}, {Name: "b", Seconds: 600, Paths: []string{"b/", "both/"}},
		{Name: "c", Seconds: 100, Paths: []string{"c/", "both/"}}, {Name: "d", Seconds: 50},
	}
	names := func(checks []Check) (names []string) {
		for _, check := range checks {
			names = append(names, check.Name)
		}
		return names
	}
	plan := func(order []Check, left int) (runs, waits []string) {
		waiting := Fill(order, func() int { return left }, func(c Check) {
			runs = append(runs, c.Name)
			left -= c.Seconds
		})
		return runs, names(waiting)
	}

	DescribeTable("should order them", func(hash string, changed []string, expected ...string) {
		Expect(names(Order(groups, changed, hash))).To(Equal(expected))
	},
		Entry("by the hash of the commit", "00000001", nil, "b", "c", "d", "a"),
		Entry("the same with its whole hash", "00000001aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", nil, "b", "c", "d", "a"),
		Entry("without a repository", "", nil, "a", "b", "c", "d"),
		Entry("what has changed before what has not", "00000003", []string{"both/x.go", "README.md"}, "d", "b", "c", "a"),
		Entry("what has changed in the order of the rotation", "00000002", []string{"a/x.go", "b/x.go"}, "c", "a", "b", "d"),
	)

	It("should leave the table as it is", func() {
		Order(groups, []string{"both/x.go"}, "00000003")
		Expect(names(groups)).To(HaveExactElements("a", "b", "c", "d"))
	})

	It("should start only what ends in time", func() {
		runs, waits := plan(groups, 460)
		Expect(runs).To(HaveExactElements("a", "c", "d"))
		Expect(waits).To(HaveExactElements("b"))
		runs, waits = plan(groups, -5)
		Expect(runs).To(BeEmpty())
		Expect(waits).To(HaveLen(4))
	})

	Describe("of this repository", func() {
		always, seconds := []Check(nil), 0
		var rotating []Check
		BeforeEach(func() {
			table := must(ReadTable(root))
			always, rotating, seconds = table.InCI(Always), table.InCI(Rotates), 0
			for _, check := range always {
				if !check.Beside {
					seconds += check.Seconds
				}
			}
		})

		It("should leave a quarter of an hour to them", func() {
			Expect(always).ToNot(BeEmpty())
			Expect(seconds).To(BeNumerically("<=", 40*60))
		})

		It("should give each of them a time, a place and files", func() {
			for _, group := range rotating {
				Expect(group.Seconds).To(And(BeNumerically(">", 0), BeNumerically("<=", 15*60)), "%s would never run", group.Name)
				Expect(group.Paths).ToNot(BeEmpty(), group.Name)
			}
		})

		It("should run each of them every few commits, whatever changes", func() {
			const commits = 300
			for _, changed := range [][]string{nil, {"internal/x.go", "docs/x.md", "test/e2e/x.go"}} {
				ran := map[string]int{}
				for i := range commits {
					hash := sha256.Sum256(fmt.Append(nil, i))
					runs, _ := plan(Order(rotating, changed, hex.EncodeToString(hash[:])), 15*60)
					for _, name := range runs {
						ran[name]++
					}
				}
				for _, group := range rotating {
					Expect(ran[group.Name]).To(BeNumerically(">=", commits/(2*len(rotating))), "%s with changes of %v", group.Name, changed)
				}
			}
		})
	})
})
