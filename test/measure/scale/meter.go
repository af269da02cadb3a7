// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// sampleInterval is how often memory is looked at, to find its highest.
const sampleInterval = time.Second

// Result is what one phase took.
type Result struct {
	Provider string `json:"provider"`
	Scenario string `json:"scenario"`
	Phase    string `json:"phase"`
	Nodes    int    `json:"nodes"`
	Round    int    `json:"round"`
	// Measured is when, and Cores on how many.
	Measured time.Time `json:"measured"`
	Cores    int       `json:"cores"`
	// Stolen is the share of these cores, 0 to 1, that the machine's host gave to others meanwhile.
	Stolen float64 `json:"stolen,omitempty"`
	// Seconds is how long it took until its end, Idle how long was waited after that to know that it was the end.
	Seconds float64 `json:"seconds"`
	Idle    float64 `json:"idle,omitempty"`
	// Left is how many nodes a consolidation left.
	Left int `json:"left,omitempty"`
	// CPU is the processor time of the controller in seconds, RSS its highest memory in MiB.
	CPU float64 `json:"cpu"`
	RSS float64 `json:"rss"`
	// Writes is how often the controller wrote to the API server by its audit log, Rejected how many of these were rejected because the
	// object had changed meanwhile.
	Writes   int `json:"writes"`
	Rejected int `json:"rejected"`
	// Calls are those to the cloud.
	Calls int `json:"calls,omitempty"`
}

// Accepted is how many of its writes were accepted.
func (r *Result) Accepted() float64 { return float64(r.Writes - r.Rejected) }

// CallsPerNode is how many calls to the cloud there were for each node.
func (r *Result) CallsPerNode() float64 { return float64(r.Calls) / float64(r.Nodes) }

// meter measures the controller by what the kernel says of its process: processor time is its own, whoever else uses the machine, and
// asking for it costs the process nothing, as its metrics would.
type meter struct {
	env *environment.Environment
	// restarted says that the next phase begins with a process that has used nothing yet.
	restarted bool
}

// snapshot is what was counted until now.
type snapshot struct {
	cpu, rss float64
	stolen   float64 // seconds of processor time of the machine
	calls    int
}

// read reads all of it; of a process that is still to be started, nothing.
func (m *meter) read(ctx context.Context) (*snapshot, error) {
	calls := map[string]int{}
	if err := m.env.Sandbox().Call(ctx, http.MethodGet, "requests?summary=1", nil, &calls); err != nil {
		return nil, err
	}
	stolen, err := stolen()
	if err != nil {
		return nil, err
	}
	s := &snapshot{calls: lo.Sum(lo.Values(calls)), stolen: stolen}
	if m.restarted {
		m.restarted = false
		return s, nil
	}
	return s, m.process(s)
}

// stolen is how much processor time, in seconds, the machine's host has given to others although this machine had use for it.
func stolen() (float64, error) {
	// The line of all processors has the stolen time in its eighth number.
	fields, err := procNumbers("/proc/stat", "cpu", 8)
	if err != nil {
		return 0, err
	}
	return fields[7] / userHertz, nil
}

// process reads what the controller's process uses.
func (m *meter) process(s *snapshot) error {
	// Behind its name in parentheses, utime and stime are the 12th and 13th, rss the 22nd.
	fields, err := procNumbers(fmt.Sprintf("/proc/%d/stat", m.env.Controller().PID()), ")", 22)
	if err != nil {
		return err
	}
	s.cpu, s.rss = (fields[11]+fields[12])/userHertz, fields[21]*float64(os.Getpagesize())/(1<<20)
	return nil
}

// userHertz is the unit of processor time in /proc, on every architecture of Go.
const userHertz = 100

// procNumbers returns the numbers behind the last occurrence of a word in the first line of a file of /proc. What
// is no number is 0.
func procNumbers(file, word string, least int) ([]float64, error) {
	content, err := os.ReadFile(file) //nolint:gosec // a file of /proc
	if err != nil {
		return nil, fmt.Errorf("reading what the kernel counts: %w", err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	fields := strings.Fields(first[strings.LastIndex(first, word)+len(word):])
	if len(fields) < least {
		return nil, fmt.Errorf("%s has only %d numbers", file, len(fields))
	}
	return lo.Map(fields, func(field string, _ int) float64 {
		number, _ := strconv.ParseFloat(field, 64)
		return number
	}), nil
}

// phase measures what is done.
func (r *run) phase(ctx context.Context, phase string, do func() error) error {
	m := r.meter
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	sampling, stop := context.WithCancel(ctx)
	highest := 0.0
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for pause(sampling, sampleInterval) == nil {
			if now := (&snapshot{}); m.process(now) == nil {
				highest = max(highest, now.rss)
			}
		}
	})
	r.tell.Idle, r.tell.Left = 0, 0
	err = do()
	took := time.Since(start)
	stop()
	sampler.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	audited, err := m.env.AuditEvents(environment.ControllerUser)
	if err != nil {
		return err
	}
	result := r.tell
	result.Measured, result.Cores = start.UTC().Truncate(time.Second), runtime.NumCPU()
	result.Phase, result.Seconds = phase, took.Seconds()-r.tell.Idle
	result.Stolen = (after.stolen - before.stolen) / took.Seconds() / float64(result.Cores)
	result.CPU, result.RSS = after.cpu-before.cpu, max(highest, after.rss)
	result.Calls = after.calls - before.calls
	served := lo.Filter(audited, func(e environment.AuditEvent, _ int) bool {
		return e.ObjectRef != nil && e.Stage == "ResponseComplete" && !e.ReceivedAt.Before(start)
	})
	result.Writes = lo.CountBy(served, func(e environment.AuditEvent) bool {
		return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
	})
	result.Rejected = lo.CountBy(served, func(e environment.AuditEvent) bool {
		return e.ResponseStatus.Code == http.StatusConflict || e.ResponseStatus.Code == http.StatusUnprocessableEntity
	})
	r.results = append(r.results, result)
	fmt.Printf("  %s: %.1f s, %.1f CPU seconds, %.0f MiB, %.0f writes to the API server and %d rejected, %.1f calls per node, %.0f %% stolen\n",
		phase, result.Seconds, result.CPU, result.RSS, result.Accepted(), result.Rejected, result.CallsPerNode(), 100*result.Stolen)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// await asks until it is so.
func await(ctx context.Context, timeout time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("waited %s for %s", timeout, what))
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil && ctx.Err() == nil {
			return err
		}
		if late := pause(ctx, 250*time.Millisecond); late != nil {
			return errors.Join(late, err)
		}
	}
}
