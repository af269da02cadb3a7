// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// budget is the time in which .ci/run starts groups that end, by their estimate, within it.
	budget = 55 * time.Minute
	// limit is when a group that takes longer is stopped.
	limit = 75 * time.Minute
)

// CI runs what .ci/run runs: every check that always runs, even if one fails, then groups for which there is time.
type CI struct {
	run     func(context.Context, Check, io.Writer) Result
	elapsed func() time.Duration
	out     io.Writer
}

// Run returns the results, and the groups that did not run.
func (c CI) Run(ctx context.Context, always, rotating []Check) (results []Result, waiting []Check) {
	type background struct {
		output bytes.Buffer
		result chan Result
	}
	var beside []*background
	for i, check := range always {
		if check.Beside && i+1 < len(always) {
			b := &background{result: make(chan Result, 1)}
			beside = append(beside, b)
			go func() { b.result <- c.run(ctx, check, &b.output) }()
			continue
		}
		results = append(results, c.run(ctx, check, c.out))
		for _, b := range beside {
			results = append(results, <-b.result)
			_, _ = b.output.WriteTo(c.out) // to the terminal
		}
		beside = nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit-c.elapsed(), errors.New("no time is left"))
	defer cancel()
	slower := slowness(always, results)
	left := func() int { return int((budget - c.elapsed()).Seconds() / slower) }
	fmt.Fprintf(c.out, "\n===> groups that rotate and are estimated to take %d s fit in; this machine takes %.1f times as long\n", max(0, left()), slower)
	waiting = Fill(rotating, left, func(group Check) { results = append(results, c.run(ctx, group, c.out)) })
	return results, waiting
}

// slowness is how many times as long as estimated the checks took that have passed, at least 1. A group that is only slow must not be stopped.
func slowness(checks []Check, results []Result) float64 {
	took, estimated := 0, 0
	for _, check := range checks {
		for _, result := range results {
			if result.Name == check.Name && result.Outcome == passed {
				took, estimated = took+result.Seconds, estimated+check.Seconds
			}
		}
	}
	return float64(max(took, estimated, 1)) / float64(max(estimated, 1))
}

// Report prints which groups ran and which did not, and whether none failed.
func (c CI) Report(results []Result, waiting []Check) (ok bool) {
	WriteResults(c.out, results)
	var names, bad []string
	for _, check := range waiting {
		names = append(names, fmt.Sprintf("%s (%s)", check.Name, Duration(check.Seconds)))
	}
	if len(names) > 0 {
		fmt.Fprintf(c.out, "not run, for lack of time (their turn comes with other commits): %s\n", strings.Join(names, ", "))
	}
	names = nil
	var without []string
	for _, result := range results {
		switch result.Outcome {
		case failed:
			bad = append(bad, result.Name)
		case skipped:
			without = append(without, result.Name)
		default:
			names = append(names, result.Name)
		}
	}
	if len(without) > 0 {
		fmt.Fprintf(c.out, "skipped, for the reasons above: %s\n", strings.Join(without, " "))
	}
	minutes := int(c.elapsed().Minutes())
	if len(bad) > 0 {
		fmt.Fprintf(c.out, "FAILED after %d minutes: %s\n", minutes, strings.Join(bad, " "))
		return false
	}
	fmt.Fprintf(c.out, "passed after %d minutes: %s\n", minutes, strings.Join(names, " "))
	return true
}
