// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/samber/lo"
	"golang.org/x/term"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

// queueDepth is core's metric of the pods that the scheduler has not decided about yet.
const queueDepth = "karpenter_scheduler_queue_depth"

// withProgress does work that may take long, and shows on a terminal how far it is.
func withProgress[T any](ctx context.Context, printer *output.Printer, work func(ctx context.Context, start func(total int)) (T, error)) (T, error) {
	file := output.File(printer.Err)
	if file == nil || !term.IsTerminal(int(file.Fd())) {
		return work(ctx, func(int) {})
	}
	writer := progress.NewWriter()
	writer.SetOutputWriter(file)
	writer.SetUpdateFrequency(100 * time.Millisecond)
	// It ends when every tracker is done, so the next tracker is added before the previous one is done.
	writer.SetAutoStop(true)
	var running sync.WaitGroup
	var render sync.Once
	done := func() {}
	defer func() {
		done()
		running.Wait()
	}()
	return work(ctx, func(total int) {
		tracker := &progress.Tracker{Message: "scheduling pods", Total: int64(total), AutoStopDisabled: true}
		writer.AppendTracker(tracker)
		done()
		following, stop := context.WithCancel(ctx)
		done = stop
		running.Go(func() { follow(following, tracker, total) })
		render.Do(func() { running.Go(writer.Render) })
	})
}

// follow moves a tracker with core's queue, and marks it as done when the context ends.
func follow(ctx context.Context, tracker *progress.Tracker, total int) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	began := false
	for {
		select {
		case <-ctx.Done():
			tracker.MarkAsDone()
			return
		case <-ticker.C:
		}
		depth, known := queued()
		began = began || known && depth > 0
		if began {
			tracker.SetValue(int64(max(total-depth, 0)))
		}
	}
}

// queued reads core's queue.
func queued() (depth int, known bool) {
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		return 0, false
	}
	for _, family := range families {
		if family.GetName() == queueDepth && len(family.GetMetric()) > 0 {
			return int(lo.LastOrEmpty(family.GetMetric()).GetGauge().GetValue()), true
		}
	}
	return 0, false
}

// withCount does work that consists of many steps, and shows on a terminal how many are done. How many there are may be 0: it is not known.
func withCount[T any](printer *output.Printer, what string, work func(step func(done, of int, text string)) (T, error)) (T, error) {
	file := output.File(printer.Err)
	if file == nil || !term.IsTerminal(int(file.Fd())) {
		return work(func(int, int, string) {})
	}
	writer := progress.NewWriter()
	writer.SetOutputWriter(file)
	writer.SetUpdateFrequency(100 * time.Millisecond)
	writer.SetAutoStop(true)
	tracker := &progress.Tracker{Message: what}
	writer.AppendTracker(tracker)
	var running sync.WaitGroup
	running.Go(writer.Render)
	defer running.Wait()
	defer tracker.MarkAsDone()
	return work(func(done, of int, text string) {
		tracker.UpdateTotal(int64(of))
		if tracker.SetValue(int64(done)); text != "" {
			tracker.UpdateMessage(what + ", " + output.Line(text))
		}
	})
}
