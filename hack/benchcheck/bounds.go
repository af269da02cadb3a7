// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// bound reports what one benchmark may need, as a multiple of what another of the same run needs, or in itself.
type bound struct {
	// what is guaranteed, for users.
	what string
	// of is the benchmark, over the one that it is divided by; empty divides by 1.
	of, over string
	// unit is what is compared.
	unit string
	// most is the largest value that is within the bound.
	most float64
}

// bounds are the guarantees. Allocations are counted and so exact; the rest are ratios that allow for noise, but less than
// what the mistake would cost that each is there to find.
var bounds = []bound{
	{"a warm lookup of 300 instance types allocates nothing", "InstanceTypesWarm", "", allocations, 0},
	{"a warm lookup costs less than three loads of a sync.Map", "InstanceTypesWarm", "SyncMapLoad", processor, 2.8},
	{"an unavailable offering rebuilds what changed: time", "InstanceTypesMark", "InstanceTypesFull", processor, 0.1},
	{"an unavailable offering rebuilds what changed: allocations", "InstanceTypesMark", "InstanceTypesFull", allocations, 0.01},
	{"drift is a lookup, however many servers there are", "IsDrifted5000", "IsDrifted500", processor, 2},
	{"drift allocates little beyond its copy of the NodeClass", "IsDrifted5000", "NodeClassCopy", allocations, 1.5},
	{"List grows like the servers: time", "List5000", "List500", processor, 20},
	{"List grows like the servers: allocations", "List5000", "List500", allocations, 10.5},
	{"List makes at most 9 allocations for a server of 5,000", "List5000", "", allocations, 45000},
	{"a server is found at the same cost, however many there are", "ServerLookup5000", "ServerLookup500", processor, 2},
	{"finding a server allocates nothing", "ServerLookup5000", "", allocations, 0},
	{"a refresh of the servers grows like them: time", "ServerRefresh5000", "ServerRefresh500", processor, 20},
	{"a refresh of the servers grows like them: allocations", "ServerRefresh5000", "ServerRefresh500", allocations, 10.5},
	{"garbage collection grows like the servers: time", "GarbageCollection5000", "GarbageCollection500", processor, 20},
	{"garbage collection grows like the servers: allocations", "GarbageCollection5000", "GarbageCollection500", allocations, 10.5},
	{"garbage collection makes at most 2 allocations for a server of 5,000", "GarbageCollection5000", "", allocations, 10000},
	{"a launch chooses among 900 offerings like core would: time", "OfferingSelection", "CoreSelection", processor, 2},
	{"a launch chooses among 900 offerings like core would: allocations", "OfferingSelection", "CoreSelection", allocations, 2},
	{"a launch counts the nodes of its NodePool: time", "LaunchBookkeeping5000", "LaunchBookkeeping500", processor, 5},
	{"a launch counts the nodes of its NodePool: allocations", "LaunchBookkeeping5000", "LaunchBookkeeping500", allocations, 1.2},
	// A machine whose caches hold 500 nodes and no more takes a fifth longer for each of 5,000. What grows with the square of the nodes,
	// and is a tenth of the work for 500, would double it.
	{"a node at rest costs the same among 2,000 and 500", "Rest2000", "Rest500", perNode, 1.5},
	{"a node at rest costs the same among 5,000 and 500", "Rest5000", "Rest500", perNode, 1.5},
	{"a node at rest takes the same memory among 5,000 and 500", "Rest5000", "Rest500", heapPerNode, 1.1},
	{"a server in a list costs the same among 5,000 and 500", "ServerList5000", "ServerList500", perNode, 1.5},
	{"the answer to a list grows like the servers", "ServerList5000", "ServerList500", bytesPerNode, 1.05},
	{"a node at rest costs the same among 500 and 100", "Rest500", "Rest100", perNode, 1.5},
	{"core schedules 1,000 pods at 0.9 of its speed with its own types", "Scheduler1000", "SchedulerCore1000", processor, 1 / 0.9},
	{"core schedules 5,000 pods at 0.9 of its speed with its own types", "Scheduler5000", "SchedulerCore5000", processor, 1 / 0.9},
}

// value is the median over the rounds of the ratio within each; false when something was not measured.
func (b bound) value(r results) (float64, bool) {
	of := r[b.of][b.unit]
	if len(of) == 0 {
		return 0, false
	}
	if b.over == "" {
		return median(of), true
	}
	over := r[b.over][b.unit]
	if len(over) != len(of) {
		return 0, false
	}
	ratios := make([]float64, len(of))
	for i := range of {
		if over[i] <= 0 {
			return 0, false
		}
		ratios[i] = of[i] / over[i]
	}
	return median(ratios), true
}

// check prints each bound with what was measured, and reports whether all are kept. One that was not measured is broken,
// unless only a part was run.
func check(to io.Writer, r results, bounds []bound, partial bool) bool {
	kept, checked := true, 0
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\n\tmeasured\tat most\tguarantee")
	for _, b := range bounds {
		value, measured := b.value(r)
		result := "ok"
		switch {
		case !measured && partial:
			continue
		case !measured, math.IsNaN(value), value > b.most:
			result, kept = "BROKEN", false
		}
		checked++
		text := number(value)
		if !measured {
			text = "nothing"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", result, text, number(b.most), b.what)
	}
	_ = table.Flush()
	fmt.Fprintf(to, "%d bounds checked\n", checked)
	return kept
}

// number writes counts whole and ratios with three decimals.
func number(value float64) string {
	if value == math.Trunc(value) {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3f", value)
}
