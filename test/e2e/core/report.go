// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/samber/lo"
)

// conclude prints what became of each spec, in the order of the suites, then the ground truth and the closing line.
func (r *runner) conclude(ctx context.Context, specs []spec, took time.Duration) (int, error) {
	results := make([]result, 0, len(specs))
	counts := map[string]int{}
	for _, s := range specs {
		i := slices.IndexFunc(r.results, func(res result) bool { return res.suite == s.suite && res.text() == s.text() })
		res := result{spec: s, outcome: failed, message: "it was not run"}
		if i >= 0 {
			res = r.results[i]
		}
		results = append(results, res)
		counts[res.outcome]++
	}
	closing := fmt.Sprintf("%d passed, %d failed, %d skipped", counts[passed], counts[failed], counts[skipped])
	if again := lo.CountBy(results, func(res result) bool { return res.outcome == passed && res.message != "" }); again > 0 {
		closing += fmt.Sprintf(", %d of the passed ones the second time", again)
	}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, res := range results {
		fmt.Fprintf(table, "%s\t%s\t%s: %s\t%s\n", res.outcome, res.took.Round(time.Second), res.suite, res.text(), firstLine(res.reason()))
	}
	if err := table.Flush(); err != nil {
		return 1, fmt.Errorf("printing the results: %w", err)
	}
	fmt.Printf("\nran for %s on %d control planes\nGROUND TRUTH %s\n%s\n", took.Round(time.Second), r.parallel, r.left, closing)
	if ctx.Err() != nil {
		return 1, context.Cause(ctx)
	}
	if counts[failed] > 0 || r.left != (truth{}) {
		return 1, nil
	}
	return 0, nil
}

// reason is why a spec failed, was not run, or was run twice.
func (r result) reason() string { return r.message + r.skip }

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
