/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
	"sync/atomic"
	"unicode"

	"github.com/samber/lo"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

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
	// NetworkPlans are surcharges per server.
	NetworkPlans map[v1alpha1.NetworkPlan]float64 `json:"networkPlans"`
	// Sources say where numbers come from, by their path, for example "categories.premium" or "disks.HDD". The longest
	// path that leads to a number counts; a number without one is assumed.
	Sources map[string]Source `json:"sources"`

	seq uint64
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

// parsed numbers the tables, so that prices of different ones are told apart.
var parsed atomic.Uint64

// ParseTable reads a table from YAML, takes every number that it does not give from the embedded table, and checks that
// every rate keeps prices above 0 and strictly growing. A number that differs from the embedded one has the source
// configured, unless the table gives a source for it. The error names each field that is wrong.
func ParseTable(text []byte) (*Table, error) {
	var builtIn, given map[string]any
	if err := yaml.Unmarshal(text, &given); err != nil {
		return nil, fmt.Errorf("parsing the price table: %w", err)
	}
	if len(given) == 0 {
		return nil, errors.New("the price table is empty; remove it to use the built-in one")
	}
	if err := yaml.Unmarshal(embedded, &builtIn); err != nil {
		return nil, fmt.Errorf("parsing the built-in price table: %w", err)
	}
	changed := map[string]any{}
	merge(builtIn, given, "", changed)
	changed = lo.OmitBy(changed, func(path string, _ any) bool {
		return lo.SomeBy(lo.Keys(asMap(given["sources"])), func(of string) bool { return path == of || strings.HasPrefix(path, of+".") })
	})
	builtIn["sources"] = lo.Assign(asMap(builtIn["sources"]), changed)
	merged, err := yaml.Marshal(builtIn)
	if err != nil {
		return nil, fmt.Errorf("merging the price table: %w", err)
	}
	return parse(merged)
}

// merge writes what is given over what is there, and the paths of the numbers that it changes into changed.
func merge(into, given map[string]any, path string, changed map[string]any) {
	for key, value := range given {
		if inner, ok := value.(map[string]any); ok {
			below := asMap(into[key])
			merge(below, inner, path+key+".", changed)
			into[key] = below
			continue
		}
		if value != nil && value != into[key] && path != "" && path != "sources." {
			changed[path+key] = SourceConfigured
		}
		if value != nil {
			into[key] = value
		}
	}
}

func asMap(value any) map[string]any {
	if known, ok := value.(map[string]any); ok {
		return known
	}
	return map[string]any{}
}

func parse(text []byte) (*Table, error) {
	table := &Table{}
	if err := yaml.UnmarshalStrict(text, table); err != nil {
		return nil, fmt.Errorf("parsing the price table: %w", err)
	}
	if err := table.validate(); err != nil {
		return nil, fmt.Errorf("checking the price table: %w", err)
	}
	table.seq = parsed.Add(1)
	return table, nil
}

func (t *Table) validate() error {
	var errs []error
	positive := func(value float64, field string) {
		if !(value > 0) || math.IsInf(value, 0) {
			errs = append(errs, fmt.Errorf("%s is %g, it must be above 0", field, value))
		}
	}
	for _, category := range slices.Sorted(maps.Keys(t.Categories)) {
		positive(t.Categories[category].CPU, "categories."+category+".cpu")
		positive(t.Categories[category].MemoryGiB, "categories."+category+".memoryGiB")
	}
	for _, code := range slices.Sorted(maps.Keys(t.Generations)) {
		positive(t.Generations[code], "generations."+code)
	}
	for _, name := range slices.Sorted(maps.Keys(t.GPUs)) {
		positive(t.GPUs[name], "gpus."+name)
	}
	for _, medium := range []v1alpha1.DiskMedium{v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD} {
		positive(t.Disks[medium], "disks."+string(medium))
	}
	for _, plan := range []v1alpha1.BillingPlan{v1alpha1.BillingPlanOnDemand, v1alpha1.BillingPlanSavingPlan} {
		positive(t.BillingPlans[plan].Compute, "billingPlans."+string(plan)+".compute")
		positive(t.BillingPlans[plan].Disk, "billingPlans."+string(plan)+".disk")
	}
	for _, plan := range []v1alpha1.NetworkPlan{v1alpha1.NetworkPlanFreeDataTransfer, v1alpha1.NetworkPlanFreeBandwidth} {
		if value := t.NetworkPlans[plan]; !(value >= 0) || math.IsInf(value, 0) {
			errs = append(errs, fmt.Errorf("networkPlans.%s is %g, it must not be negative", plan, value))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.Sources)) {
		if !slices.Contains(Sources, t.Sources[path]) {
			errs = append(errs, fmt.Errorf("sources.%s is %q, use one of %q", path, t.Sources[path], Sources))
		}
	}
	if !hasKey(t.Categories, fallback) {
		errs = append(errs, errors.New("categories.default is missing, it prices categories that are not named"))
	}
	if !hasKey(t.GPUs, fallback) {
		errs = append(errs, errors.New("gpus.default is missing, it prices GPUs that are not named"))
	}
	return errors.Join(errs...)
}

