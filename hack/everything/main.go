// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everything runs the checks of this repository: all of them (make everything), or what fits into an hour (.ci/run).
// hack/everything/checks.yaml says how long each takes and when it runs; what workflows run is read from them.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: everything COMMAND [flags]
  run    every check, with a table at the end: --only, --from, --continue, --record
  list   their names, how long they take, and when they run
  page   writes the table into a page: page docs/contribute/testing.md
  ci     what .ci/run runs: --elapsed
  plan   which groups .ci/run would run: --hash, --left; changed files on the standard input, one on each line`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

// sources are what the commands read of the repository.
type sources struct {
	root      string
	table     Table
	workflows []string
	help      map[string]string
}

func read(root string) (sources, error) {
	s := sources{root: root}
	var err error
	if s.table, err = ReadTable(root); err != nil {
		return s, err
	}
	commands, err := Commands(root)
	if err != nil {
		return s, err
	}
	s.workflows = Targets(commands)
	s.help, err = Help(root)
	return s, err
}

func start(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	s, err := read(".")
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "run":
		return s.everything(ctx, flags, args[1:], out)
	case "list":
		_, err := io.WriteString(out, Markdown(s.table.Checks, s.help, s.workflows))
		return err
	case "page":
		return s.page(args[1:])
	case "ci":
		return s.ci(ctx, flags, args[1:], out)
	case "plan":
		return s.plan(ctx, flags, args[1:], in, out)
	}
	return errors.New(usage)
}

func (s sources) everything(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) error {
	only := flags.String("only", "", "run these checks only, separated by spaces")
	from := flags.String("from", "", "run this check and those after it")
	again := flags.Bool("continue", false, "run what has not passed in the last run, which may have been of other sources")
	record := flags.Bool("record", false, "write the times of what passed into "+tableFile)
	if err := flags.Parse(args); err != nil {
		return err
	}
	const folder = ".cache/everything"
	file := filepath.Join(s.root, folder, "state.json")
	earlier, err := ReadState(file)
	if err != nil {
		return err
	}
	checks := s.table.Everything(s.workflows)
	asked := Selection{Only: strings.Fields(*only), From: *from, Continue: *again}
	run, kept, err := Select(checks, earlier.Results, s.tree(ctx), asked)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d checks run; of %d an earlier result counts\n", len(run), len(checks), len(kept))
	state := State{Results: kept}
	runner := Runner{root: s.root, logs: folder, make: "make", prepare: Prepare}
	for _, check := range run {
		tree := s.tree(ctx) // before it, since sources may change meanwhile
		result := runner.Run(ctx, check, out)
		if ctx.Err() != nil {
			break // interrupted: it has no result
		}
		result.Tree = tree
		state.Results[check.Name] = result
		if err := state.Write(file); err != nil {
			return err
		}
	}
	var results []Result
	for _, check := range checks {
		if result, ok := state.Results[check.Name]; ok {
			results = append(results, result)
		}
	}
	WriteResults(out, results)
	if *record {
		if err := s.record(results); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: `make everything` goes on where it stopped")
	}
	if slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == failed }) {
		return errors.New("some checks failed: `make everything CONTINUE=true` runs those again")
	}
	return nil
}

func (s sources) record(results []Result) error {
	path := filepath.Join(s.root, tableFile)
	text, err := os.ReadFile(path) //nolint:gosec // a file of the repository
	if err == nil {
		err = os.WriteFile(path, []byte(Record(string(text), results)), 0o644) //nolint:gosec // a file of the repository
	}
	if err != nil {
		return fmt.Errorf("writing the times into %s: %w", tableFile, err)
	}
	return nil
}

func (s sources) page(args []string) error {
	if len(args) != 1 {
		return errors.New(usage)
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	page, err := WritePage(string(text), s.table.Checks, s.help, s.workflows)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], []byte(page), 0o644) //nolint:gosec // a page of the documentation
}

func (s sources) ci(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) error {
	before := flags.Int("elapsed", 0, "the seconds that have passed already")
	if err := flags.Parse(args); err != nil {
		return err
	}
	began := time.Now()
	runner := Runner{root: s.root, logs: ".cache/ci", make: "make", prepare: Prepare}
	ci := CI{run: runner.Run, out: out, elapsed: func() time.Duration { return time.Since(began) + time.Duration(*before)*time.Second }}
	changed := strings.Fields(s.git(ctx, "log", "-50", "--format=", "--name-only"))
	order := Order(s.table.InCI(Rotates), changed, s.git(ctx, "rev-parse", "HEAD"))
	if !ci.Report(ci.Run(ctx, s.table.InCI(Always), order)) {
		return errors.New("some checks failed: their logs are in .cache/ci")
	}
	return nil
}

func (s sources) plan(ctx context.Context, flags *flag.FlagSet, args []string, in io.Reader, out io.Writer) error {
	hash := flags.String("hash", strings.TrimSpace(s.git(ctx, "rev-parse", "HEAD")), "the hash of the commit")
	left := flags.Int("left", int((budget - 40*time.Minute).Seconds()), "the seconds that are left")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var changed []string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		changed = append(changed, lines.Text())
	}
	waiting := Fill(Order(s.table.InCI(Rotates), changed, *hash), func() int { return *left }, func(group Check) {
		*left -= group.Seconds
		fmt.Fprintf(out, "run   %-22s %4d s\n", group.Name, group.Seconds)
	})
	for _, group := range waiting {
		fmt.Fprintf(out, "wait  %-22s %4d s\n", group.Name, group.Seconds)
	}
	return nil
}

// tree identifies the sources: the commit, what differs from it, and files that are neither in it nor ignored.
func (s sources) tree(ctx context.Context) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, s.git(ctx, "diff", "HEAD")) // it never fails
	for _, name := range strings.Split(s.git(ctx, "ls-files", "-z", "--others", "--exclude-standard"), "\x00") {
		content, _ := os.ReadFile(filepath.Join(s.root, name)) //nolint:gosec // a file of the repository, or a folder, which has no content
		fmt.Fprintf(sum, "%q %x\n", name, sha256.Sum256(content))
	}
	return strings.TrimSpace(s.git(ctx, "rev-parse", "HEAD")) + "+" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// git returns what a command of git prints: nothing, outside of a repository.
func (s sources) git(ctx context.Context, args ...string) string {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // our own commands
	cmd.Dir = s.root
	output, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(output)
}
