// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
)

// record keeps what core says meanwhile.
type record struct {
	mu    sync.Mutex
	notes []string
	// inVain are the NodeClaims that core has looked at since the last command and cannot consolidate.
	inVain []string
}

// Publish implements events.Recorder. What core decides is in the result.
func (r *record) Publish(events ...karpevents.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range events {
		claim, ok := event.InvolvedObject.(*karpv1.NodeClaim)
		if ok && event.Reason == karpevents.Unconsolidatable &&
			claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable).IsTrue() {
			r.inVain = append(r.inVain, claim.Name)
		}
	}
}

// takeInVain returns the NodeClaims in vain since it was last called.
func (r *record) takeInVain() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.inVain
	r.inVain = nil
	return names
}

// note keeps a line once.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := fmt.Sprintf(format, args...); !lo.Contains(r.notes, line) {
		r.notes = append(r.notes, line)
	}
}

// recorded is a context whose log is kept: an error of a core controller becomes a line of the result.
func (s *Simulation) recorded(ctx context.Context) context.Context {
	return log.IntoContext(ctx, logr.New(errorSink{record: s.record}))
}

// reportedElsewhere are errors that the result has in other words: pods without a place with their reason, and NodePools that are left out.
var reportedElsewhere = []string{"could not schedule pod", "failed getting volume topology requirements", "ignoring nodepool, not ready"}

// errorSink keeps errors alone, with the values that say of what they are.
type errorSink struct {
	record *record
	values string
}

// Init implements logr.LogSink.
func (errorSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (errorSink) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (errorSink) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (e errorSink) Error(err error, message string, values ...any) {
	if !lo.Contains(reportedElsewhere, message) {
		e.record.note("Karpenter reports an error: %s: %v%s", message, err, e.with(values).values)
	}
}

// WithValues implements logr.LogSink.
func (e errorSink) WithValues(values ...any) logr.LogSink { return e.with(values) }

// WithName implements logr.LogSink.
func (e errorSink) WithName(string) logr.LogSink { return e }

func (e errorSink) with(values []any) errorSink {
	for _, pair := range lo.Chunk(values, 2) {
		e.values += fmt.Sprintf("; %v", lo.Map(pair, func(part any, _ int) string { return fmt.Sprint(part) }))
	}
	return e
}
