/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sampleInterval is how often memory is looked at, to find its highest.
const sampleInterval = 2 * time.Second

// Metrics of the Go process, which the controller serves with its own.
const (
	metricCPU    = "process_cpu_seconds_total"
	metricMemory = "process_resident_memory_bytes"
	metricHeap   = "go_memstats_heap_inuse_bytes"
)

// meter measures the controller by its own metrics: processor time is its own, also on a busy machine.
type meter struct{ url string }

// measure prints a row about what the controller used while something was done, which reports how many nodes there are then.
func (m *meter) measure(ctx context.Context, what string, do func() (nodes int, err error)) error {
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	sampling, stop := context.WithCancel(ctx)
	highest := before[metricMemory]
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for pause(sampling, sampleInterval) == nil {
			if now, err := m.read(sampling); err == nil {
				highest = max(highest, now[metricMemory])
			}
		}
	})
	nodes, err := do()
	stop()
	sampler.Wait()
	if err != nil {
		return err
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	took, cpu := time.Since(start).Seconds(), after[metricCPU]-before[metricCPU]
	fmt.Printf("| %s | %d | %d | %.0f | %.1f | %.0f | %.0f | %.0f |\n", what, nodes, nodes*podsPerNode, took, cpu, 1000*cpu/took,
		max(highest, after[metricMemory])/(1<<20), after[metricHeap]/(1<<20))
	return nil
}

// read returns the metrics without labels.
func (m *meter) read(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	values := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, text, found := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); found && err == nil {
			values[key] = value
		}
	}
	for _, key := range []string{metricCPU, metricMemory, metricHeap} {
		if _, ok := values[key]; !ok {
			return nil, errors.Join(lines.Err(), fmt.Errorf("the controller does not serve %s", key))
		}
	}
	return values, nil
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
func await(ctx context.Context, timeout time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil && ctx.Err() == nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}
