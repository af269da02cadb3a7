// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bill_test measures what workloads cost in several ways to run them, and writes docs/concepts/cost.md: `make bench WHAT=bill`. All money is
// read from the bill of the sandbox, which has a price list of its own.
package bill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/properties/randomcluster"

	workloads "github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
)

// The files, from root.
const (
	resultsFile = "test/measure/bill/results.json"
	pageFile    = "docs/concepts/cost.md"
	sampleFile  = "config/samples/nodepool-default.yaml"
)

// root is that of the repository.
const root = "../../../.."

// TestMeasure measures everything with BENCH_BILL=measure, with BENCH_BILL=report only writes the page from the results that there are, and with names of
// columns, separated by commas, measures these and keeps the results of the others.
func TestMeasure(t *testing.T) {
	todo := os.Getenv("BENCH_BILL")
	if todo == "" {
		t.Skip("make bench WHAT=bill runs it")
	}
	log.SetLogger(logging.NopLogger)
	// Runs make much garbage and need little memory.
	debug.SetGCPercent(400)
	ctx := coreoptions.ToContext(t.Context(), coretest.Options())
	if todo != "report" {
		content := lo.Must(json.MarshalIndent(measure(ctx, todo), "", " "))
		lo.Must0(os.WriteFile(filepath.Join(root, resultsFile), append(content, '\n'), 0o644))
	}
	page := filepath.Join(root, pageFile)
	written := lo.Must(insert(string(lo.Must(os.ReadFile(page))), load()))
	lo.Must0(os.WriteFile(page, []byte(written), 0o644))
}

// load reads the results of the last measurement.
func load() *Results {
	content := lo.Must(os.ReadFile(filepath.Join(root, resultsFile)))
	results := &Results{}
	lo.Must0(json.Unmarshal(content, results))
	return results
}

// Results are what a measurement has found.
type Results struct {
	// Measured is the day of it.
	Measured string `json:"measured"`
	Settle   []*Row `json:"settle"`
	Day      []*Row `json:"day"`
}

// Row is a workload and its bills: in VND per hour where it has settled, in VND for a day.
type Row struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Pods  int    `json:"pods"`
	// Bound is what no nodes are cheaper than that have what the pods request: of a day, for each moment anew.
	Bound float64 `json:"bound"`
	// Ways are the bills by the name of a column.
	Ways map[string]*Outcome `json:"ways"`
}

// Outcome is the bill of one way to run a workload.
type Outcome struct {
	*randomcluster.Bill
	// Flavor is that of a fixed pool.
	Flavor string `json:"flavor,omitempty"`
}

// runs is how often a workload settles: core looks at nodes in no certain order, so runs differ, and the median counts.
const runs = 3

// kind is a kind of run.
type kind struct {
	name      string
	workloads []workloads.Workload
	runs      int
	money     func(*randomcluster.Bill) float64
}

func kinds() []kind {
	return []kind{
		{"settle", workloads.Settling(), runs, func(b *randomcluster.Bill) float64 { return b.VNDPerHour }},
		{"day", workloads.Days(), 1, func(b *randomcluster.Bill) float64 { return b.VND }},
	}
}

// measure runs what is to do, as many runs at a time as there are processors.
func measure(ctx context.Context, todo string) *Results {
	b := newBench(ctx)
	results := &Results{Measured: time.Now().UTC().Format(time.DateOnly)}
	known := map[string]*Row{}
	if todo != "measure" {
		before := load()
		results.Measured = before.Measured
		known = lo.KeyBy(append(before.Settle, before.Day...), func(row *Row) string { return row.Name })
	}
	var jobs []job
	for _, k := range kinds() {
		for _, w := range k.workloads {
			row := known[w.Name]
			if row == nil {
				row = &Row{Name: w.Name, Title: w.Title, Pods: len(w.Pods), Ways: map[string]*Outcome{}}
			}
			if k.name == "day" {
				results.Day = append(results.Day, row)
			} else {
				results.Settle = append(results.Settle, row)
			}
			jobs = append(jobs, b.jobs(ctx, k, w, row)...)
		}
	}
	if todo != "measure" {
		jobs = lo.Filter(jobs, func(j job, _ int) bool { return slices.Contains(strings.Split(todo, ","), j.way) })
	}
	// Days take longest, so they begin.
	slices.Reverse(jobs)
	b.work(jobs)
	return results
}

// job measures a column of a workload.
type job struct {
	way string
	do  func()
}

// jobs are those of one workload.
func (b *bench) jobs(ctx context.Context, k kind, w workloads.Workload, row *Row) []job {
	jobs := []job{{wayReference, func() {
		bound := b.bound(k, w)
		b.mu.Lock()
		defer b.mu.Unlock()
		row.Bound = bound
	}}, {poolBest, func() {
		best := b.bestPool(ctx, k, w)
		b.note(k, row, poolBest, best)
	}}, {poolUsual, func() {
		usual := b.once(ctx, k, column{name: poolUsual, flavor: usualFlavor}, w)
		b.note(k, row, poolUsual, &Outcome{usual, usualFlavor})
	}}, {waySuggested, func() {
		c := b.suggested(ctx, w)
		b.median(ctx, k, c, w, row)
	}}}
	for _, c := range append(append(policies(), ofHours()...), repackedColumn()) {
		jobs = append(jobs, job{c.name, func() { b.median(ctx, k, c, w, row) }})
	}
	return jobs
}

// median runs a workload several times, and notes the bill in the middle.
func (b *bench) median(ctx context.Context, k kind, c column, w workloads.Workload, row *Row) {
	var bills []*randomcluster.Bill
	for range k.runs {
		bill := b.once(ctx, k, c, w)
		if bill.Unserved > 0 {
			panic(fmt.Errorf("%d pods of %s with %s never had a node", bill.Unserved, w.Name, c.name))
		}
		bills = append(bills, bill)
	}
	slices.SortFunc(bills, func(x, y *randomcluster.Bill) int { return int(k.money(x) - k.money(y)) })
	b.note(k, row, c.name, &Outcome{Bill: bills[len(bills)/2]})
}

// note keeps a result and reports it.
func (b *bench) note(k kind, row *Row, name string, outcome *Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row.Ways[name] = outcome
	fmt.Printf("%5.0f s  %-6s %-13s %-17s %9.0f VND, %d evictions, %d servers launched\n", time.Since(b.begun).Seconds(), k.name, row.Name, name,
		k.money(outcome.Bill), outcome.Evictions, outcome.Launches)
}

// work runs jobs side by side.
func (b *bench) work(jobs []job) {
	queue := make(chan job)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for next := range queue {
				next.do()
			}
		})
	}
	for _, next := range jobs {
		queue <- next
	}
	close(queue)
	workers.Wait()
}
