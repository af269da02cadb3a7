// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// What becomes of a mutant.
const (
	killed    = "killed"
	survived  = "survived"
	unreached = "survived: no spec reaches it"
)

// specRun is what one spec reaches.
type specRun struct {
	Spec    string  `json:"spec"`
	Seconds float64 `json:"seconds"`
	Reached []int   `json:"reached"`
}

// results are those of one test binary, kept in a file, so that an interrupted run goes on where it stopped.
type results struct {
	Binary   string            `json:"binary"`
	Setup    float64           `json:"setup"`
	Specs    []specRun         `json:"specs"`
	Outcomes map[string]string `json:"outcomes"`

	mu   sync.Mutex
	file string
}

// readResults returns what is known of a binary: nothing, where the file is that of another one.
func readResults(file, binary string) *results {
	known := &results{}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, known) != nil || known.Binary != binary { //nolint:gosec // our cache
		known = &results{Binary: binary}
	}
	if known.Outcomes == nil {
		known.Outcomes = map[string]string{}
	}
	known.file = file
	return known
}

// set remembers an outcome.
func (r *results) set(mutant, outcome string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mutant != "" {
		r.Outcomes[mutant] = outcome
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(r.file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping the results: %w", err)
	}
	return nil
}

// runner runs the specs of one test binary.
type runner struct {
	target  Target
	binary  string
	results *results
}

// baseline runs all specs without a mutant, and learns what each of them reaches.
func (r *runner) baseline(ctx context.Context) error {
	if len(r.results.Specs) > 0 {
		return nil
	}
	file := r.binary + ".reached"
	_ = os.Remove(file)
	began := time.Now()
	output, ok, err := r.run(ctx, 20*time.Minute, []string{"MUTANTS_REACHED=" + file}, nil)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the specs of %s fail without a mutant:\n%s", r.target.Package, output)
	}
	text, err := os.ReadFile(file) //nolint:gosec // what the specs have written
	if err != nil {
		return fmt.Errorf("reading what the specs reach: %w", err)
	}
	r.results.Setup = time.Since(began).Seconds()
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var spec specRun
		if err := decoder.Decode(&spec); err != nil {
			return fmt.Errorf("reading what the specs reach: %w", err)
		}
		r.results.Specs = append(r.results.Specs, spec)
		r.results.Setup -= spec.Seconds
	}
	return r.results.set("", "")
}

// try runs the specs that reach a mutant, with it. What an earlier mutant may have left on the API server kills none.
func (r *runner) try(ctx context.Context, id int, server *apiServer) (string, error) {
	var focus []string
	seconds, everywhere, total := 0.0, false, 0.0
	for _, spec := range r.results.Specs {
		total += spec.Seconds
		for _, reached := range spec.Reached {
			if reached == id {
				everywhere = everywhere || spec.Spec == ""
				seconds += spec.Seconds
				focus = append(focus, "-ginkgo.focus="+regexp.QuoteMeta(spec.Spec)+"$")
			}
		}
	}
	switch {
	case len(focus) == 0:
		return unreached, nil
	case everywhere:
		// What is reached before the first spec concerns all of them.
		focus, seconds = nil, total
	}
	limit := time.Duration((max(r.results.Setup, 0)*3+seconds*3+15)*1e9) * time.Nanosecond
	for {
		variables, fresh := []string(nil), true
		if r.target.APIServer {
			var err error
			if variables, fresh, err = server.variables(); err != nil {
				return "", err
			}
		}
		output, ok, err := r.run(ctx, limit, append(variables, "MUTANT="+strconv.Itoa(id)), focus)
		switch {
		case err != nil:
			return "", err
		case ok:
			return survived, nil
		case leftClean(output):
			return killed, nil
		}
		server.stop()
		if fresh {
			return killed, nil
		}
	}
}

// run runs specs until the first one fails, and reports whether all passed. Ginkgo ends them at the limit, so that what they have started ends,
// too. Where a mutant keeps it from that, all of its processes are killed.
func (r *runner) run(ctx context.Context, limit time.Duration, variables, focus []string) (output string, ok bool, err error) {
	temporary, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", false, fmt.Errorf("running the specs: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	defer killAll("TMPDIR=" + temporary)
	args := append([]string{"-test.run=^Test", "-ginkgo.fail-fast", "-ginkgo.succinct", "-ginkgo.no-color",
		"-ginkgo.grace-period=3s", "-ginkgo.timeout=" + limit.String()}, focus...)
	if r.target.Skip != "" {
		args = append(args, "-ginkgo.skip="+r.target.Skip)
	}
	ctx, cancel := context.WithTimeout(ctx, limit+20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, args...) //nolint:gosec // the test binary that was built
	cmd.Dir, cmd.Env = r.target.Package, append(append(os.Environ(), "TMPDIR="+temporary), variables...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if parent := context.Cause(ctx); parent != nil && err != nil {
		// The caller's context is looked at by the caller.
		return string(text), false, nil
	}
	if _, exited := err.(*exec.ExitError); err != nil && !exited { //nolint:errorlint // Wait returns exactly this
		return "", false, fmt.Errorf("running the specs: %w", err)
	}
	return string(text), err == nil, nil
}

// killAll kills the processes that have this variable: an API server whose test binary has crashed. Elsewhere than on Linux it finds none.
func killAll(variable string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the kernel's
		if err != nil || !bytes.Contains(text, []byte(variable+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
