// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"slices"
)

// Offering is a flavor in a zone where it is listed, with what only this cloud knows of it.
type Offering struct {
	Flavor string `json:"flavor"`
	Zone   string `json:"zone"`
	VCPUs  int    `json:"vcpus"`
	// VNDPerHour is what the bill charges for a running server, without its disks.
	VNDPerHour float64 `json:"vnd_per_hour"`
	// Rejected counts the create requests that were rejected for lack of capacity or quota.
	Rejected int `json:"rejected"`
}

// Offerings are the flavors of the zones of the region of Options that are listed with the billing plan, sorted by zone and flavor. Whether
// a server can be created of one is known once that was tried.
func (c *Cloud) Offerings(plan string) []Offering {
	offerings := []Offering{}
	c.with(func() {
		for _, region := range c.opts.Catalog.Regions {
			if region.ShortName != c.opts.Region {
				continue
			}
			for _, flavor := range c.opts.Catalog.Flavors[region.ShortName] {
				if !slices.ContainsFunc(zoneNames(region), flavor.availableIn) {
					continue // another product
				}
				for _, zone := range zoneNames(region) {
					if flavor.listedIn(zone) && slices.Contains(flavor.BillingPlans, plan) {
						offerings = append(offerings, c.offering(flavor, zone, plan))
					}
				}
			}
		}
	})
	slices.SortFunc(offerings, func(a, b Offering) int { return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Flavor, b.Flavor)) })
	return offerings
}

func (c *Cloud) offering(flavor Flavor, zone, plan string) Offering {
	is := billed{State: BilledRunning, Plan: plan, Category: flavor.Category, VCPUs: flavor.VCPUs, RAMMiB: flavor.RAM}
	if flavor.GPU != nil {
		is.GPU, is.GPUs = flavor.GPU.Name, flavor.GPU.Count
	}
	return Offering{
		Flavor: flavor.Name, Zone: zone, VCPUs: flavor.VCPUs, VNDPerHour: c.opts.Prices.perHour(is),
		Rejected: c.rejected[stockKey{flavor.Name, zone, plan}],
	}
}
