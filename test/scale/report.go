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
	// target is the highest ratio that is aimed at; 0 is none. Only the cloud without latency is held to it.
	target float64
}

var quantities = []quantity{
	{"wall time (s)", func(r *Result) float64 { return r.Seconds }, 1.10},
	{"CPU (s)", func(r *Result) float64 { return r.counted(r.CPU) }, 1.25},
	{"peak RSS (MiB)", func(r *Result) float64 { return r.RSS }, 1.20},
	{"accepted writes to the API server", func(r *Result) float64 { return r.counted(r.Accepted()) }, 0},
	{"rejected", func(r *Result) float64 { return r.counted(float64(r.Rejected)) }, 0},
}

// counted is what was counted in a phase; at rest, which lasts as long as a flag says, in a minute.
func (r *Result) counted(n float64) float64 {
	if r.Phase == "rest" {
		return n / r.Seconds * 60
	}
	return n
}

const introduction = `# Benchmarks

<!-- Written by make bench-scale. -->

Use this page to compare the cost of this provider with that of core's ` + "`kwok`" + ` provider, whose cloud costs nothing.
`

const method = `
## Method

Run ` + "`make bench-scale`" + ` to measure it again, and ` + "`make bench-scale BENCH_SCALE_FLAGS='--nodes 100 --scenarios up'`" + ` for a part of
it: results merge into [test/scale/results.json](../../test/scale/results.json), from which this page and its plots are made. That file also
has each request to the cloud and to the API server.

Each run has a control plane of its own, whose nodes KWOK keeps alive, and the same version of Karpenter core. There is one
NodePool of one instance type with 4 vCPUs and 8 GiB, and a consolidation delay of 5 s. The providers alternate. Processor time and
memory are those of the controller process, as the kernel counts them. Its requests to the API server are counted by the audit log;
rejected ones met an object that had changed meanwhile. Requests of every client are counted by the API server's own metrics. At rest,
processor time and writes are those of a minute. A value is the median of the rounds, with the lowest and the highest in parentheses.
Stolen is the share of the machine's processor time that its host gave to others, in the worst round, or ` + "`-`" + ` where none was counted:
do not compare what was measured while much was stolen.

| provider | cloud |
|---|---|
| ` + "`kwok`" + ` | none: core's reference provider, built from its module |
| ` + "`bizfly`" + ` | the sandbox without latency, default rate limits |
| ` + "`bizfly-unlimited`" + ` | the same with rate limits of 1,000 a second |
| ` + "`bizfly-realistic`" + ` | the sandbox with 200 ms a call and 20 to 40 s of boot, default rate limits |

| scenario | phase | what |
|---|---|---|
| up | up | as many pods as nodes, which reject each other: until the last pod is bound |
| | settle | at least a minute, until the controller uses less than half a core: events are written, and core tries to consolidate |
| | rest | nothing to do |
| | down | no pods: until the last NodeClaim is gone |
| packed | up, down | the same with 20 pods per node |
| drift | drift | a changed NodePool template: until every node is a new one and every pod is bound |
| consolidation | consolidation | two of three pods per node go: until nothing has changed for 45 s (the CPU includes them, the time does not) |
| restart | restart | after the nodes have come to rest, the controller starts again with a pending pod: until its first NodeClaim |
`

// page is the page of all results.
func page(results []Result) string {
	b := &strings.Builder{}
	b.WriteString(introduction)
	if len(results) > 0 {
		rounds := lo.Max(lo.Map(results, func(r Result, _ int) int { return r.Round }))
		at := slices.Sorted(slices.Values(lo.Map(results, func(r Result, _ int) string { return r.Measured.Format(time.DateOnly) })))
		fmt.Fprintf(b, "\nMeasured from %s to %s on %d cores; at most %d rounds: a row without a range was measured once, a scenario "+
			"without a row was not measured. Why rows are above their target: "+
			"[performance](../operate/performance.md#against-cores-kwok-provider).\n", at[0], at[len(at)-1], results[0].Cores, rounds)
	}
	groups := lo.GroupBy(results, func(r Result) string { return fmt.Sprintf("%s: %s of %d nodes", r.Scenario, r.Phase, r.Nodes) })
	order := lo.Uniq(lo.Map(results, func(r Result, _ int) string { return fmt.Sprintf("%s: %s of %d nodes", r.Scenario, r.Phase, r.Nodes) }))
	b.WriteString("\n## Ratios\n\nEach value is followed by its ratio to that of `kwok` in the same measurement; **bold** is above the target " +
		"(wall time 1.10, CPU 1.25, memory 1.20).\n\n")
	titles := append(lo.Map(quantities, func(q quantity, _ int) string { return q.title }), "stolen (%)")
	fmt.Fprintf(b, "| | provider | %s |\n|---|---|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, group := range order {
		byProvider := lo.GroupBy(groups[group], func(r Result) string { return r.Provider })
		for _, provider := range providerNames() {
			if of := byProvider[provider]; len(of) > 0 && provider != "kwok" {
				fmt.Fprintf(b, "| %s | `%s` |%s\n", group, provider, row(of, byProvider["kwok"], provider))
			}
		}
	}
	b.WriteString(targets(results))
	for _, name := range plots(results) {
		fmt.Fprintf(b, "\n![%s](../images/%s.svg)\n", strings.ReplaceAll(name, "-", " "), name)
	}
	b.WriteString(method)
	return b.String()
}

