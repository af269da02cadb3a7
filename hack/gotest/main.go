// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gotest runs `go test` in the module of the controller and in that of the plugin:
// gotest [flag...] [package...] [-ginkgo.flag...]. It prints a line for each package, the whole output of one that
// fails, and the sum of what Ginkgo reports, alone on the last line.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	module = "github.com/bizflycloud/karpenter-provider-bizflycloud"
	plugin = "cmd/kubectl-bizfly"
	// repositoryVariable is that of test/support/suite, whose dependencies this command does not need.
	repositoryVariable = "REPOSITORY_FILES"
)

// The longest suites begin first, since a processor that waits for the last one is lost.
var longest = map[string][]string{
	".": {
		"./test/simulation", "./test/component/edits", "./internal/cloudprovider", "./test/component/scheduling",
		"./internal/operator",
	},
	plugin: {"./internal/cli"},
}

// These need processes of ours or a real account: make e2e, make realcloud and make bench run them.
var elsewhere = regexp.MustCompile(`/test/(e2e/(faults|image|install|lifecycle|nodes)|measure/bench|realcloud)$`)

func main() {
	var flags, more []string
	packages := map[string][]string{}
	for _, arg := range os.Args[1:] {
		path := "./" + strings.TrimPrefix(arg, "./")
		switch inside, ok := strings.CutPrefix(path, "./"+plugin); {
		case strings.HasPrefix(arg, "-ginkgo."):
			more = append(more, arg)
		case strings.HasPrefix(arg, "-"):
			flags = append(flags, arg)
		case ok:
			packages[plugin] = append(packages[plugin], "."+inside)
		default:
			packages["."] = append(packages["."], path)
		}
	}
	s := &summary{out: os.Stdout, whole: len(more) > 0, isSuite: isSuite}
	for _, dir := range []string{".", plugin} {
		run := packages[dir]
		if len(packages) == 0 {
			run = append(longest[dir], everything(dir)...)
		}
		if len(run) == 0 {
			continue
		}
		args := append(append([]string{"test", "-json"}, flags...), append(run, more...)...)
		cmd := exec.Command("go", args...) //nolint:gosec,noctx // the arguments of the caller; Ctrl-C ends both
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		cmd.Env = append(os.Environ(), repositoryVariable+"="+repository("charts", "config", "docs", "hack", "test/measure"))
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			err = s.read(out)
			err = cmp.Or(cmd.Wait(), err)
		}
		s.account(err)
	}
	if !s.close() {
		os.Exit(1)
	}
}

// everything lists the packages of a module that `make test` runs.
func everything(dir string) (packages []string) {
	cmd := exec.Command("go", "list", "./...") //nolint:noctx // seconds
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return []string{"./..."} // go test says why
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !elsewhere.MatchString(name) {
			packages = append(packages, name)
		}
	}
	return packages
}

// repository changes with the files of folders: with their names, sizes and times, as what go test itself sees.
func repository(folders ...string) string {
	sum := sha256.New()
	for _, folder := range folders {
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if info, err := entry.Info(); err == nil && !entry.IsDir() {
				fmt.Fprintln(sum, path, info.Size(), info.ModTime().UnixNano())
			}
			return nil
		})
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// isSuite reports whether Ginkgo runs the tests of a package of ours.
func isSuite(name string) bool {
	files, _ := filepath.Glob(filepath.Join(".", strings.TrimPrefix(name, module), "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file) //nolint:gosec // a file of ours
		return err == nil && bytes.Contains(text, []byte(`"github.com/onsi/ginkgo/v2"`))
	})
}

// event is one of `go test -json` (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type summary struct {
	out                     io.Writer
	whole                   bool
	isSuite                 func(name string) bool
	passed, failed, skipped int
}

var (
	colors = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// counts is the last line of what Ginkgo reports of a suite.
	counts = regexp.MustCompile(`(?m)^(?:SUCCESS|FAIL)! -- (\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped`)
)

// read sums up the events of a run.
func (s *summary) read(events io.Reader) error {
	output, ran := map[string]*bytes.Buffer{}, map[string]bool{}
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading what go test prints: %w", err)
		}
		name := cmp.Or(e.Package, e.ImportPath)
		if output[name] == nil {
			output[name] = &bytes.Buffer{}
		}
		switch {
		case e.Action == "output":
			output[name].WriteString(e.Output)
		case e.Action == "build-output":
			fmt.Fprint(s.out, e.Output)
		case e.Test != "":
			ran[name] = ran[name] || e.Action == "pass" || e.Action == "fail"
		case e.Action == "pass" || e.Action == "fail":
			s.end(e, colors.ReplaceAllString(output[name].String(), ""), ran[name])
			delete(output, name)
		}
	}
}

// end counts a package whose tests have ended.
func (s *summary) end(e event, output string, ran bool) {
	var passed, failed, skipped int
	match := counts.FindStringSubmatch(output)
	if match != nil {
		number := func(i int) int { n, _ := strconv.Atoi(match[i]); return n }
		passed, failed, skipped = number(1), number(2), number(3)+number(4)
	}
	// Without a function that runs the specs, or with one that returns before, go test passes the package.
	if e.Action == "pass" && ran && passed+skipped == 0 && s.isSuite(e.Package) {
		e.Action = "fail"
		output += "this package has a suite of Ginkgo and has run no specs\n"
	}
	if e.Action == "fail" {
		// No spec accounts for a set-up that fails, a focused spec, a panic or an error of the compiler.
		failed = max(failed, 1)
	}
	s.passed, s.failed, s.skipped = s.passed+passed, s.failed+failed, s.skipped+skipped
	if e.Action == "fail" || s.whole {
		fmt.Fprint(s.out, output)
	}
	took := fmt.Sprintf("%6.1f s", e.Elapsed)
	if strings.Contains(output, "\t(cached)") {
		took = "  cached"
	}
	result := strings.Replace(e.Action, "fail", "FAIL", 1)
	fmt.Fprintf(s.out, "%s %s %5d specs  .%s\n", result, took, passed+failed, strings.TrimPrefix(e.Package, module))
}

// account counts a failure of go itself that no package accounts for.
func (s *summary) account(err error) {
	if err != nil && s.failed == 0 {
		fmt.Fprintf(s.out, "FAIL go test: %v\n", err)
		s.failed++
	}
}

// close prints the sums, and reports whether specs ran and none failed.
func (s *summary) close() bool {
	if s.passed+s.failed == 0 {
		fmt.Fprintln(s.out, "FAIL no spec ran")
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.passed > 0 && s.failed == 0
}
