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
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

const (
	firstBackoff = time.Second
	// uselessBackoff is the first pause after a fresh token was refused at once: another login would not help, and
	// one call with a refused token of its own (cluster_leave) must not turn into a storm of logins.
	uselessBackoff = 30 * time.Second
	maxBackoff     = 5 * time.Minute
)

// fetched is a value with the times from which it should and must be fetched again.
type fetched[T any] struct {
	value     T
	refreshAt time.Time
	expiresAt time.Time
}

// refreshable is a value that all callers share and that one of them at a time fetches: the token and the catalog.
// It is refreshed in the background while it is still good, so that no call waits for that, and after a failure it is
// not fetched again before an exponential back-off has passed. No lock is held while fetching.
type refreshable[T any] struct {
	clock   clock.PassiveClock
	spread  func(n int64) int64
	timeout time.Duration
	fetch   func(ctx context.Context) (fetched[T], error)
	flights singleflight.Group

	mu         sync.Mutex
	current    fetched[T]
	generation uint64
	failures   int
	notBefore  time.Time
	failure    *APIError

	useless       int
	uselessBefore time.Time
}

// stamped is a value and the number of the fetch that brought it; 0 means never.
type stamped[T any] struct {
	value      T
	generation uint64
}

// get returns the value, fetching it when there is none that is still good.
func (r *refreshable[T]) get(ctx context.Context) (stamped[T], error) {
	r.mu.Lock()
	now := r.clock.Now()
	current := stamped[T]{value: r.current.value, generation: r.generation}
	good := r.generation > 0 && now.Before(r.current.expiresAt)
	stale := !now.Before(r.current.refreshAt)
	failure := r.pendingFailure(now)
	r.mu.Unlock()

	switch {
	case good && stale && failure == nil:
		r.flights.DoChan("", func() (any, error) { return r.refresh(current.generation) })
		return current, nil
	case good:
		return current, nil
	case failure != nil:
		return stamped[T]{}, failure
	}
	return r.await(ctx, current.generation)
}

// peek returns the value at hand, whether it is still good or not, without fetching.
func (r *refreshable[T]) peek() (T, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.value, r.generation
}

// renew returns a value newer than the one of the generation that the cloud refused.
func (r *refreshable[T]) renew(ctx context.Context, refused uint64) (stamped[T], error) {
	r.mu.Lock()
	now := r.clock.Now()
	current := stamped[T]{value: r.current.value, generation: r.generation}
	failure := r.pendingFailure(now)
	if wait := r.uselessBefore.Sub(now); failure == nil && wait > 0 {
		failure = &APIError{Class: ClassAuth, Status: 401, RetryAfter: wait, Message: "a fresh token was refused, the next login waits"}
	}
	r.mu.Unlock()

	if current.generation != refused {
		return current, nil
	}
	if failure != nil {
		return stamped[T]{}, failure
	}
	return r.await(ctx, refused)
}

// judge reports whether the value that renew brought was accepted.
func (r *refreshable[T]) judge(accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if accepted {
		r.useless, r.uselessBefore = 0, time.Time{}
		return
	}
	r.uselessBefore = r.clock.Now().Add(backoff(r.spread, uselessBackoff, r.useless))
	r.useless++
}

// await joins the fetch under way or starts one. The fetch has a deadline of its own and goes on when this caller
// gives up, since others wait for it too.
func (r *refreshable[T]) await(ctx context.Context, known uint64) (stamped[T], error) {
	select {
	case <-ctx.Done():
		return stamped[T]{}, contextError(ctx)
	case result := <-r.flights.DoChan("", func() (any, error) { return r.refresh(known) }):
		if result.Err != nil {
			return stamped[T]{}, result.Err
		}
		return result.Val.(stamped[T]), nil
	}
}

// refresh runs in singleflight's goroutine, where a panic could not be recovered by any caller.
func (r *refreshable[T]) refresh(known uint64) (_ stamped[T], err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = r.failed(fmt.Errorf("panic while fetching (%T)", recovered))
		}
	}()
	r.mu.Lock()
	current := stamped[T]{value: r.current.value, generation: r.generation}
	failure := r.pendingFailure(r.clock.Now())
	r.mu.Unlock()
	// Another flight may have landed between the caller's look and this one.
	if current.generation > known {
		return current, nil
	}
	if failure != nil {
		return stamped[T]{}, failure
	}

	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	value, err := r.fetch(ctx)
	if err != nil {
		return stamped[T]{}, r.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.failures, r.failure = value, 0, nil
	r.generation++
	return stamped[T]{value: value.value, generation: r.generation}, nil
}

func (r *refreshable[T]) failed(err error) *APIError {
	apiError, ok := asAPIError(err)
	if !ok {
		apiError = &APIError{Class: ClassUnknown, Err: err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := max(backoff(r.spread, firstBackoff, r.failures), apiError.RetryAfter)
	r.failures++
	r.notBefore = r.clock.Now().Add(wait)
	apiError.RetryAfter = wait
	r.failure = apiError
	dup := *apiError
	return &dup
}

// pendingFailure is the last failure while its back-off lasts. The lock is held.
func (r *refreshable[T]) pendingFailure(now time.Time) *APIError {
	if r.failure == nil || !now.Before(r.notBefore) {
		return nil
	}
	dup := *r.failure
	dup.RetryAfter = r.notBefore.Sub(now)
	return &dup
}

// backoff doubles from first with each failure up to maxBackoff, minus up to a quarter, so that replicas part.
func backoff(spread func(int64) int64, first time.Duration, failures int) time.Duration {
	wait := maxBackoff
	if failures < 16 {
		wait = min(first<<failures, maxBackoff)
	}
	return wait - time.Duration(spread(int64(wait)/4+1))
}
