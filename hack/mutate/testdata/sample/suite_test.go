// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/hack/mutate/testdata/sample"
)

func TestSample(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sample")
}

var _ = Describe("A box", func() {
	It("should take too long", func() { Fail("it is skipped") })
	It("should know its fruit", func() {
		Expect(sample.Fruit("apple")).To(BeTrue())
		Expect(sample.Fruit("plum")).To(BeFalse())
	})
	It("should have apples", func() {
		Expect(sample.New(1)).To(HaveField("Apples", 1))
		Expect(sample.New(9)).To(HaveField("Full", true))
	})
	It("should have at least one", func() {
		_, err := sample.New(0)
		Expect(err).To(HaveOccurred())
	})
})
