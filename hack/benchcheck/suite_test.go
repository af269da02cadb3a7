// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBenchcheck(t *testing.T) { suite.Run(t, "Benchcheck") }

var _ = Describe("Benchmarks in rounds", func() {
	const round = `goos: linux
BenchmarkFast-2   	 1000	        30.5 ns/op	        20 cpu-ns/op	       0 B/op	       0 allocs/op
BenchmarkSlow1-16 	 1000	        61 ns/op	        50 cpu-ns/op	       8 B/op	       2 allocs/op	        12 nodes
PASS
`
	var (
		all results
		out *bytes.Buffer
	)
	read := func(text string) {
		GinkgoHelper()
		Expect(all.read(strings.NewReader(text))).To(Succeed())
	}
	BeforeEach(func() {
		all, out = results{}, &bytes.Buffer{}
		read(round)
	})

	It("should be read by name without the number of processors, and by unit", func() {
		read(round)
		Expect(all).To(HaveKeyWithValue("Fast", HaveKeyWithValue(elapsed, []float64{30.5, 30.5})))
		Expect(all).To(HaveKeyWithValue("Slow1", And(HaveKeyWithValue(allocations, []float64{2, 2}), HaveKeyWithValue("nodes", []float64{12, 12}))))
	})
	It("should not be read from what is no number", func() {
		Expect(all.read(strings.NewReader("BenchmarkFast 1 many ns/op"))).To(MatchError(ContainSubstring("many")))
	})
	DescribeTable("should be held to their bounds:", func(b bound, kept bool) {
		Expect(check(out, all, []bound{b}, false)).To(Equal(kept))
		if kept {
			Expect(out.String()).To(ContainSubstring("ok"))
		} else {
			Expect(out.String()).To(ContainSubstring("BROKEN"))
		}
	},
		Entry("a ratio within", bound{of: "Slow1", over: "Fast", unit: processor, most: 2.5}, true),
		Entry("a ratio beyond", bound{of: "Slow1", over: "Fast", unit: processor, most: 2.4}, false),
		Entry("a number within", bound{of: "Fast", unit: allocations, most: 0}, true),
		Entry("a number beyond", bound{of: "Slow1", unit: allocations, most: 1}, false),
		Entry("nothing measured", bound{of: "Gone", unit: allocations, most: 1}, false),
		Entry("nothing to compare with", bound{of: "Fast", over: "Gone", unit: processor, most: 1}, false),
		Entry("a comparison with nothing", bound{of: "Slow1", over: "Fast", unit: allocations, most: 1}, false),
	)
	It("should not mind one bad round", func() {
		read(round)
		read(strings.ReplaceAll(round, "50 cpu-ns/op", "5000 cpu-ns/op"))
		Expect(check(out, all, []bound{{of: "Slow1", over: "Fast", unit: processor, most: 2.5}}, false)).To(BeTrue())
	})
	It("should mind the worse half of two", func() {
		read(strings.ReplaceAll(round, "50 cpu-ns/op", "5000 cpu-ns/op"))
		Expect(check(out, all, []bound{{of: "Slow1", over: "Fast", unit: processor, most: 2.5}}, false)).To(BeFalse())
	})
	It("should check only what was run where only a part was asked for", func() {
		Expect(check(out, all, []bound{{of: "Gone", unit: allocations, most: 1}}, true)).To(BeTrue())
		Expect(out.String()).To(ContainSubstring("0 bounds checked"))
	})
	It("should be printed as medians", func() {
		read(strings.ReplaceAll(round, "30.5 ns/op", "40.5 ns/op"))
		all.print(out)
		Expect(out.String()).To(MatchRegexp(`Fast\s+20\s+36\s+0\s+0`))
	})
})
