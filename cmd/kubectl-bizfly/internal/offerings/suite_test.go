// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package offerings_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/offerings"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestOfferings(t *testing.T) { suite.Run(t, "Offerings") }

func withDisk(gib int, medium v1alpha1.DiskMedium) func(*pricing.Item) {
	return func(i *pricing.Item) { i.Disks = append(i.Disks, pricing.Disk{GiB: gib, Type: medium}) }
}

var _ = Describe("The source of a price", func() {
	DescribeTable("should name the least certain source of the numbers in a price",
		func(text string, change func(*pricing.Item), expected string) {
			prices := pricing.DefaultTable()
			if text != "" {
				prices = lo.Must(pricing.ParseTable([]byte(text)))
			}
			item := pricing.Item{Category: "premium", CPU: 6, MemoryMiB: 24 << 10, BillingPlan: v1alpha1.BillingPlanOnDemand}
			change(&item)
			Expect(offerings.SourceOf(prices, item)).To(Equal(expected))
		},
		Entry("premium, which is derived", "", func(*pricing.Item) {}, "derived"),
		Entry("basic, which is assumed", "", func(i *pricing.Item) { i.Category = "basic" }, "assumed"),
		Entry("another category", "", func(i *pricing.Item) { i.Category = "quantum" }, "assumed"),
		Entry("an HDD, which is derived", "", withDisk(40, v1alpha1.DiskMediumHDD), "derived"),
		Entry("an SSD, which is assumed", "", withDisk(40, v1alpha1.DiskMediumSSD), "assumed"),
		Entry("a GPU", "", func(i *pricing.Item) { i.GPUCount = 1 }, "assumed"),
		Entry("a configured SSD on a derived category", "disks: {SSD: 4}", withDisk(40, v1alpha1.DiskMediumSSD), "derived"),
		Entry("half a configured category", "categories: {basic: {cpu: 1}}", func(i *pricing.Item) { i.Category = "basic" }, "assumed"),
		Entry("all of it configured", "categories: {basic: {cpu: 1, memoryGiB: 1}}\nsources: {billingPlans: configured}",
			func(i *pricing.Item) { i.Category = "basic" }, "configured"),
		Entry("a number confirmed by a source of the user's", "sources: {disks: published}", withDisk(40, v1alpha1.DiskMediumSSD), "derived"),
		Entry("a number with a source of the user's", "categories: {basic: {cpu: 1, memoryGiB: 1}}\nsources: {categories.basic: published, billingPlans: published}",
			func(i *pricing.Item) { i.Category = "basic" }, "published"),
		Entry("an assumed factor of the generation", "generations: {'4a': 1.1}\nsources: {generations: assumed}",
			func(i *pricing.Item) { i.Generation = "4a" }, "assumed"),
	)
})
