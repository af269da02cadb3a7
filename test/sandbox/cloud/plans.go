// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// billingAPI is the billing service, which no service catalog lists. A client of 2021 (github.com/tung491/pybizfly-billing) shows the
// request for its price list, and the names of regions and categories. No answer is public: this one is made of those names, and of a
// price as BKE's packages have it.
var billingAPI = &api{name: "billing"}

var _ = billingAPI.serve(openTo(on(http.MethodGet, "/plans", (*Cloud).listPlans, "embedded", "filters", "sort", "limit", "page")))

const billingPrefix = "/api/v4"

type planEntry struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	Product    planProduct `json:"product"`
	UnitPrices []unitPrice `json:"unit_prices"`
}

type planProduct struct {
	Name string `json:"name"`
}

type unitPrice struct {
	Region   string    `json:"region_name"`
	Category string    `json:"category_code"`
	Price    planPrice `json:"price"`
}

type planPrice struct {
	Amount float64 `json:"amount"`
	Cycle  string  `json:"billing_cycle"`
}

// categoryCodes are the billing service's codes of categories; DF is none.
var categoryCodes = map[string]string{"basic": "BS", "premium": "PR", "enterprise": "EP", "dedicated": "DC", "": "DF"}

// listPlans answers without a login, from the prices by which the bill is computed.
func (c *Cloud) listPlans(q *call) reply {
	prices := c.opts.Prices
	var all []planEntry
	add := func(product string, amounts map[string]float64) {
		p := planEntry{ID: StableID("plan", product), Name: strings.ToLower(product) + "_a_month", Product: planProduct{Name: product}}
		for _, category := range slices.Sorted(maps.Keys(amounts)) {
			for _, region := range c.opts.Catalog.Regions {
				p.UnitPrices = append(p.UnitPrices, unitPrice{Region: region.RegionName, Category: categoryCodes[category],
					Price: planPrice{Amount: amounts[category], Cycle: "month"}})
			}
		}
		all = append(all, p)
	}
	cpu, ram := map[string]float64{}, map[string]float64{}
	for category, price := range prices.Compute {
		if category != "" && categoryCodes[category] != "" {
			cpu[category], ram[category] = price.VCPU, price.GiB
		}
	}
	add("CPU", cpu)
	add("RAM", ram)
	for _, medium := range slices.Sorted(maps.Keys(prices.DiskGiB)) {
		add(medium, map[string]float64{"": prices.DiskGiB[medium]})
	}
	add("Data Transfer", map[string]float64{"": 0})
	limit, page := number(q, "limit", 25), number(q, "page", 1)
	first := min((page-1)*limit, len(all))
	return ok(all[first:min(first+limit, len(all))])
}

// number is a query parameter above 0.
func number(q *call, name string, otherwise int) int {
	n, err := strconv.Atoi(q.query.Get(name))
	if err != nil || n < 1 {
		return otherwise
	}
	return n
}
