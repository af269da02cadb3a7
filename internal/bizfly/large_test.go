// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"bytes"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("A large answer", func() {
	DescribeTable("should be decoded in a bounded way", func(element, rejection string) {
		body := append([]byte("["), bytes.Repeat([]byte(element+","), (31<<20)/(len(element)+1))...)
		body[len(body)-1] = ']'
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := bizfly.ApplyListBody(body)
		runtime.ReadMemStats(&after)
		if rejection == "" {
			Expect(err).ToNot(HaveOccurred())
		} else {
			Expect(err).To(MatchError(ContainSubstring(rejection)))
		}
		Expect((after.TotalAlloc-before.TotalAlloc)>>20).To(BeNumerically("<", 512), "MiB")
	},
		Entry("of small objects", `{"id":"a"}`, "more than 400000 objects"),
		Entry("of numbers", `1`, "or 2000000 values"),
		Entry("of more elements than there can be", `{"id":"`+strings.Repeat("a", 200)+`"}`, "more than 50000"),
		Entry("of lists", `[[]]`, "or 2000000 values"),
		Entry("of ten thousand servers", `{"id":"a","name":"`+strings.Repeat("a", 2500)+`","metadata":{"a":"b","c":"d"},"volumes":[{"id":"x"},{"id":"y"}]}`, ""),
	)
})
