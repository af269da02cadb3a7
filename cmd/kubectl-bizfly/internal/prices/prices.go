// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prices reads the public price list of BizFly Cloud's billing service and makes the tuning value `prices` of it. That list
// was read without a login by a client of 2021, github.com/tung491/pybizfly-billing, which shows the request and the names of
// products, regions and categories, and no answer. What a line says in other words than those that are public is listed, not used.
package prices

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Line is one unit price of a plan.
type Line struct {
	Plan    string `json:"plan"`
	Product string `json:"product,omitempty"`
	// Category and Region are as the list writes them, for example PR and HaNoi; empty for all.
	Category string `json:"category,omitempty"`
	Region   string `json:"region,omitempty"`
	// VND is the price of one vCPU or GiB, and Per what it is for: hour or month.
	VND float64 `json:"vnd,omitempty"`
	Per string  `json:"per,omitempty"`
	// Path is the number of the price table that it is; empty for a line that is not used, and Reason says why.
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// String is the line for people.
func (l Line) String() string {
	of := strings.Join(lo.Compact([]string{l.Product, l.Category, l.Region}), " ")
	return fmt.Sprintf("%s (%s): %s", cmp.Or(l.Plan, "a plan without a name"), cmp.Or(of, "of nothing that is named"), l.Reason)
}

// Result is what a price list says.
type Result struct {
	// Prices is the value of the tuning key `prices`, as YAML; empty where no line is used.
	Prices string `json:"prices"`
	Used   []Line `json:"used"`
	// Unused are the lines that are not used, each with its reason.
	Unused []Line `json:"unused"`
}

// Options are what the list may leave open.
type Options struct {
	// Region is the region whose prices are wanted, in any form; empty takes those of all, which must agree.
	Region string
	// Per is what a price is for where the list does not say: hour or month.
	Per string
}

// The words that are public: products by the names of pybizfly-billing's example and of BizFly Cloud's billing pages, categories by
// its codes, cycles by those of BKE's packages.
var (
	products   = map[string]string{"cpu": "cpu", "ram": "memoryGiB"}
	media      = map[string]v1alpha1.DiskMedium{"hdd": v1alpha1.DiskMediumHDD, "ssd": v1alpha1.DiskMediumSSD}
	categories = map[string]string{"BS": "basic", "PR": "premium", "EP": "enterprise", "DC": "dedicated"}
	hours      = map[string]float64{"hour": 1, "month": hoursOfMonth}
)

const (
	// hoursOfMonth is how BizFly Cloud's billing pages convert prices.
	hoursOfMonth = 720
	// withoutCategory is the code of what has no category.
	withoutCategory = "DF"
)

type plan struct {
	Name    string `json:"name"`
	Product struct {
		Name string `json:"name"`
	} `json:"product"`
	UnitPrices []unitPrice `json:"unit_prices"`
}

// unitPrice has its number as BKE's packages have it: {"price": {"amount": 1260000, "billing_cycle": "month"}}, or price alone.
type unitPrice struct {
	Category string          `json:"category_code"`
	Region   string          `json:"region_name"`
	Price    json.RawMessage `json:"price"`
	Cycle    string          `json:"billing_cycle"`
}

// Plans splits an answer into its plans: a list, or an object with one list.
func Plans(body []byte) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil {
		return list, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, errors.New("the answer is no JSON list of plans")
	}
	lists := 0
	for _, value := range object {
		var found []json.RawMessage
		if json.Unmarshal(value, &found) == nil && found != nil {
			list = found
			lists++
		}
	}
	if lists != 1 {
		return nil, fmt.Errorf("the answer holds %d lists, not one of plans", lists)
	}
	return list, nil
}

// Read makes the price table of plans.
func Read(plans []json.RawMessage, options Options) (*Result, error) {
	if options.Region != "" {
		region, err := bizfly.ParseRegion(options.Region)
		if err != nil {
			return nil, fmt.Errorf("reading the region: %w", err)
		}
		options.Region = region
	}
	if options.Per != "" && hours[options.Per] == 0 {
		return nil, fmt.Errorf("a price is per hour or per month, not per %q", options.Per)
	}
	var lines []Line
	for _, raw := range plans {
		lines = append(lines, linesOf(raw, options)...)
	}
	disagree(lines)
	halves(lines)
	result := &Result{Used: []Line{}, Unused: []Line{}}
	for _, line := range lines {
		if line.Path == "" {
			result.Unused = append(result.Unused, line)
		} else {
			result.Used = append(result.Used, line)
		}
	}
	if len(result.Used) == 0 {
		return result, nil
	}
	table, err := tableOf(result.Used)
	if err != nil {
		return nil, err
	}
	result.Prices = table
	return result, nil
}

func linesOf(raw json.RawMessage, options Options) []Line {
	var p plan
	if err := json.Unmarshal(raw, &p); err != nil {
		return []Line{{Reason: "it is written otherwise than expected: " + shortened(string(raw))}}
	}
	if len(p.UnitPrices) == 0 {
		return []Line{{Plan: p.Name, Product: p.Product.Name, Reason: "it has no unit_prices"}}
	}
	return lo.Map(p.UnitPrices, func(u unitPrice, _ int) Line {
		line := Line{Plan: p.Name, Product: p.Product.Name, Category: u.Category, Region: u.Region}
		path, reason := line.read(u, options)
		line.Path, line.Reason = path, reason
		return line
	})
}