// price is VND per hour, and false for what cannot be priced: no CPU or memory, or an unknown medium or plan.
func (t *Table) price(item Item) (float64, bool) {
	plan, known := t.BillingPlans[item.BillingPlan]
	network, knownNetwork := t.NetworkPlans[item.NetworkPlan]
	disks, knownDisks := t.disks(append(slices.Clone(item.DataDisks), Disk{GiB: item.DiskGiB, Type: item.DiskType}))
	if !known || !knownNetwork || !knownDisks || item.CPU <= 0 || item.MemoryMiB <= 0 || item.GPUCount < 0 {
		return 0, false
	}
	rates, named := t.Categories[item.Category]
	if !named {
		rates = t.Categories[fallback]
	}
	compute := float64(item.CPU)*rates.CPU + float64(item.MemoryMiB)/1024*rates.MemoryGiB
	if factor, ok := t.Generations[item.Generation]; ok {
		compute *= factor
	}
	compute += float64(item.GPUCount) * t.GPUs[t.gpu(item.GPUName)]
	return compute*plan.Compute + disks*plan.Disk + network, true
}

// disks returns what the disks cost together on demand, and false when one of them cannot be priced.
func (t *Table) disks(all []Disk) (vndPerHour float64, ok bool) {
	for _, disk := range all {
		rate, known := t.Disks[disk.Type]
		if !known || disk.GiB < 0 {
			return 0, false
		}
		vndPerHour += float64(disk.GiB) * rate
	}
	return vndPerHour, true
}

// gpu returns the key of a model's rate: the first word of its name that the table knows, so that "NVIDIA A30",
// "NVIDIA-A30" and "A30 24GB" are the same.
func (t *Table) gpu(model string) string {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	word, _ := lo.Find(words, func(word string) bool { return word != fallback && hasKey(t.GPUs, word) })
	return lo.CoalesceOrEmpty(word, fallback)
}

// sourceOf returns the least certain source of the numbers that the price of the item is made of.
func (t *Table) sourceOf(item Item) Source {
	category := "categories." + lo.Ternary(hasKey(t.Categories, item.Category), item.Category, fallback)
	plan := "billingPlans." + string(item.BillingPlan)
	used := []string{category + ".cpu", category + ".memoryGiB", plan + ".compute"}
	if hasKey(t.Generations, item.Generation) {
		used = append(used, "generations."+item.Generation)
	}
	if item.GPUCount > 0 {
		used = append(used, "gpus."+t.gpu(item.GPUName))
	}
	for _, disk := range append(slices.Clone(item.DataDisks), Disk{GiB: item.DiskGiB, Type: item.DiskType}) {
		if disk.GiB > 0 {
			used = append(used, "disks."+string(disk.Type), plan+".disk")
		}
	}
	if t.NetworkPlans[item.NetworkPlan] != 0 {
		used = append(used, "networkPlans."+string(item.NetworkPlan))
	}
	return Sources[slices.Max(lo.Map(used, func(path string, _ int) int { return slices.Index(Sources, t.source(path)) }))]
}

// source returns the source of one number.
func (t *Table) source(path string) Source {
	for ; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
		if source, ok := t.Sources[path]; ok {
			return source
		}
	}
	return SourceAssumed
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}
