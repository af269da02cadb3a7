// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scale measures this provider against core's kwok provider, whose cloud costs nothing: the same scenarios with the same
// core, on one real control plane per run, with the two alternating. Results of several calls merge into one file, from which
// docs/contribute/benchmarks.md is written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The scenarios: what is done with a cluster after it has come up.
const (
	scenarioUp            = "up"
	scenarioPacked        = "packed"
	scenarioDrift         = "drift"
	scenarioConsolidation = "consolidation"
	scenarioRestart       = "restart"
)

type flags struct {
	nodes, providers, scenarios             []string
	rounds                                  int
	driftNodes, consolidateNodes, restarted int
	rest, timeout                           time.Duration
	results, page                           string
	report                                  bool
}

func parse(args []string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("scale", flag.ContinueOnError)
	list := func(target *[]string, name, value, usage string) {
		*target = strings.Split(value, ",")
		set.Func(name, fmt.Sprintf("%s (default %s)", usage, value), func(text string) error {
			*target = strings.Split(text, ",")
			return nil
		})
	}
	list(&f.nodes, "nodes", "10,100,500", "the sizes to measure")
	list(&f.providers, "providers", strings.Join(providerNames(), ","), "what to measure")
	list(&f.scenarios, "scenarios", strings.Join([]string{scenarioUp, scenarioPacked, scenarioDrift, scenarioConsolidation, scenarioRestart}, ","),
		"the scenarios to measure")
	set.IntVar(&f.rounds, "rounds", 3, "how often each is measured; the median counts")
	set.IntVar(&f.driftNodes, "drift-nodes", 100, "how many nodes drift, at most the largest of --nodes")
	set.IntVar(&f.consolidateNodes, "consolidation-nodes", 200, "how many nodes are consolidated, at most the largest of --nodes")
	set.IntVar(&f.restarted, "restart-nodes", 500, "how many nodes there are when the controller restarts, at most the largest of --nodes")
	set.DurationVar(&f.rest, "rest", 10*time.Minute, "how long a cluster that has nothing to do is measured; 0 is not at all")
	set.DurationVar(&f.timeout, "timeout", 40*time.Minute, "how long one phase may take")
	set.StringVar(&f.results, "results", "test/measure/scale/results.json", "the file that results are merged into")
	set.StringVar(&f.page, "page", "docs/contribute/benchmarks.md", "the page whose results are written from it")
	set.BoolVar(&f.report, "report", false, "write the results into the page from the file and measure nothing")
	return f, set.Parse(args)
}

// plan returns the scenarios with their sizes.
func (f *flags) plan() ([]scenario, error) {
	var sizes []int
	for _, text := range f.nodes {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return nil, fmt.Errorf("--nodes: %q is not a number of nodes", text)
		}
		sizes = append(sizes, size)
	}
	for _, name := range f.providers {
		if _, ok := providers[name]; !ok {
			return nil, fmt.Errorf("--providers: %q is none of %q", name, providerNames())
		}
	}
	largest := slices.Max(sizes)
	var all []scenario
	for _, name := range f.scenarios {
		switch name {
		case scenarioUp, scenarioPacked:
			for _, size := range sizes {
				all = append(all, scenario{name: name, nodes: size})
			}
		case scenarioDrift:
			all = append(all, scenario{name: name, nodes: min(f.driftNodes, largest)})
		case scenarioConsolidation:
			all = append(all, scenario{name: name, nodes: min(f.consolidateNodes, largest)})
		case scenarioRestart:
			all = append(all, scenario{name: name, nodes: min(f.restarted, largest)})
		default:
			return nil, fmt.Errorf("--scenarios: there is no %q", name)
		}
	}
	return all, nil
}

func main() {
	f, err := parse(os.Args[1:])
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		os.Exit(2)
	}
	log.SetLogger(klog.Logger{})
	lo.Must0(apiextensionsv1.AddToScheme(scheme.Scheme))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = f.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

// run measures, and saves after each run, so that an interrupted measurement loses one.
func (f *flags) run(ctx context.Context) error {
	scenarios, err := f.plan()
	if err != nil {
		return err
	}
	results, err := load(f.results)
	if err != nil {
		return err
	}
	for round := 1; round <= f.rounds && !f.report; round++ {
		// The order alternates, so that a machine that becomes slower or faster favors nobody.
		order := slices.Clone(f.providers)
		if round%2 == 0 {
			slices.Reverse(order)
		}
		for _, s := range scenarios {
			for _, name := range order {
				fmt.Printf("round %d of %d: %s of %d nodes, %s\n", round, f.rounds, s.name, s.nodes, name)
				measured, err := f.measure(ctx, s, name, round)
				if err != nil {
					return fmt.Errorf("%s of %d nodes, %s: %w", s.name, s.nodes, name, err)
				}
				results = merge(results, measured)
				if err := save(f.results, results); err != nil {
					return err
				}
			}
		}
	}
	former, err := os.ReadFile(f.page)
	if err != nil {
		return fmt.Errorf("reading the page of the results: %w", err)
	}
	written, err := page(string(former), results)
	if err != nil {
		return fmt.Errorf("%s: %w", f.page, err)
	}
	return os.WriteFile(f.page, []byte(written), 0o600)
}