func shortened(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// read fills in the price of a line, and returns the number of the table that it is, or why it is none.
func (l *Line) read(u unitPrice, options Options) (path, reason string) {
	amount, cycle, ok := amountOf(u.Price)
	if !ok {
		return "", "its price is not a number above 0: " + shortened(cmp.Or(string(u.Price), "none"))
	}
	l.VND, l.Per = amount, strings.ToLower(cmp.Or(cycle, u.Cycle, options.Per))
	switch region, err := bizfly.ParseRegion(u.Region); {
	case l.Per == "":
		return "", "it does not say whether its price is per hour or per month (--per)"
	case hours[l.Per] == 0:
		return "", fmt.Sprintf("its price is per %q", l.Per)
	case u.Region != "" && err != nil:
		return "", "its region is not known"
	case u.Region != "" && options.Region != "" && region != options.Region:
		return "", "it is of another region"
	}
	product := strings.ToLower(strings.TrimSpace(l.Product))
	if medium, ok := media[product]; ok {
		return "disks." + string(medium), ""
	}
	rate, ok := products[product]
	if !ok {
		return "", "its product is none of CPU, RAM, HDD and SSD"
	}
	category, ok := categories[u.Category]
	if !ok {
		return "", lo.Ternary(u.Category == "" || u.Category == withoutCategory, "it has no category", "its category is not known")
	}
	return "categories." + category + "." + rate, ""
}

// amountOf reads a price above 0: a number, a text with a number, or an object with amount and billing_cycle.
func amountOf(raw json.RawMessage) (amount float64, cycle string, ok bool) {
	var object struct {
		Amount json.RawMessage `json:"amount"`
		Cycle  string          `json:"billing_cycle"`
	}
	if json.Unmarshal(raw, &object) == nil && object.Amount != nil {
		raw = object.Amount
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	amount, err := strconv.ParseFloat(text, 64)
	return amount, object.Cycle, err == nil && amount > 0 && !math.IsInf(amount, 0)
}

// perHour is the price as a subscription, in VND per hour.
func (l Line) perHour() float64 { return l.VND / hours[l.Per] }

// disagree takes lines out that give the same number of the table different values.
func disagree(lines []Line) {
	byPath := lo.GroupBy(lines, func(l Line) string { return l.Path })
	for i := range lines {
		others := lo.Filter(byPath[lines[i].Path], func(l Line, _ int) bool { return l.perHour() != lines[i].perHour() })
		if lines[i].Path != "" && len(others) > 0 {
			lines[i].Reason = fmt.Sprintf("%g VND per %s for %s, for which another line has %g VND per %s", lines[i].VND, lines[i].Per, lines[i].Path,
				others[0].VND, others[0].Per)
		}
	}
	for i := range lines {
		if lines[i].Reason != "" {
			lines[i].Path = ""
		}
	}
}

// halves takes categories out of which the list has only the price of CPU or of memory: with the other from the built-in table their
// ratio would be wrong, by which flavors of the wrong shape are chosen.
func halves(lines []Line) {
	known := lo.SliceToMap(lines, func(l Line) (string, bool) { return l.Path, true })
	for i := range lines {
		category, isCPU := strings.CutSuffix(lines[i].Path, ".cpu")
		if !isCPU {
			category = strings.TrimSuffix(lines[i].Path, ".memoryGiB")
		}
		other := category + lo.Ternary(isCPU, ".memoryGiB", ".cpu")
		if strings.HasPrefix(category, "categories.") && !known[other] {
			lines[i].Path, lines[i].Reason = "", "the list has no "+other+", without which it is not used"
		}
	}
}

// tableOf writes lines as a part of the price table, whose rates are those on demand. The list is older than that plan, so its prices
// are those of a subscription. It is checked as the controller checks it.
func tableOf(used []Line) (string, error) {
	subscription := pricing.DefaultTable().BillingPlans[v1alpha1.BillingPlanSavingPlan]
	table := map[string]any{}
	sources := map[string]pricing.Source{}
	for _, line := range used {
		path := strings.Split(line.Path, ".")
		factor := lo.Ternary(path[0] == "disks", subscription.Disk, subscription.Compute)
		into := table
		for _, key := range path[:len(path)-1] {
			below, _ := into[key].(map[string]any)
			if below == nil {
				below = map[string]any{}
				into[key] = below
			}
			into = below
		}
		// Rounded to a tenth of a thousandth of a dong: the factors of the table are rounded as well.
		rate, _ := strconv.ParseFloat(strconv.FormatFloat(line.perHour()/factor, 'f', 4, 64), 64)
		into[path[len(path)-1]] = rate
		sources[line.Path] = pricing.SourceDerived
	}
	table["sources"] = sources
	text, err := yaml.Marshal(table)
	if err == nil {
		_, err = pricing.ParseTable(text)
	}
	if err != nil {
		return "", fmt.Errorf("the controller would not accept these prices: %w", err)
	}
	return string(text), nil
}
