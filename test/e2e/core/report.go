// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/samber/lo"
)

// The table of the page is between these lines.
const (
	tableBegin = "<!-- written by make core-e2e CORE_DOC=true: begin -->\n"
	tableEnd   = "<!-- end -->\n"
)

// entry is a result in the report for other programs.
type entry struct {
	Suite   string  `json:"suite"`
	Spec    string  `json:"spec"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// conclude prints what became of each spec, in the order of the suites, then the ground truth and the closing line.
func (r *runner) conclude(ctx context.Context, specs []spec, took time.Duration, doc string) (int, error) {
	results := make([]result, 0, len(specs))
	counts := map[string]int{}
	var entries []entry
	for _, s := range specs {
		i := slices.IndexFunc(r.results, func(res result) bool { return res.suite == s.suite && res.text() == s.text() })
		res := result{spec: s, outcome: failed, message: "it was not run"}
		if i >= 0 {
			res = r.results[i]
		}
		results = append(results, res)
		counts[res.outcome]++
		entries = append(entries, entry{res.suite, res.text(), res.outcome, res.took.Seconds(), res.reason()})
	}
	content, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return 1, fmt.Errorf("writing the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.reports, "results.json"), content, 0o600); err != nil {
		return 1, fmt.Errorf("writing the results: %w", err)
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
	if doc != "" {
		if err := r.writePage(doc, results, closing, took); err != nil {
			return 1, err
		}
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

// writePage replaces the tables of the page: what passed by the parts of the suites, and what did not pass.
func (r *runner) writePage(page string, results []result, closing string, took time.Duration) error {
	content, err := os.ReadFile(page) //nolint:gosec // the caller's own file
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	before, rest, ok := strings.Cut(string(content), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no table to replace", page)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Karpenter %s, Kubernetes %s: **%s** in %s on %d control planes; ground truth afterwards: `%s`.\n\n", version("sigs.k8s.io/karpenter"),
		regexp.MustCompile("^v0").ReplaceAllString(version("k8s.io/api"), "v1"), closing, took.Round(time.Minute), r.parallel, r.left)
	b.WriteString("| suite | passed of its parts | took together |\n|---|---|---|\n")
	for _, suite := range lo.PartitionBy(results, func(res result) string { return res.suite }) {
		byPart := lo.PartitionBy(suite, func(res result) string { return res.containers[0] })
		parts := lo.Map(byPart, func(part []result, _ int) string {
			successes := lo.CountBy(part, func(res result) bool { return res.outcome == passed })
			return fmt.Sprintf("`%s` %d/%d", part[0].containers[0], successes, len(part))
		})
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", suite[0].suite, strings.Join(parts, ", "),
			lo.SumBy(suite, func(res result) time.Duration { return res.took }).Round(time.Second))
	}
	writeOthers(&b, results)
	if err := os.WriteFile(page, []byte(before+tableBegin+"\n"+b.String()+"\n"+tableEnd+after), 0o644); err != nil { //nolint:gosec // a page to read
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// writeOthers lists each spec that failed or was run twice, and the reasons for which others were skipped: skips
// has their names.
func writeOthers(b *strings.Builder, results []result) {
	cell := func(text string) string { return strings.ReplaceAll(firstLine(text), "|", "\\|") }
	others := lo.Filter(results, func(res result, _ int) bool {
		return res.outcome != skipped && (res.outcome != passed || res.message != "")
	})
	if len(others) > 0 {
		b.WriteString("\n| suite | spec | result |\n|---|---|---|\n")
	}
	for _, res := range others {
		path := strings.Join(append(slices.Clone(res.containers), res.leaf), " / ")
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", res.suite, cell(path), cell(res.outcome+": "+firstLine(res.reason())))
	}
	omitted := lo.Filter(results, func(res result, _ int) bool { return res.outcome == skipped })
	if len(omitted) > 0 {
		b.WriteString("\n| skipped | because it |\n|---|---|\n")
	}
	for _, group := range lo.PartitionBy(omitted, func(res result) string { return firstLine(res.reason()) }) {
		parts := lo.Uniq(lo.Map(group, func(res result, _ int) string {
			return "`" + res.suite + "/" + res.containers[0] + "`"
		}))
		fmt.Fprintf(b, "| %d of %s | %s |\n", len(group), strings.Join(parts, ", "), cell(group[0].reason()))
	}
}

// version is the version of a module that this program is built with.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}
