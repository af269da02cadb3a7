// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
)

// load reads the results of former measurements.
func load(file string) ([]Result, error) {
	content, err := os.ReadFile(file) //nolint:gosec // a file that the caller names
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading former results: %w", err)
	}
	var results []Result
	if err := json.Unmarshal(content, &results); err != nil {
		return nil, fmt.Errorf("reading former results from %s: %w", file, err)
	}
	return results, nil
}

func save(file string, results []Result) error {
	content, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return os.WriteFile(file, append(content, '\n'), 0o644) //nolint:gosec // is checked in
}

// key tells results apart.
func (r *Result) key() string {
	return fmt.Sprintf("%02d %06d %02d %s %02d", slices.Index(scenarios, r.Scenario), r.Nodes, slices.Index(phases, r.Phase), r.Provider, r.Round)
}

var (
	scenarios = []string{scenarioUp, scenarioPacked, scenarioDrift, scenarioConsolidation, scenarioRestart}
	phases    = []string{"up", "settle", "rest", "down", "drift", "consolidation", "restart"}
)

// merge replaces former results of the same by new ones.
func merge(former, measured []Result) []Result {
	byKey := map[string]Result{}
	for _, r := range append(slices.Clone(former), measured...) {
		byKey[r.key()] = r
	}
	return lo.Map(slices.Sorted(maps.Keys(byKey)), func(key string, _ int) Result { return byKey[key] })
}

// quantity is what is compared.
type quantity struct {
	title string
	of    func(*Result) float64
	// target is the highest ratio that is aimed at.
	target float64
}

var quantities = []quantity{
	{"wall time (s)", func(r *Result) float64 { return r.Seconds }, 1.10},
	{"CPU (s)", func(r *Result) float64 { return r.counted(r.CPU) }, 1.25},
	{"peak RSS (MiB)", func(r *Result) float64 { return r.RSS }, 1.20},
}

// counted is what was counted in a phase; at rest, which lasts as long as a flag says, in a minute.
func (r *Result) counted(n float64) float64 {
	if r.Phase == "rest" {
		return n / r.Seconds * 60
	}
	return n
}

// The part of the page that is made from the results; what is around it is written by hand.
const begin, end = "<!-- results: written by make bench WHAT=scale -->\n\n", "<!-- end of results -->"

// page is the former page with the results of now.
func page(former string, results []Result) (string, error) {
	before, rest, found := strings.Cut(former, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", errors.New("the page has no part for the results")
	}
	return before + begin + report(results) + end + after, nil
}

// report is the results of what users wait and pay for; results.json has them all.
func report(results []Result) string {
	b := &strings.Builder{}
	if len(results) > 0 {
		at := slices.Sorted(slices.Values(lo.Map(results, func(r Result, _ int) string { return r.Measured.Format(time.DateOnly) })))
		fmt.Fprintf(b, "Measured from %s to %s on %d cores.\n\n", at[0], at[len(at)-1], results[0].Cores)
	}
	// Few nodes say little.
	shown := lo.Filter(results, func(r Result, _ int) bool { return r.Phase != "settle" && r.Nodes >= 100 })
	name := func(r Result) string { return fmt.Sprintf("%s/%s, %d", r.Scenario, r.Phase, r.Nodes) }
	groups := lo.GroupBy(shown, name)
	order := lo.Uniq(lo.Map(shown, func(r Result, _ int) string { return name(r) }))
	titles := lo.Map(quantities, func(q quantity, _ int) string { return q.title })
	fmt.Fprintf(b, "| scenario/phase, nodes | provider | %s |\n|---|---|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, group := range order {
		byProvider := lo.GroupBy(groups[group], func(r Result) string { return r.Provider })
		for _, provider := range providerNames() {
			// Without the limits only where nothing was measured with them.
			if of := byProvider[provider]; len(of) > 0 && provider != "kwok" && (provider != "bizfly-unlimited" || len(byProvider["bizfly"]) == 0) {
				fmt.Fprintf(b, "| %s | `%s` |%s\n", group, provider, row(of, byProvider["kwok"]))
			}
		}
	}
	b.WriteString(targets(results))
	b.WriteString("\n")
	return b.String()
}

