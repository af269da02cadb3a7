// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Units of what a benchmark measures.
const (
	elapsed     = "ns/op"
	processor   = "cpu-ns/op"
	perNode     = "cpu-ns/node"
	allocations = "allocs/op"
	memory      = "B/op"

	heapPerNode  = "heap-B/node"
	bytesPerNode = "list-B/node"
)

// results are by benchmark and unit what each round has measured.
type results map[string]map[string][]float64

// run runs the benchmarks of one binary once.
func (r results) run(ctx context.Context, binary, pattern, budget string) error {
	// The binaries are those that make has just built.
	//nolint:gosec // G204
	command := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench="+pattern, "-test.benchmem", "-test.benchtime="+budget, "-test.timeout=30m")
	output := &bytes.Buffer{}
	command.Stdout, command.Stderr = output, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", binary, err, output)
	}
	return r.read(output)
}

// cores is what the testing package puts behind a benchmark's name: the number of processors.
var cores = regexp.MustCompile(`-\d+$`)

// read adds the lines of one run: a name, a count, and then pairs of value and unit.
func (r results) read(output io.Reader) error {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := cores.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		if r[name] == nil {
			r[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("reading %q: %w", lines.Text(), err)
			}
			r[name][fields[i+1]] = append(r[name][fields[i+1]], value)
		}
	}
	return lines.Err()
}

// print writes the medians.
func (r results) print(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "benchmark\tprocessor ns\telapsed ns\tallocations\tbytes\t")
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name,
			median(r[name][processor]), median(r[name][elapsed]), median(r[name][allocations]), median(r[name][memory]))
	}
	_ = table.Flush()
}

// median returns the middle one, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
