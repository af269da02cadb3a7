// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// Summary counts the specs of all suites of a run.
type Summary struct {
	// Passed, Failed and Skipped are numbers of specs. A suite that failed without a failed spec (it did not compile,
	// its set-up failed) counts as one failure, so that the line never looks better than the run was.
	Passed, Failed, Skipped int
	// Problems names each failure, one line each.
	Problems []string
	// Retried names each spec that passed only in a later attempt. It counts as passed, unless FailRetried is called.
	Retried []string
}

// Read summarises the report in a file. A report that cannot be read is a failure: the runner did not get so far as to
// write one.
func Read(path string) *Summary {
	content, err := os.ReadFile(path) //nolint:gosec // the report that the caller names
	if err != nil {
		return broken(err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return broken(fmt.Errorf("reading %s: %w", path, err))
	}
	return Summarize(reports)
}

// Summarize counts the specs of the suites' reports.
func Summarize(reports []types.Report) *Summary {
	s := &Summary{}
	for i := range reports {
		s.addSuite(&reports[i])
	}
	return s
}

// Add counts what another part of the run has counted.
func (s *Summary) Add(part *Summary) {
	s.Passed += part.Passed
	s.Failed += part.Failed
	s.Skipped += part.Skipped
	s.Problems = append(s.Problems, part.Problems...)
	s.Retried = append(s.Retried, part.Retried...)
}

// FailRetried counts each spec that needed another attempt as a failure.
func (s *Summary) FailRetried() {
	for _, name := range s.Retried {
		s.Passed--
		s.fail("%s: passed only in a later attempt", name)
	}
	s.Retried = nil
}

// Account reconciles the counts with the exit status of the runner: it also fails for reasons that no report shows, as
// a focused spec that was checked in, or a plain Go test.
func (s *Summary) Account(status int) {
	if status != 0 && s.Failed == 0 {
		s.fail("the test runner failed with status %d without a failed spec: see its output", status)
	}
}

// OK is true if specs ran and nothing failed.
func (s *Summary) OK() bool {
	return s.Failed == 0 && s.Passed > 0
}

// Write prints the failures, the specs that needed another attempt and then, alone on the last line, the counts.
func (s *Summary) Write(w io.Writer) error {
	var out strings.Builder
	for _, problem := range s.Problems {
		fmt.Fprintf(&out, "FAILED %s\n", problem)
	}
	for _, name := range s.Retried {
		fmt.Fprintf(&out, "RETRIED %s\n", name)
	}
	if s.Passed == 0 && s.Failed == 0 {
		out.WriteString("FAILED no spec ran\n")
	}
	fmt.Fprintf(&out, "%d passed, %d failed, %d skipped\n", s.Passed, s.Failed, s.Skipped)
	_, err := io.WriteString(w, out.String())
	return err
}

func (s *Summary) addSuite(report *types.Report) {
	before := s.Failed
	for i := range report.SpecReports {
		s.addSpec(report.SuitePath, &report.SpecReports[i])
	}
	if report.SuiteHasProgrammaticFocus {
		s.fail("%s: a spec is focused, so the others did not run", report.SuitePath)
	}
	if report.SuiteSucceeded || s.Failed > before {
		return
	}
	reason := strings.Join(report.SpecialSuiteFailureReasons, "; ")
	if reason == "" {
		reason = "the suite failed without a failed spec"
	}
	s.fail("%s: %s", report.SuitePath, firstLines(reason))
}

func (s *Summary) addSpec(suite string, spec *types.SpecReport) {
	isSpec := spec.LeafNodeType == types.NodeTypeIt
	switch {
	case spec.State.Is(types.SpecStateFailureStates):
		// Set-up and tear-down of a suite count only when they fail.
		name := spec.FullText()
		if name == "" {
			name = spec.LeafNodeType.String()
		}
		s.fail("%s: %s (%s)", suite, name, spec.State)
	case !isSpec:
	case spec.State.Is(types.SpecStatePassed):
		s.Passed++
		if spec.NumAttempts > 1 {
			s.Retried = append(s.Retried, fmt.Sprintf("%s: %s (%d attempts)", suite, spec.FullText(), spec.NumAttempts))
		}
	default: // skipped or pending
		s.Skipped++
	}
}

func (s *Summary) fail(format string, args ...any) {
	s.Failed++
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

func broken(err error) *Summary {
	s := &Summary{}
	s.fail("no report of the test run: %v", err)
	return s
}

// firstLines shortens the message of a compiler: the runner's output has all of it.
func firstLines(text string) string {
	const most = 5
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(lines) > most {
		lines = append(lines[:most], "...")
	}
	return strings.Join(lines, "\n    ")
}
