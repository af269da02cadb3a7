// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// What became of a check.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// grace is what a check that is stopped has to end its processes.
const grace = 30 * time.Second

// Result is what became of a check.
type Result struct {
	Name string `json:"name"`
	// Outcome is passed, failed or skipped, Reason why it was skipped or stopped.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Seconds int    `json:"seconds"`
	// Log is the file with its output, below the root of the repository.
	Log string `json:"log"`
	// Tree identifies the sources that it is of: those before the check, which may change them.
	Tree string `json:"tree,omitempty"`
	// last is the end of the log of one that failed.
	last string
}

// lastLines is how many lines of the log of a check that failed are shown beside the results: enough for the bounds of `make bench`.
const lastLines = 40

// String is the result in the words of the table.
func (r Result) String() string {
	if r.Reason == "" {
		return r.Outcome
	}
	return r.Outcome + ": " + r.Reason
}

// Runner runs checks of the repository in root and keeps their output below logs.
type Runner struct {
	root, logs string
	// make is the command; prepare makes a machine fit for a need, or returns why it cannot.
	make    string
	prepare func(ctx context.Context, need string) (lacking string)
}

// A target that cannot do its work on a machine ends well, and says so in a line of its own.
var skippedLine = regexp.MustCompile(`(?m)^--- [a-z0-9-]+: skipped: (.+?)\s*$`)

// Run runs a check until it ends or the context does, which stops all of its processes. Its output goes to its log and to out.
func (r Runner) Run(ctx context.Context, check Check, out io.Writer) Result {
	start := time.Now()
	result := Result{Name: check.Name, Outcome: failed, Log: filepath.Join(r.logs, check.Name+".log")}
	fmt.Fprintf(out, "\n===> make %s\n", strings.Join(check.Arguments(), " "))
	err := r.run(ctx, check, filepath.Join(r.root, result.Log), out)
	result.Seconds = int(time.Since(start).Round(time.Second).Seconds())
	output, readErr := os.ReadFile(filepath.Join(r.root, result.Log))
	reasons := skippedLine.FindAllSubmatch(output, -1)
	err = errors.Join(err, readErr)
	switch {
	case ctx.Err() != nil:
		result.Reason = fmt.Sprintf("stopped after %d s: %v", result.Seconds, context.Cause(ctx))
	case err != nil:
		fmt.Fprintln(out, err)
	case len(reasons) > 0:
		result.Outcome, result.Reason = skipped, string(reasons[len(reasons)-1][1])
	default:
		result.Outcome = passed
	}
	if result.Outcome == failed {
		lines := strings.Split(strings.TrimRight(string(output), "\n"), "\n")
		result.last = strings.Join(lines[max(0, len(lines)-lastLines):], "\n")
	}
	fmt.Fprintf(out, "===> make %s: %s (%d s)\n", check.Name, strings.Replace(result.String(), failed, "FAILED", 1), result.Seconds)
	return result
}

func (r Runner) run(ctx context.Context, check Check, path string, out io.Writer) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // logs are for everyone
		return fmt.Errorf("making the folder of the log: %w", err)
	}
	file, err := os.Create(path) //nolint:gosec // below .cache
	if err != nil {
		return fmt.Errorf("creating the log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out = io.MultiWriter(file, out)
	for _, need := range check.Needs {
		if lacking := r.prepare(ctx, need); lacking != "" {
			fmt.Fprintf(out, "--- %s: skipped: %s\n", check.Name, lacking)
			return nil
		}
	}
	cmd := exec.CommandContext(ctx, r.make, check.Arguments()...) //nolint:gosec // the checks of the repository's table
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, out, out
	// A process group of its own: what make has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	err = cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what has ignored the signal
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", strings.Join(check.Arguments(), " "), err)
	}
	return nil
}

// packages are those of Debian with the commands that a check may need.
var packages = map[string]string{"npm": "npm", "buildah": "buildah", "chromium": "chromium"}

// Prepare installs what a machine lacks, where it may, and returns why it cannot. A need is root, mounts, an address that must answer, or
// a command.
func Prepare(ctx context.Context, need string) (lacking string) {
	switch {
	case need == "root":
		if os.Geteuid() != 0 {
			return "not root"
		}
		return ""
	case strings.HasPrefix(need, "https://"):
		return unreachable(ctx, need)
	case need == "chromium" && (os.Getenv("CHROMIUM") != "" || exists("google-chrome")):
		return ""
	case exists(need):
		return ""
	case packages[need] == "" || os.Geteuid() != 0 || !exists("apt-get"):
		return fmt.Sprintf("there is no %s, and no root with apt-get to install it", need)
	}
	install := fmt.Sprintf("apt-get update -qq && apt-get install -qq -y --no-install-recommends %s", packages[need])
	cmd := exec.CommandContext(ctx, "sh", "-c", install) //nolint:gosec // a package of the map above
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Sprintf("apt-get could not install %s: %v: %s", need, err, lines[len(lines)-1])
	}
	return ""
}

func exists(command string) bool {
	_, err := exec.LookPath(command)
	return err == nil
}

// unreachable returns why an address does not answer. Any answer but one of a gateway on the way will do.
func unreachable(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, http.NoBody)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Sprintf("%s does not answer: %v", address, errors.Unwrap(err)) // without the address once more
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusNotFound {
		return fmt.Sprintf("%s answers %s", address, response.Status)
	}
	return ""
}
