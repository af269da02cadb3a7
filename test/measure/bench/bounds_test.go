//go:build unix

// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// Units of what a benchmark measures. Allocations are counted by the testing package, the others are reported by the benchmarks.
const (
	processorTime = "cpu-ns/op"
	allocations   = "allocs/op"
	perNode       = "cpu-ns/node"
	heapPerNode   = "heap-B/node"
	bytesPerNode  = "list-B/node"
)

type benchmark = func(*testing.B)

// bound limits what a benchmark measures, divided by what another of the same round does.
type bound struct {
	// what is guaranteed.
	what     string
	of, over benchmark
	unit     string
	most     float64
}

// bounds are the guarantees. Allocations are counted and so exact; the rest are ratios that allow for noise, but less than
// what the mistake would cost that each is there to find.
var bounds = []bound{
	{"a warm lookup of 300 instance types allocates nothing", BenchmarkInstanceTypesWarm, nil, allocations, 0},
	{"a warm lookup costs less than three loads of a sync.Map", BenchmarkInstanceTypesWarm, BenchmarkSyncMapLoad, processorTime, 2.8},
	{"an unavailable offering rebuilds what changed: time", BenchmarkInstanceTypesMark, BenchmarkInstanceTypesFull, processorTime, 0.1},
	{"an unavailable offering rebuilds what changed: allocations", BenchmarkInstanceTypesMark, BenchmarkInstanceTypesFull, allocations, 0.01},
	{"drift is a lookup, however many servers there are", BenchmarkIsDrifted5000, BenchmarkIsDrifted500, processorTime, 2},
	{"drift allocates little beyond its copy of the NodeClass", BenchmarkIsDrifted5000, BenchmarkNodeClassCopy, allocations, 1.5},
	{"List grows like the servers: time", BenchmarkList5000, BenchmarkList500, processorTime, 20},
	{"List grows like the servers: allocations", BenchmarkList5000, BenchmarkList500, allocations, 10.5},
	{"List makes at most 9 allocations for a server of 5,000", BenchmarkList5000, nil, allocations, 45000},
	{"a server is found at the same cost, however many there are", BenchmarkServerLookup5000, BenchmarkServerLookup500, processorTime, 2},
	{"finding a server allocates nothing", BenchmarkServerLookup5000, nil, allocations, 0},
	{"a refresh of the servers grows like them: time", BenchmarkServerRefresh5000, BenchmarkServerRefresh500, processorTime, 20},
	{"a refresh of the servers grows like them: allocations", BenchmarkServerRefresh5000, BenchmarkServerRefresh500, allocations, 10.5},
	{"garbage collection grows like the servers: time", BenchmarkGarbageCollection5000, BenchmarkGarbageCollection500, processorTime, 20},
	{"garbage collection grows like the servers: allocations", BenchmarkGarbageCollection5000, BenchmarkGarbageCollection500, allocations, 10.5},
	{"garbage collection makes at most 2 allocations for a server of 5,000", BenchmarkGarbageCollection5000, nil, allocations, 10000},
	{"a launch chooses among 900 offerings like core would: time", BenchmarkOfferingSelection, BenchmarkCoreSelection, processorTime, 2},
	{"a launch chooses among 900 offerings like core would: allocations", BenchmarkOfferingSelection, BenchmarkCoreSelection, allocations, 2},
	{"a launch counts the nodes of its NodePool: time", BenchmarkLaunchBookkeeping5000, BenchmarkLaunchBookkeeping500, processorTime, 5},
	{"a launch counts the nodes of its NodePool: allocations", BenchmarkLaunchBookkeeping5000, BenchmarkLaunchBookkeeping500, allocations, 1.2},
	// A machine whose caches hold 500 nodes and no more takes a fifth longer for each of 5,000. What grows with the square of the nodes,
	// and is a tenth of the work for 500, would double it.
	{"a node at rest costs the same among 2,000 and 500", BenchmarkRest2000, BenchmarkRest500, perNode, 1.5},
	{"a node at rest costs the same among 5,000 and 500", BenchmarkRest5000, BenchmarkRest500, perNode, 1.5},
	{"a node at rest takes the same memory among 5,000 and 500", BenchmarkRest5000, BenchmarkRest500, heapPerNode, 1.1},
	{"a server in a list costs the same among 5,000 and 500", BenchmarkServerList5000, BenchmarkServerList500, perNode, 1.5},
	{"the answer to a list grows like the servers", BenchmarkServerList5000, BenchmarkServerList500, bytesPerNode, 1.05},
	{"a node at rest costs the same among 500 and 100", BenchmarkRest500, BenchmarkRest100, perNode, 1.5},
	{"core schedules 1,000 pods at 0.9 of its speed with its own types", BenchmarkScheduler1000, BenchmarkSchedulerCore1000, processorTime, 1 / 0.9},
	{"core schedules 5,000 pods at 0.9 of its speed with its own types", BenchmarkScheduler5000, BenchmarkSchedulerCore5000, processorTime, 1 / 0.9},
}

