//go:build unix

// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"syscall"
	"testing"
	"time"
)

// meter is the processor time of a benchmark. Where machines are shared, elapsed time says more of the neighbours than of
// the code; processor time is what ratios are made of.
type meter struct {
	b     *testing.B
	begun time.Duration
	spent time.Duration
}

// measure begins a benchmark: right before its loop.
func measure(b *testing.B) *meter {
	b.Helper()
	b.ReportAllocs()
	return &meter{b: b, begun: processor()}
}

// pause leaves out what follows, until resume.
func (m *meter) pause() {
	m.spent += processor() - m.begun
	m.b.StopTimer()
}

func (m *meter) resume() {
	m.b.StartTimer()
	m.begun = processor()
}

// report ends the benchmark: right after its loop.
func (m *meter) report() {
	m.spent += processor() - m.begun
	m.b.ReportMetric(float64(m.spent)/float64(m.b.N), "cpu-ns/op")
}

// processor is what this process has used so far, in its own code and in the kernel.
func processor() time.Duration {
	usage := syscall.Rusage{}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
