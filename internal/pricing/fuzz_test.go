// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package pricing_test

import (
	"math"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// FuzzParseTable reads any text as a price table: it is an error, or every price is a number above 0.
func FuzzParseTable(f *testing.F) {
	for _, seed := range []string{
		"disks: {SSD: 4}", "categories: {premium: {cpu: 1, memoryGiB: 2}}", "categories: [1]", "gpus: {a100: 1e300}",
		"disks: {SSD: .nan}", "sources: {disks.SSD: configured}",
		"x: &a [*a]", "{}", "disks: {SSD: -1}", "generations: {4a: 0.5}", "plans: {SavingPlan: {compute: 1}}", "disks: {SSD: [4]}", "sources: [a]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			t.Skip("the tuning bounds its values")
		}
		table, err := pricing.ParseTable([]byte(text))
		if err != nil {
			return
		}
		for _, category := range []string{"basic", "premium", "enterprise", "dedicated", "unknown"} {
			price, known := table.Price(pricing.Item{Category: category, CPU: 4, MemoryMiB: 8192, Disks: []pricing.Disk{{GiB: 40, Type: v1alpha1.DiskMediumSSD}},
				BillingPlan: v1alpha1.BillingPlanOnDemand})
			if !known || math.IsNaN(price) || price <= 0 || math.IsInf(price, 0) {
				t.Errorf("%s costs %v", category, price)
			}
		}
	})
}
