// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The page of bootstrapping", func() {
	It("should have every variable and function that a template can use, with its type and meaning", func() {
		page, err := bootstrapPage()
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{
			"| `.NodeName` `string` | The name that the node must register with",
			"| `.Taints` `[]Taint` |", "| `.KubeletArgs` `map[string]string` |",
			"| `.JoinToken` `string` | A bootstrap token made for this server",
			"| `.CACertHashes` `[]string` |", "| `sha256sum s` | the SHA-256 of s in hexadecimal |", "| `toYaml v` |",
		} {
			Expect(page).To(ContainSubstring(text))
		}
	})
})
