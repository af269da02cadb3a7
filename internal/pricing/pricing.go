// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pricing knows what an offering costs in VND per hour. BizFly documents no price API, so the prices come from
// an embedded table whose comments have the source of each number; what matters for consolidation is that they are
// comparable.
package pricing

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/samber/lo"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Item is what is priced.
type Item struct {
	// Category is basic, premium, enterprise or dedicated.
	Category string
	// Generation is the generation's code, for example "2" or "4a"; empty for flavors without one.
	Generation string
	// CPU is the number of vCPUs.
	CPU int
	// MemoryMiB is the memory in MiB.
	MemoryMiB int
	// GPUName and GPUCount are the GPUs; 0 without.
	GPUName  string
	GPUCount int
	// Disks are all disks of the server.
	Disks []Disk
	// BillingPlan is how it is paid for.
	BillingPlan v1alpha1.BillingPlan
}

// Disk is a disk of a server.
type Disk struct {
	// GiB is its size in GiB.
	GiB int `json:"gib"`
	// Type is its medium.
	Type v1alpha1.DiskMedium `json:"type,omitempty"`
}

//go:embed table.yaml
var embedded []byte

// fallback is the key of the rate for what a table does not name.
const fallback = "default"

// Table is a price table; see table.yaml for what each number means. Rates are VND per hour.
type Table struct {
	// AsOf is the day on which the numbers were looked up.
	AsOf string `json:"asOf"`
	// Categories are the on-demand rates by category, with "default" for those that are not named.
	Categories map[string]ComputeRates `json:"categories"`
	// Generations are factors on the rates by the generation's code; one that is not named has the factor 1.
	Generations map[string]float64 `json:"generations"`
	// GPUs are the rates of one GPU by a word of the model's name in lower case, with "default" for those not named.
	GPUs map[string]float64 `json:"gpus"`
	// Disks are the rates of one GiB by medium.
	Disks map[v1alpha1.DiskMedium]float64 `json:"disks"`
	// BillingPlans are multiples of the on-demand rates.
	BillingPlans map[v1alpha1.BillingPlan]PlanFactors `json:"billingPlans"`
	// Sources are where numbers come from, by their path, for example "categories.premium" or "disks.HDD": see
	// table.yaml.
	Sources map[string]string `json:"sources"`
}

// ComputeRates are the rates of one category.
type ComputeRates struct {
	// CPU is the rate of one vCPU.
	CPU float64 `json:"cpu"`
	// MemoryGiB is the rate of one GiB of memory.
	MemoryGiB float64 `json:"memoryGiB"`
}

// PlanFactors are what a billing plan multiplies the on-demand rates with.
type PlanFactors struct {
	// Compute is the factor for CPU, memory and GPUs.
	Compute float64 `json:"compute"`
	// Disk is the factor for disks.
	Disk float64 `json:"disk"`
}

// DefaultTable returns the embedded table. It panics when that is broken, which no build that passed its tests is.
var DefaultTable = sync.OnceValue(func() *Table { return lo.Must(parse(embedded)) })

// ParseTable reads a table from YAML, takes every number that it does not give from the embedded table, and checks that
// every rate keeps prices above 0 and strictly growing, and that every name is one that is priced. The error names each
// field that is wrong.
func ParseTable(text []byte) (*Table, error) {
	var builtIn, given map[string]any
	if err := yaml.UnmarshalStrict(text, &given); err != nil {
		return nil, fmt.Errorf("parsing the price table: %w", err)
	}
	if len(given) == 0 {
		return nil, errors.New("the price table is empty; remove it to use the built-in one")
	}
	if err := yaml.Unmarshal(embedded, &builtIn); err != nil {
		return nil, fmt.Errorf("parsing the built-in price table: %w", err)
	}
	merge(builtIn, given)
	merged, err := yaml.Marshal(builtIn)
	if err != nil {
		return nil, fmt.Errorf("merging the price table: %w", err)
	}
	return parse(merged)
}

// merge writes what is given over what is there.
func merge(into, given map[string]any) {
	for key, value := range given {
		inner, isMap := value.(map[string]any)
		below, known := into[key].(map[string]any)
		switch {
		case isMap && known:
			merge(below, inner)
		case value != nil:
			into[key] = value
		}
	}
}

