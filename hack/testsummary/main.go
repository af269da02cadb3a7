// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testsummary reads the JSON reports of a run of all suites and prints the specs that failed or needed another attempt,
// and in one last line the counts: `N passed, N failed, N skipped`. It fails if anything failed, if a suite did not run, or if no
// spec ran at all.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	status := flag.Int("status", 0, "the exit status of the test runner: a failure of its own that no spec accounts for counts as one")
	failRetried := flag.Bool("fail-retried", false, "count a spec that passed only in a later attempt as a failure")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: testsummary [--status N] [--fail-retried] REPORT.json...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}

	summary := &Summary{}
	for _, report := range flag.Args() {
		summary.Add(Read(report))
	}
	summary.Account(*status)
	if *failRetried {
		summary.FailRetried()
	}
	if err := summary.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !summary.OK() {
		os.Exit(1)
	}
}
