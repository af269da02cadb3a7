// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The page of versions", func() {
	It("should agree with the modules and the chart", func() {
		page, err := compatibilityPage()
		Expect(err).NotTo(HaveOccurred())
		Expect(page).To(MatchRegexp(`\| Karpenter \| v1\.\d+\.\d+ \|`))
		Expect(page).To(MatchRegexp(`\| Kubernetes \| 1\.\d+ or newer; tested with v1\.\d+\.\d+ and v1\.\d+\.\d+ \|`))
		Expect(page).To(MatchRegexp(`\| Go, to build it \| 1\.\d+\.\d+ or newer`))
	})
})