// targets compares what is counted with what is aimed at: one pod per node, medians of the rounds.
func targets(results []Result) string {
	b := &strings.Builder{}
	b.WriteString("\n| nodes | provider | calls to the cloud per node (target: 4.3) | a minute at rest (3) | accepted writes per node | " +
		"above those of `kwok` (2) |\n|---|---|---|---|---|---|\n")
	sizes := lo.Uniq(lo.FilterMap(results, func(r Result, _ int) (int, bool) { return r.Nodes, r.Scenario == scenarioUp }))
	for _, nodes := range sizes {
		// median is that of the sum of the phases of a round; it is not known where one of them was not measured.
		median := func(provider string, of func(*Result) float64, phases ...string) (float64, bool) {
			sums, measured := map[int]float64{}, map[int]int{}
			for _, r := range results {
				if r.Scenario == scenarioUp && r.Nodes == nodes && r.Provider == provider && slices.Contains(phases, r.Phase) {
					sums[r.Round] += of(&r)
					measured[r.Round]++
				}
			}
			values := lo.Values(lo.PickBy(sums, func(round int, _ float64) bool { return measured[round] == len(phases) }))
			slices.Sort(values)
			if len(values) == 0 {
				return 0, false
			}
			return middle(values), true
		}
		all := []string{"up", "settle", "down"}
		accepted := func(r *Result) float64 { return r.Accepted() / float64(r.Nodes) }
		minutely := func(r *Result) float64 { return r.counted(r.CallsPerNode() * float64(r.Nodes)) }
		cell := func(value float64, known bool) string { return lo.Ternary(known, fmt.Sprintf("%.2f", value), "-") }
		theirs, compared := median("kwok", accepted, all...)
		for _, provider := range lo.Without(providerNames(), "kwok") {
			wrote, known := median(provider, accepted, all...)
			if !known {
				continue
			}
			calls, _ := median(provider, (*Result).CallsPerNode, all...)
			rest, rested := median(provider, minutely, "rest")
			fmt.Fprintf(b, "| %d | `%s` | %.2f | %s | %.2f | %s |\n", nodes, provider, calls, cell(rest, rested), wrote, cell(wrote-theirs, compared))
		}
	}
	return b.String()
}

// row is the median of each quantity with that of its ratios.
func row(of, kwok []Result) string {
	b := &strings.Builder{}
	for _, q := range quantities {
		fmt.Fprintf(b, " %s", figure(medianOf(of, q.of)))
		// Of the same round, so that both saw the same machine.
		ratios := lo.FilterMap(of, func(r Result, _ int) (float64, bool) {
			other, ok := lo.Find(kwok, func(k Result) bool { return k.Round == r.Round })
			return q.of(&r) / q.of(&other), ok && q.of(&other) > 0
		})
		if len(ratios) > 0 {
			slices.Sort(ratios)
			ratio := middle(ratios)
			missed := ratio > q.target
			fmt.Fprintf(b, " (%s%.2f%s)", lo.Ternary(missed, "**", ""), ratio, lo.Ternary(missed, "**", ""))
		}
		b.WriteString(" |")
	}
	return b.String()
}

// figure is a count as it is, and a measured number with two decimals below 100.
func figure(n float64) string {
	return strconv.FormatFloat(n, 'f', lo.Ternary(n >= 100 || n == math.Trunc(n), 0, 2), 64)
}

// medianOf is the median of a quantity over the rounds.
func medianOf(of []Result, what func(*Result) float64) float64 {
	values := lo.Map(of, func(r Result, _ int) float64 { return what(&r) })
	slices.Sort(values)
	return middle(values)
}

// middle is the median of sorted values: between the two in the middle of an even number.
func middle(values []float64) float64 {
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
