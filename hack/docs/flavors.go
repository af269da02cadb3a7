// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// flavorTable has the flavors that are known, with their prices.
func flavorTable() (string, error) {
	prices := pricing.DefaultTable()
	flavors := slices.Clone(cloud.DefaultCatalog().Flavors[cloud.RegionHN])
	slices.SortStableFunc(flavors, func(a, b cloud.Flavor) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.RAM, b.RAM),
			cmp.Compare(gpus(a), gpus(b)), cmp.Compare(a.Name, b.Name))
	})
	var page strings.Builder
	page.WriteString(row("flavor", "category", "vCPU, memory, GPU", "per hour", "per month", "saving plan, per hour"))
	page.WriteString(row("---", "---", "---", "---", "---", "---"))
	var names []string // of flavors that differ in nothing else, such as their generation
	var shown string
	write := func() {
		if len(names) > 0 {
			page.WriteString("| " + strings.Join(names, ", ") + " | " + shown + " |\n")
		}
	}
	for _, f := range flavors {
		if f.Category == "" || strings.Contains(f.Name, "_vps") {
			continue // the controller reads the category of older flavors in their names, and leaves other products out
		}
		item := pricing.Item{
			Category: strings.ToLower(f.Category), CPU: f.VCPUs, MemoryMiB: f.RAM,
			Disks:       []pricing.Disk{{GiB: 40, Type: v1alpha1.DiskMediumSSD}},
			BillingPlan: v1alpha1.BillingPlanOnDemand,
		}
		if f.Generation != nil {
			item.Generation = f.Generation.Code[1:] // without the letter of the category
		}
		gpu := ""
		if f.GPU != nil && f.GPU.Count > 0 {
			item.GPUName, item.GPUCount = strings.ReplaceAll(f.GPU.Name, " ", "-"), f.GPU.Count
			gpu = fmt.Sprintf(", %d x %s", f.GPU.Count, f.GPU.Name)
		}
		row := []string{item.Category, fmt.Sprintf("%d, %d GiB%s", f.VCPUs, f.RAM/1024, gpu)}
		hourly, known := prices.Price(item)
		if !known {
			return "", fmt.Errorf("pricing the flavor %s: no price", f.Name)
		}
		// Some are sold prepaid only; a flavor without plans is sold with all.
		sold := func(plan string) bool { return len(f.BillingPlans) == 0 || slices.Contains(f.BillingPlans, plan) }
		row = append(row, lo.Ternary(sold(cloud.PlanOnDemand), thousands(hourly), ""), lo.Ternary(sold(cloud.PlanOnDemand), thousands(hourly*720), ""))
		item.BillingPlan = v1alpha1.BillingPlanSavingPlan
		saving, _ := prices.Price(item)
		row = append(row, lo.Ternary(sold(cloud.PlanSaving), thousands(saving), ""))
		if alike := strings.Join(row, " | "); alike != shown {
			write()
			names, shown = nil, alike
		}
		names = append(names, "`"+f.Name+"`")
	}
	write()
	return page.String(), nil
}

func gpus(f cloud.Flavor) int {
	if f.GPU == nil {
		return 0
	}
	return f.GPU.Count
}

// thousands writes a number as 1,234,567, and rounds it as the plugin does.
func thousands(number float64) string {
	digits := fmt.Sprintf("%.0f", math.Round(math.Round(number*1e6)/1e6))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