// nameOf is the name of a benchmark without what all have in common.
func nameOf(f benchmark) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	return name[strings.LastIndex(name, ".Benchmark")+len(".Benchmark"):]
}

// value is the median over the rounds of the ratio within each. It is NaN, which no bound admits, where a benchmark failed or divides by 0.
func (b bound) value(rounds []map[string]testing.BenchmarkResult) float64 {
	var ratios []float64
	for _, round := range rounds {
		ratio := measured(round[nameOf(b.of)], b.unit)
		if b.over != nil {
			ratio /= measured(round[nameOf(b.over)], b.unit)
		}
		if math.IsNaN(ratio) {
			return ratio
		}
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	return (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
}

func measured(r testing.BenchmarkResult, unit string) float64 {
	number, reported := r.Extra[unit]
	switch {
	case r.N > 0 && unit == allocations:
		return float64(r.AllocsPerOp())
	case r.N > 0 && reported:
		return number
	}
	return math.NaN()
}

// TestBounds runs every benchmark once in each of BENCH_ROUNDS rounds, so that both sides of a ratio meet the same machine. BENCH is a
// pattern for the benchmarks, of which the bounds are checked that have them.
func TestBounds(t *testing.T) {
	rounds := make([]map[string]testing.BenchmarkResult, suite.Number("BENCH_ROUNDS", 0))
	if len(rounds) == 0 {
		t.Skip("BENCH_ROUNDS is the number of rounds (make bench)")
	}
	if err := flag.Set("test.benchtime", cmp.Or(os.Getenv("BENCH_TIME"), "100ms")); err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(os.Getenv("BENCH"))
	checked := slices.DeleteFunc(slices.Clone(bounds), func(b bound) bool { return !pattern.MatchString(nameOf(b.of)) })
	if len(checked) == 0 {
		t.Fatalf("no bound is on a benchmark that matches %s", pattern)
	}
	for i := range rounds {
		rounds[i] = map[string]testing.BenchmarkResult{}
		for _, b := range checked {
			for _, f := range []benchmark{b.of, b.over} {
				if f == nil || rounds[i][nameOf(f)].N > 0 {
					continue
				}
				r := testing.Benchmark(f)
				rounds[i][nameOf(f)] = r
				fmt.Printf("round %d  %-22s %s %s\n", i+1, nameOf(f), r, r.MemString())
			}
		}
	}
	for _, b := range checked {
		result, value := "ok", b.value(rounds)
		if !(value <= b.most) {
			result = "BROKEN"
			t.Errorf("%s: %.3f, at most %.3f", b.what, value, b.most)
		}
		fmt.Printf("%-6s  %10.3f  at most %10.3f  %s\n", result, value, b.most, b.what)
	}
}

func TestValue(t *testing.T) {
	round := func(slow float64) map[string]testing.BenchmarkResult {
		return map[string]testing.BenchmarkResult{
			"Rest500": {N: 1, MemAllocs: 4, Extra: map[string]float64{perNode: slow}},
			"Rest100": {N: 1, Extra: map[string]float64{perNode: 2}},
		}
	}
	for name, c := range map[string]struct {
		bound  bound
		rounds []map[string]testing.BenchmarkResult
		value  float64
	}{
		"a ratio":              {bound{of: BenchmarkRest500, over: BenchmarkRest100, unit: perNode}, []map[string]testing.BenchmarkResult{round(6)}, 3},
		"one bad round":        {bound{of: BenchmarkRest500, unit: perNode}, []map[string]testing.BenchmarkResult{round(6), round(600), round(7)}, 7},
		"the mean of two":      {bound{of: BenchmarkRest500, unit: perNode}, []map[string]testing.BenchmarkResult{round(6), round(8)}, 7},
		"allocations":          {bound{of: BenchmarkRest500, unit: allocations}, []map[string]testing.BenchmarkResult{round(6)}, 4},
		"nothing measured":     {bound{of: BenchmarkRest2000, unit: allocations}, []map[string]testing.BenchmarkResult{round(6)}, math.NaN()},
		"another unit":         {bound{of: BenchmarkRest500, unit: processorTime}, []map[string]testing.BenchmarkResult{round(6)}, math.NaN()},
		"nothing to divide by": {bound{of: BenchmarkRest500, over: BenchmarkRest2000, unit: perNode}, []map[string]testing.BenchmarkResult{round(6)}, math.NaN()},
	} {
		if value := c.bound.value(c.rounds); value != c.value && !(math.IsNaN(value) && math.IsNaN(c.value)) {
			t.Errorf("%s: %v, expected %v", name, value, c.value)
		}
	}
}
