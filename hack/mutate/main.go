// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutate changes one thing at a time in the packages where a wrong branch costs servers, and requires that a spec of the package
// fails. It compiles all mutants of a package into one test binary, so that a run of one costs neither compiler nor linker, and runs only
// the specs that reach it. hack/mutate/mutants.yaml lists the packages, and with its reason each mutant that lives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

// config is what the flags say.
type config struct {
	file, cache, only string
	parallel, sample  int
	seed              uint64
	atLeast           float64
	check             bool
}

func main() {
	var c config
	flag.StringVar(&c.file, "targets", "hack/mutate/mutants.yaml", "the packages, and the mutants that may live")
	flag.StringVar(&c.cache, "cache", ".cache/mutation", "where test binaries and results are kept: an interrupted run goes on where it stopped")
	flag.StringVar(&c.only, "only", "", "only packages whose path contains this")
	flag.IntVar(&c.parallel, "parallel", 2, "how many mutants run at the same time")
	flag.IntVar(&c.sample, "sample", 0, "try this many mutants of each package, chosen by the seed; 0 means all")
	flag.Uint64Var(&c.seed, "seed", 1, "chooses the sample")
	flag.Float64Var(&c.atLeast, "at-least", 85, "the percentage of the mutants of each package that must be killed")
	flag.BoolVar(&c.check, "check", false, "only check that the code still has each listed mutant, which takes seconds")
	flag.Parse()
	log.SetLogger(logr.Discard()) // envtest logs its steps
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.start(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

// start tries the mutants of every target.
func (c config) start(ctx context.Context, out io.Writer) error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("reading the targets: %w", err)
	}
	var targets []Target
	if err := yaml.UnmarshalStrict(text, &targets); err != nil {
		return fmt.Errorf("reading %s: %w", c.file, err)
	}
	targets = lo.Filter(targets, func(t Target, _ int) bool { return strings.Contains(t.Package, c.only) })
	if c.check {
		return c.checkAll(ctx, targets, out)
	}
	var table strings.Builder
	good := true
	for _, target := range targets {
		row, ok, err := c.target(ctx, target, out)
		if err != nil {
			return err
		}
		table.WriteString(row)
		good = good && ok
	}
	fmt.Fprintf(out, "\n%-48s %7s %7s %7s %9s\n%s", "package", "mutants", "killed", "percent", "time", table.String())
	if !good {
		return fmt.Errorf("write a spec that fails with each mutant above, or list it with its reason in %s", c.file)
	}
	return nil
}

// checkAll runs no spec: it looks for the listed mutants in the code.
func (c config) checkAll(ctx context.Context, targets []Target, out io.Writer) error {
	good := true
	for _, target := range targets {
		pkg, exports, err := target.list(ctx)
		if err != nil {
			return err
		}
		_, mutants, err := target.instrument(pkg, exports)
		if err != nil {
			return err
		}
		good = c.existing(target, mutants, out) && good
	}
	if !good {
		return fmt.Errorf("correct the names in %s, or remove them", c.file)
	}
	return nil
}

// target tries the mutants of one package and returns its row of the table.
func (c config) target(ctx context.Context, target Target, out io.Writer) (row string, ok bool, err error) {
	began := time.Now()
	folder, err := filepath.Abs(filepath.Join(c.cache, strings.ReplaceAll(target.Package, "/", "-")))
	if err != nil {
		return "", false, fmt.Errorf("finding the cache: %w", err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", false, fmt.Errorf("creating the cache: %w", err)
	}
	binary := filepath.Join(folder, "mutants.test")
	mutants, hash, err := target.build(ctx, folder, binary)
	if err != nil {
		return "", false, err
	}
	r := &runner{target: target, binary: binary, results: readResults(filepath.Join(folder, "results.json"), hash)}
	if err := r.baseline(ctx); err != nil {
		return "", false, err
	}
	chosen := c.choose(mutants)
	fmt.Fprintf(out, "%s: %d mutants\n", target.Package, len(chosen))
	if err := c.tryAll(ctx, r, mutants, chosen); err != nil {
		return "", false, err
	}
	ok, dead := c.judge(target, mutants, chosen, r.results.Outcomes, out)
	percent := 100 * float64(dead) / float64(max(1, len(chosen)))
	if percent < c.atLeast && c.sample == 0 {
		fmt.Fprintf(out, "  %.1f %% of the mutants are killed, at least %.0f %% must be\n", percent, c.atLeast)
		ok = false
	}
	return fmt.Sprintf("%-48s %7d %7d %7.1f %9s\n", target.Package, len(chosen), dead, percent, time.Since(began).Round(time.Second)), ok, nil
}

// choose returns the numbers of the mutants to try.
func (c config) choose(mutants []Mutant) (chosen []int) {
	for i, mutant := range mutants {
		if mutant.Name != "" {
			chosen = append(chosen, i+1)
		}
	}
	if c.sample > 0 && c.sample < len(chosen) {
		random := rand.New(rand.NewPCG(c.seed, 0)) //nolint:gosec // a choice that can be repeated
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:c.sample]
		slices.Sort(chosen)
	}
	return chosen
}

// tryAll tries mutants in parallel, those without a result.
func (c config) tryAll(ctx context.Context, r *runner, mutants []Mutant, chosen []int) error {
	left := lo.Reject(chosen, func(id, _ int) bool { return r.results.Outcomes[mutants[id-1].Name] != "" })
	work := make(chan int)
	errs := make([]error, c.parallel)
	var group sync.WaitGroup
	for i := range c.parallel {
		group.Go(func() {
			server := &apiServer{}
			defer server.stop()
			for id := range work {
				if errs[i] != nil || ctx.Err() != nil {
					continue
				}
				outcome, err := r.try(ctx, id, server)
				if err == nil && ctx.Err() == nil {
					err = r.results.set(mutants[id-1].Name, outcome)
				}
				errs[i] = err
			}
		})
	}
	for _, id := range left {
		work <- id
	}
	close(work)
	group.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// judge prints the survivors that are not listed, what is listed and does not exist, and what is listed and was killed: that may have been
// luck, so that it fails nothing.
func (c config) judge(target Target, mutants []Mutant, chosen []int, outcomes map[string]string, out io.Writer) (ok bool, dead int) {
	listed := map[string]bool{}
	for _, survivor := range target.Survivors {
		listed[survivor.Mutant] = true
	}
	ok = c.existing(target, mutants, out)
	for _, id := range chosen {
		mutant := mutants[id-1]
		outcome := outcomes[mutant.Name]
		switch {
		case strings.HasPrefix(outcome, killed):
			dead++
			if listed[mutant.Name] {
				fmt.Fprintf(out, "  listed in %s, and killed now: %s\n", c.file, mutant.Name)
			}
		case !listed[mutant.Name]:
			ok = false
			fmt.Fprintf(out, "  %s: %s\n    %s\n", mutant.Position, outcome, mutant.Name)
		}
	}
	return ok, dead
}

// existing reports whether the code has each listed mutant, and prints those that it has not.
func (c config) existing(target Target, mutants []Mutant, out io.Writer) (ok bool) {
	exists := map[string]bool{}
	for _, mutant := range mutants {
		exists[mutant.Name] = true
	}
	ok = true
	for _, survivor := range target.Survivors {
		if !exists[survivor.Mutant] || strings.TrimSpace(survivor.Reason) == "" {
			ok = false
			fmt.Fprintf(out, "  listed in %s, but there is no such mutant or no reason: %s\n", c.file, survivor.Mutant)
		}
	}
	return ok
}
