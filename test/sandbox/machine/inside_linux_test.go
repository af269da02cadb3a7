// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A machine", func() {
	It("should see the memory of its flavor, and no swap", func() {
		host := "MemTotal:       24642196 kB\nMemFree:        20000000 kB\nCached:          1000000 kB\nSwapTotal:       4194300 kB\n"
		Expect(meminfo(host, 7864320)).To(Equal(
			"MemTotal:       7864320 kB\nMemFree:        7864320 kB\nCached:          1000000 kB\nSwapTotal:      0 kB\n"))
	})
})
