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

	It("should be that of the commit alone", func() {
		const hash = "0123456789abcdef0123456789abcdef01234567"
		Expect(Order(groups, nil, hash+"\n")).To(Equal(Order(groups, nil, hash)))
		Expect(names(Order(groups, nil, ""))).To(ConsistOf("a", "b", "c", "d"), "without a repository")
	})

	DescribeTable("should try a group first as often as it is long, and twice as often if its files have changed",
		func(changed []string, expected map[string]float64) {
			const commits = 10_000
			first := map[string]float64{}
			for i := range commits {
				first[Order(groups, changed, hashOf(i))[0].Name] += 1.0 / commits
			}
			for name, share := range expected {
				Expect(first[name]).To(BeNumerically("~", share, 0.02), name)
			}
		},
		Entry("nothing of any", []string{"README.md"}, map[string]float64{"a": 300.0 / 1050, "b": 600.0 / 1050, "c": 100.0 / 1050, "d": 50.0 / 1050}),
		Entry("files of one", []string{"a/x.go", "README.md"}, map[string]float64{"a": 600.0 / 1350, "b": 600.0 / 1350, "c": 100.0 / 1350}),
		Entry("a file of two", []string{"both/x.go"}, map[string]float64{"a": 300.0 / 1750, "b": 1200.0 / 1750, "c": 200.0 / 1750}),
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
				Expect(group.Seconds).To(And(BeNumerically(">", 0), BeNumerically("<=", 10*60)), "%s would keep others from running: divide it", group.Name)
				Expect(group.Paths).ToNot(BeEmpty(), group.Name)
			}
		})

		// The time that is left is that of a machine without any cache. What has changed in 50 commits calls for nearly every group.
		DescribeTable("should run each of them every few commits", func(changed []string, average float64) {
			const commits = 2000
			runs, last, gap := map[string]int{}, map[string]int{}, map[string]int{}
			for i := range commits {
				ran, _ := plan(Order(rotating, changed, hashOf(i)), int(budget.Seconds())-seconds)
				for _, name := range ran {
					runs[name]++
					gap[name], last[name] = max(gap[name], i-last[name]), i
				}
			}
			for _, group := range rotating {
				Expect(float64(commits)/float64(runs[group.Name])).To(BeNumerically("<=", average), group.Name)
				Expect(max(gap[group.Name], commits-last[group.Name])).To(BeNumerically("<=", 12*average), "%s waits too long", group.Name)
			}
		},
			Entry("of any kind", nil, 8.0),
			Entry("that change the same half of them", []string{"internal/controllers/x.go", "docs/x.md", "test/e2e/lifecycle/x.go"}, 12.0),
		)
	})
})

// hashOf is the hash of a commit.
func hashOf(i int) string {
	hash := sha256.Sum256(fmt.Append(nil, i))
	return hex.EncodeToString(hash[:])
}