// parse takes names of fields as they are: encoding/json would take CPU for cpu, and leave open which of both numbers
// counts.
func parse(text []byte) (*Table, error) {
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("parsing the price table: %w", err)
	}
	table := &Table{}
	unknown, err := json.UnmarshalStrict(raw, table)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("parsing the price table: %w", err)
	}
	if err := table.validate(); err != nil {
		return nil, fmt.Errorf("checking the price table: %w", err)
	}
	return table, nil
}

// factors are the numbers of the table that must be above 0, by their paths.
func (t *Table) factors() map[string]float64 {
	positive := map[string]float64{}
	for category, rates := range t.Categories {
		positive["categories."+category+".cpu"], positive["categories."+category+".memoryGiB"] = rates.CPU, rates.MemoryGiB
	}
	for code, factor := range t.Generations {
		positive["generations."+code] = factor
	}
	for name, rate := range t.GPUs {
		positive["gpus."+name] = rate
	}
	for medium, rate := range t.Disks {
		positive["disks."+string(medium)] = rate
	}
	for plan, factors := range t.BillingPlans {
		path := "billingPlans." + string(plan)
		positive[path+".compute"], positive[path+".disk"] = factors.Compute, factors.Disk
	}
	return positive
}

func (t *Table) validate() error {
	positive := t.factors()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(positive)) {
		if value := positive[path]; !(value > 0) || math.IsInf(value, 0) {
			errs = append(errs, fmt.Errorf("%s is %g, it must be above 0", path, value))
		}
	}
	small := func(name string) bool { return name == strings.ToLower(name) }
	return errors.Join(append(errs,
		misspelt("categories", t.Categories, small, "small letters"),
		misspelt("generations", t.Generations, small, "small letters"),
		misspelt("gpus", t.GPUs, func(word string) bool {
			return word == t.GPU(word)
		}, "one word of the model's name in small letters"),
		misspelt("disks", t.Disks, oneOf(v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD), "SSD or HDD"),
		misspelt("billingPlans", t.BillingPlans, oneOf(v1alpha1.BillingPlanOnDemand, v1alpha1.BillingPlanSavingPlan),
			"OnDemand or SavingPlan"))...)
}

// misspelt returns an error for names by which nothing is priced: the price that they were to correct would stay as it
// was.
func misspelt[K ~string, V any](section string, rates map[K]V, valid func(K) bool, use string) error {
	wrong := lo.Reject(slices.Sorted(maps.Keys(rates)), func(name K, _ int) bool { return valid(name) })
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s has %q, by which nothing is priced: use %s", section, wrong, use)
}

func oneOf[K comparable](names ...K) func(K) bool {
	return func(name K) bool { return slices.Contains(names, name) }
}

// Price returns VND per hour, always above 0 and strictly growing with CPU, memory, GPUs and disk; false for what
// cannot be priced: no CPU or memory, or an unknown medium or plan.
func (t *Table) Price(item Item) (float64, bool) {
	plan, known := t.BillingPlans[item.BillingPlan]
	if !known || item.CPU <= 0 || item.MemoryMiB <= 0 || item.GPUCount < 0 {
		return 0, false
	}
	disks := 0.0
	for _, disk := range item.Disks {
		rate, known := t.Disks[disk.Type]
		if !known || disk.GiB < 0 {
			return 0, false
		}
		disks += float64(disk.GiB) * rate
	}
	rates := lo.ValueOr(t.Categories, item.Category, t.Categories[fallback])
	compute := float64(item.CPU)*rates.CPU + float64(item.MemoryMiB)/1024*rates.MemoryGiB
	compute = compute*lo.ValueOr(t.Generations, item.Generation, 1) + float64(item.GPUCount)*t.GPUs[t.GPU(item.GPUName)]
	return compute*plan.Compute + disks*plan.Disk, true
}

// GPU returns the key of a model's rate: the first word of its name that the table knows, so that "NVIDIA A30",
// "NVIDIA-A30" and "A30 24GB" are the same.
func (t *Table) GPU(model string) string {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	word, _ := lo.Find(words, func(word string) bool { return word != fallback && lo.HasKey(t.GPUs, word) })
	return lo.CoalesceOrEmpty(word, fallback)
}