// targets compares what is counted with what is aimed at: one pod per node, medians of the rounds.
func targets(results []Result) string {
	b := &strings.Builder{}
	b.WriteString("\n## Targets\n\nA node's writes and calls are those of the phases up, settle and down together.\n\n" +
		"| nodes | provider | calls per node (on BKE, as here: 4.3) | calls a minute at rest (3) | accepted writes per node | above those of `kwok` (2) | " +
		"rejected writes per node | seconds above the cloud without latency (60) |\n|---|---|---|---|---|---|---|---|\n")
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
		rejected := func(r *Result) float64 { return float64(r.Rejected) / float64(r.Nodes) }
		minutely := func(r *Result) float64 { return r.counted(r.CallsPerNode() * float64(r.Nodes)) }
		seconds := func(r *Result) float64 { return r.Seconds }
		cell := func(value float64, known bool) string { return lo.Ternary(known, fmt.Sprintf("%.2f", value), "-") }
		theirs, compared := median("kwok", accepted, all...)
		fastest, slower := median("bizfly", seconds, "up")
		for _, provider := range providerNames() {
			wrote, known := median(provider, accepted, all...)
			if !known {
				continue
			}
			kwok := provider == "kwok"
			calls, _ := median(provider, (*Result).CallsPerNode, all...)
			rest, rested := median(provider, minutely, "rest")
			again, _ := median(provider, rejected, all...)
			took, _ := median(provider, seconds, "up")
			fmt.Fprintf(b, "| %d | `%s` | %s | %s | %.2f | %s | %.2f | %s |\n", nodes, provider, cell(calls, !kwok), cell(rest, rested && !kwok),
				wrote, cell(wrote-theirs, compared && !kwok), again, cell(took-fastest, slower && provider == "bizfly-realistic"))
		}
	}
	return b.String()
}

// row is each quantity with its ratio.
func row(of, kwok []Result, provider string) string {
	b := &strings.Builder{}
	for _, q := range quantities {
		low, median, high := spread(of, q.of)
		fmt.Fprintf(b, " %s", figure(median))
		if len(of) > 1 {
			fmt.Fprintf(b, " (%s to %s)", figure(low), figure(high))
		}
		if provider != "kwok" && len(kwok) > 0 {
			// Of the same round, so that both saw the same machine.
			ratios := lo.FilterMap(of, func(r Result, _ int) (float64, bool) {
				other, ok := lo.Find(kwok, func(k Result) bool { return k.Round == r.Round })
				return q.of(&r) / q.of(&other), ok && q.of(&other) > 0
			})
			slices.Sort(ratios)
			if len(ratios) > 0 {
				ratio := middle(ratios)
				missed := q.target > 0 && provider != "bizfly-realistic" && of[0].Phase != "settle" && ratio > q.target
				fmt.Fprintf(b, " = %s%.2f%s", lo.Ternary(missed, "**", ""), ratio, lo.Ternary(missed, "**", ""))
				if len(ratios) > 1 {
					fmt.Fprintf(b, " (%.2f to %.2f)", ratios[0], ratios[len(ratios)-1])
				}
			}
		}
		b.WriteString(" |")
	}
	_, _, most := spread(of, func(r *Result) float64 { return r.Stolen })
	fmt.Fprintf(b, " %s |", lo.Ternary(most > 0, strconv.FormatFloat(100*most, 'f', 0, 64), "-"))
	return b.String()
}

// figure is a count as it is, and a measured number with two decimals below 100.
func figure(n float64) string {
	return strconv.FormatFloat(n, 'f', lo.Ternary(n >= 100 || n == math.Trunc(n), 0, 2), 64)
}

// spread is the lowest, the median and the highest.
func spread(of []Result, what func(*Result) float64) (low, median, high float64) {
	values := lo.Map(of, func(r Result, _ int) float64 { return what(&r) })
	slices.Sort(values)
	return values[0], middle(values), values[len(values)-1]
}

// middle is the median of sorted values: between the two in the middle of an even number.
func middle(values []float64) float64 {
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// plots are the names of the plots that test/scale/plot draws: one for each quantity of the phases that were measured at
// several sizes.
func plots(results []Result) []string {
	var names []string
	for _, phase := range []string{"up", "down", "rest"} {
		if lo.SomeBy(results, func(r Result) bool { return r.Scenario == scenarioUp && r.Phase == phase }) {
			names = append(names, "scale-"+phase+"-time", "scale-"+phase+"-cpu", "scale-"+phase+"-memory")
		}
	}
	return lo.Without(names, "scale-rest-time")
}
