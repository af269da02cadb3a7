// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// class is the queue in which a call waits.
type class string

const (
	classDelete class = "delete"
	classRead   class = "read"
	classCreate class = "create"
	// classLeave is a class of its own, so that a Kubernetes Engine that hangs holds up nothing else.
	classLeave class = "leave"
)

// maxLeaves is how many calls of classLeave are under way at most; its rate is that of deletions.
const maxLeaves = 5

// admission decides when a request may be sent. Each class has its own rate and its own slots, and each route its own
// pause: a burst of creates delays creates, and neither the deletes that save money nor the reads on which both depend.
type admission struct {
	clock   clock.Clock
	metrics *metrics
	gates   map[class]*gate
}

// gate is the share of one class: a fixed rate, slots, and the pauses that the cloud has asked for.
type gate struct {
	slots *semaphore.Weighted
	// turn lets one call at a time wait for the rate, in their order: what finds a pause behind it has lost no place far
	// ahead.
	turn    *semaphore.Weighted
	limiter *rate.Limiter

	mu sync.Mutex
	// pauses are what the cloud asked for in its last 429, by route. Limits may be those of a route, so that other routes
	// go on; where the limit is the account's, each finds out by a 429 of its own.
	pauses map[string]pause
}

// pause is what a route waits for after a 429. One request tries at next, and where it is not rejected too, the pause
// is over: what was asked may be minutes, for a cause that has passed.
type pause struct{ began, next, until time.Time }

func newAdmission(config Config, metrics *metrics) *admission {
	a := &admission{clock: config.Clock, metrics: metrics, gates: map[class]*gate{}}
	limits := config.Limits
	leave := limits.Delete
	leave.Concurrency = min(leave.Concurrency, maxLeaves)
	for class, limit := range map[class]Limit{classDelete: limits.Delete, classRead: limits.Read,
		classCreate: limits.Create, classLeave: leave} {
		a.gates[class] = &gate{
			limiter: rate.NewLimiter(rate.Limit(limit.QPS), limit.Burst), slots: semaphore.NewWeighted(int64(limit.Concurrency)),
			turn: semaphore.NewWeighted(1), pauses: map[string]pause{},
		}
	}
	return a
}

// admitWithin is the key of AdmitWithin's context value.
type admitWithin struct{}

// AdmitWithin returns a context whose calls are sent within d or not at all (IsNotSent). It bounds the wait for
// admission instead of ttl.Admission and leaves a call that was sent its own deadline.
func AdmitWithin(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, admitWithin{}, d)
}

// acquire waits for the pause, the rate and a slot, in this order, and returns what gives the slot back. Its errors
// are NotSent.
func (a *admission) acquire(ctx context.Context, op *operation) (release func(), err error) {
	class, started := op.class, a.clock.Now()
	defer func() {
		a.metrics.admissionWait.WithLabelValues(string(class)).Observe(a.clock.Since(started).Seconds())
	}()
	wait, bounded := ctx.Value(admitWithin{}).(time.Duration)
	if !bounded {
		wait = ttl.Admission
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	gate := a.gates[class]
	for {
		if err := a.sleep(waitCtx, gate.pauseLeft(op, a.clock.Now()), "the cloud asked "+op.name+" to pause"); err != nil {
			return nil, err
		}
		if err := a.awaitRate(waitCtx, gate, class); err != nil {
			return nil, err
		}
		if err := gate.slots.Acquire(waitCtx, 1); err != nil {
			return nil, admissionError(waitCtx, 0, "all "+string(class)+" slots are taken")
		}
		// A pause that began meanwhile holds for us too, and must not be waited for with a slot in hand.
		if gate.mayBegin(op, a.clock.Now()) {
			break
		}
		gate.slots.Release(1)
	}
	return func() { gate.slots.Release(1) }, nil
}

// awaitRate waits until all calls of the class that came before have been admitted, and then for the rate.
func (a *admission) awaitRate(ctx context.Context, gate *gate, class class) error {
	reason := "the " + string(class) + " rate is used up"
	if err := gate.turn.Acquire(ctx, 1); err != nil {
		return admissionError(ctx, 0, reason)
	}
	defer gate.turn.Release(1)
	now := a.clock.Now()
	reservation := gate.limiter.ReserveN(now, 1)
	if err := a.sleep(ctx, reservation.DelayFrom(now), reason); err != nil {
		reservation.CancelAt(a.clock.Now())
		return err
	}
	return nil
}

// sleep waits, or fails at once when the context would end before that.
func (a *admission) sleep(ctx context.Context, wait time.Duration, reason string) error {
	deadline, bounded := ctx.Deadline()
	switch {
	case ctx.Err() != nil, wait > 0 && bounded && time.Until(deadline) < wait:
		return admissionError(ctx, wait, reason)
	case wait <= 0:
		return nil
	}
	timer := a.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return admissionError(ctx, 0, reason)
	}
}

func admissionError(ctx context.Context, retryAfter time.Duration, reason string) *APIError {
	if errors.Is(ctx.Err(), context.Canceled) {
		return contextError(ctx)
	}
	err := notSent(ClassThrottled, "not admitted in time: %s", reason)
	err.RetryAfter = max(retryAfter, 0)
	err.Err = context.DeadlineExceeded
	return err
}

// contextError is the error of a call whose context ended before anything was sent.
func contextError(ctx context.Context) *APIError {
	return &APIError{Class: ClassUnknown, NotSent: true, Message: "the caller's context ended before the request was sent",
		Err: ctx.Err()}
}

// throttled holds the call's route back, as the cloud asked.
func (a *admission) throttled(op *operation, wait time.Duration) {
	now, gate := a.clock.Now(), a.gates[op.class]
	until := now.Add(min(cmp.Or(max(wait, 0), ttl.DefaultPause), ttl.MaxPause))
	gate.mu.Lock()
	defer gate.mu.Unlock()
	gate.pauses[op.route] = pause{began: now, next: earlier(until, now.Add(ttl.PauseTrial)), until: until}
}

// accepted ends the pause of the call's route, because a request that was sent during it was not rejected for its rate.
func (a *admission) accepted(op *operation, sent time.Time) {
	gate := a.gates[op.class]
	gate.mu.Lock()
	defer gate.mu.Unlock()
	if p, paused := gate.pauses[op.route]; paused && sent.After(p.began) {
		delete(gate.pauses, op.route)
	}
}

// pauseLeft is how long no request of the route may begin.
func (g *gate) pauseLeft(op *operation, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pauses[op.route].next.Sub(now)
}

// mayBegin reports whether a request of the route may be sent now. During a pause that makes it the one that tries.
func (g *gate) mayBegin(op *operation, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, paused := g.pauses[op.route]
	if !paused || !now.Before(p.until) {
		return true
	}
	if now.Before(p.next) {
		return false
	}
	p.next = earlier(p.until, now.Add(ttl.NextPauseTrial))
	g.pauses[op.route] = p
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
