// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteResults prints how the logs of failed checks end, a table of results, and how many of each kind there are. Of a long output often only
// the end is kept.
func WriteResults(out io.Writer, results []Result) {
	for _, result := range results {
		if result.last != "" {
			fmt.Fprintf(out, "\n===> the end of %s:\n%s\n", result.Log, result.last)
		}
	}
	count := map[string]int{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ncheck\tseconds\tlog\tresult")
	for _, result := range results {
		count[result.Outcome]++
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", result.Name, result.Seconds, result.Log, strings.Replace(result.String(), failed, "FAILED", 1))
	}
	_ = table.Flush() // to the terminal
	fmt.Fprintf(out, "\nchecks: %d passed, %d failed, %d skipped\n", count[passed], count[failed], count[skipped])
}

// The table of the page stands between these.
const begin, end = "<!-- checks: written by make generate -->\n", "<!-- end of checks -->\n"

// WritePage returns a page with the table of checks in the place that it has for it.
func WritePage(page string, checks []Check, help map[string]string, workflows []string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the page has no place for the table: %q, then %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + Markdown(checks, help, workflows) + "\n" + end + after, nil
}

// Markdown is the table of checks in a page.
func Markdown(checks []Check, help map[string]string, workflows []string) string {
	run := map[string]bool{}
	for _, target := range workflows {
		run[target] = true
	}
	var text strings.Builder
	text.WriteString("| check | time | CI |\n| --- | --- | --- |\n")
	for _, check := range checks {
		var in []string
		if run[check.Name] {
			in = append(in, "workflow")
		}
		if check.CI != "" {
			in = append(in, check.CI)
		}
		if _, reason, ok := strings.Cut(help[check.Target()], notInCI); ok && len(in) == 0 {
			in = append(in, notInCI+strings.TrimRight(reason, ")"))
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", command(check), Duration(check.Seconds), strings.Join(in, "; "))
	}
	return text.String()
}

// command is what one types, after the name where that says more.
func command(check Check) string {
	words := []string{"make"}
	for _, argument := range check.Arguments() {
		if variable, value, ok := strings.Cut(argument, "="); ok && strings.Contains(value, " ") {
			argument = variable + "='" + value + "'"
		}
		if !strings.HasPrefix(argument, "-") {
			words = append(words, argument)
		}
	}
	// A bar would end the cell.
	text := "`" + strings.ReplaceAll(strings.Join(words, " "), "|", `\|`) + "`"
	if check.Target() != check.Name {
		text = "`" + check.Name + "`: " + text
	}
	return text
}

// Duration is a time in the unit that one thinks of it in.
func Duration(seconds int) string {
	switch {
	case seconds <= 0:
		return "not measured"
	case seconds < 90:
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d min", (seconds+30)/60)
}

// Record returns the text of the table's file with the seconds of the checks that have passed.
func Record(text string, results []Result) string {
	for _, result := range results {
		if result.Outcome == passed {
			row := regexp.MustCompile(`(?m)^(\s*- \{name: ` + regexp.QuoteMeta(result.Name) + `, seconds: )\d+`)
			text = row.ReplaceAllString(text, "${1}"+strconv.Itoa(max(1, result.Seconds)))
		}
	}
	return text
}
