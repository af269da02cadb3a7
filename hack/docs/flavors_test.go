// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The page of flavors", func() {
	It("should have the price of each flavor and where it comes from", func() {
		text, err := page([]string{"reference/flavors"})
		Expect(err).NotTo(HaveOccurred())
		Expect(text).To(MatchRegexp(`\| .*.p2\.2c_4g.*. \| premium( \(.(published|derived).\))? \| 2, 4 GiB \| [\d,]+ \| [\d,]+ \| [\d,]+ \|`))
		Expect(text).To(ContainSubstring("| 8, 32 GiB, 1 x NVIDIA A30 |"))
		Expect(text).To(ContainSubstring("| `e2.16c_64g`, `e4a.16c_64g` | enterprise | 16, 64 GiB |"))
		for _, name := range []string{"b2.1c_1g", "p2.8c_32g_1xa30", "e4a.64c_256g"} {
			Expect(strings.Count(text, "`"+name+"`")).To(Equal(1), name)
		}
		Expect(strings.Count(text, "\n| `")).To(BeNumerically(">", 30))
	})
	It("should write numbers with commas", func() {
		Expect(thousands(999)).To(Equal("999"))
		Expect(thousands(1234567)).To(Equal("1,234,567"))
	})
})
