// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchcheck runs test binaries' benchmarks in rounds and holds ratios of what they measure to their bounds. Each
// round runs every benchmark once, so that both sides of a ratio meet the same machine; what counts is the median of the
// rounds. It fails when a ratio is beyond its bound, or when a bound has nothing to measure.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often every benchmark runs")
	pattern := flag.String("bench", ".", "only benchmarks that match, and only bounds for which they suffice")
	budget := flag.String("benchtime", "100ms", "how long a benchmark runs in each round")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: benchcheck [--rounds N] [--bench REGEXP] [--benchtime TIME] TEST_BINARY...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	all := results{}
	for round := range *rounds {
		fmt.Printf("round %d of %d\n", round+1, *rounds)
		for _, binary := range flag.Args() {
			if err := all.run(ctx, binary, *pattern, *budget); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	all.print(os.Stdout)
	if !check(os.Stdout, all, bounds, *pattern != ".") {
		os.Exit(1)
	}
}
