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

package bizfly

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// class is the queue in which a call waits.
type class string

const (
	classDelete class = "delete"
	classRead   class = "read"
	classCreate class = "create"
)

// maxPause bounds what a 429 may ask of us, and defaultPause is for one that does not say.
const (
	maxPause     = 5 * time.Minute
	defaultPause = time.Second
)

// admission decides when a request may be sent. Each class has its own rate and its own slots: a burst of creates
// delays creates, and neither the deletes that save money nor the reads on which both depend.
type admission struct {
	clock   clock.Clock
	metrics *metrics
	wait    time.Duration
	gates   map[class]*gate

	mu sync.Mutex
	// pausedUntil holds back every class after a 429: the cloud's limit is on the account, not on the route.
	pausedUntil time.Time
}

type gate struct {
	limiter *rate.Limiter
	slots   *semaphore.Weighted
}

func newAdmission(config Config, metrics *metrics) *admission {
	newGate := func(limit Limit) *gate {
		return &gate{limiter: rate.NewLimiter(rate.Limit(limit.QPS), limit.Burst), slots: semaphore.NewWeighted(int64(limit.Concurrency))}
	}
	return &admission{
		clock: config.Clock, metrics: metrics, wait: config.Limits.Wait,
		gates: map[class]*gate{
			classDelete: newGate(config.Limits.Delete), classRead: newGate(config.Limits.Read), classCreate: newGate(config.Limits.Create),
		},
	}
}

// admitWithin is the key of AdmitWithin's context value.
type admitWithin struct{}

// AdmitWithin returns a context whose calls are sent within d or not at all (IsNotSent). It bounds the wait for admission
// and leaves a call that was sent its own deadline.
func AdmitWithin(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, admitWithin{}, d)
}

// acquire waits for the pause, the rate and a slot, in this order, and returns what gives the slot back. Its errors
// are NotSent.
func (a *admission) acquire(ctx context.Context, class class) (release func(), err error) {
	started := a.clock.Now()
	wait := a.wait
	if within, bounded := ctx.Value(admitWithin{}).(time.Duration); bounded {
		wait = min(wait, within)
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer func() {
		a.metrics.admissionWait.WithLabelValues(string(class)).Observe(a.clock.Since(started).Seconds())
	}()
	gate := a.gates[class]
	for {
		if err := a.sleep(waitCtx, a.pauseLeft(), "the cloud asked all requests to pause"); err != nil {
			return nil, err
		}
		if err := a.takeRate(waitCtx, gate, class); err != nil {
			return nil, err
		}
		if err := gate.slots.Acquire(waitCtx, 1); err != nil {
			return nil, admissionError(waitCtx, 0, "all "+string(class)+" slots are taken")
		}
		// A pause that began meanwhile holds for us too, and must not be waited for with a slot in hand.
		if a.pauseLeft() <= 0 {
			break
		}
		gate.slots.Release(1)
	}
	a.metrics.inFlight.WithLabelValues(string(class)).Inc()
	var once sync.Once
	return func() {
		once.Do(func() {
			gate.slots.Release(1)
			a.metrics.inFlight.WithLabelValues(string(class)).Dec()
		})
	}, nil
}

func (a *admission) takeRate(ctx context.Context, gate *gate, class class) error {
	now := a.clock.Now()
	reservation := gate.limiter.ReserveN(now, 1)
	if err := a.sleep(ctx, reservation.DelayFrom(now), "the "+string(class)+" rate is used up"); err != nil {
		reservation.CancelAt(a.clock.Now())
		return err
	}
	return nil
}

// sleep waits, or fails at once when the context would end before that.
func (a *admission) sleep(ctx context.Context, wait time.Duration, reason string) error {
	if ctx.Err() != nil {
		return admissionError(ctx, wait, reason)
	}
	if wait <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return admissionError(ctx, wait, reason)
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
	return &APIError{Class: ClassUnknown, NotSent: true, Message: "the caller's context ended before the request was sent", Err: ctx.Err()}
}

// pause holds all classes back.
func (a *admission) pause(wait time.Duration) {
	if wait <= 0 {
		wait = defaultPause
	}
	until := a.clock.Now().Add(min(wait, maxPause))
	a.mu.Lock()
	defer a.mu.Unlock()
	if until.After(a.pausedUntil) {
		a.pausedUntil = until
	}
}

func (a *admission) pauseLeft() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedUntil.Sub(a.clock.Now())
}
