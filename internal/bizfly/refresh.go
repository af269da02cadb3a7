// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// fetched is a value with the times from which it should and must be fetched again.
type fetched[T any] struct {
	value                T
	refreshAt, expiresAt time.Time
	// generation is the number of the fetch that brought it; 0 means never.
	generation uint64
}

// refreshable is a value that all callers share and that one of them at a time fetches: the token and the catalog of services.
// It is refreshed in the background while it is still good, so that no call waits for that, and after a failure it is
// not fetched again before an exponential back-off has passed. No lock is held while fetching.
type refreshable[T any] struct {
	clock   clock.PassiveClock
	spread  func(n int64) int64
	timeout time.Duration
	fetch   func(ctx context.Context) (fetched[T], error)
	flights singleflight.Group

	mu        sync.Mutex
	current   fetched[T]
	failures  int
	notBefore time.Time
	failure   *APIError
}

// state returns the value at hand, whether it is still good or not, and the last failure while its back-off lasts.
func (r *refreshable[T]) state(now time.Time) (fetched[T], *APIError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || !now.Before(r.notBefore) {
		return r.current, nil
	}
	failure := typed(r.failure)
	failure.RetryAfter = r.notBefore.Sub(now)
	return r.current, failure
}

// get returns a value that is good and newer than the generation that the cloud rejected (0 for none). It fetches one where there is none,
// or joins the fetch under way, which goes on when this caller gives up, since others wait for it too.
func (r *refreshable[T]) get(ctx context.Context, rejected uint64) (fetched[T], error) {
	now := r.clock.Now()
	current, failure := r.state(now)
	good := current.generation > rejected && now.Before(current.expiresAt)
	switch {
	case good && (failure != nil || now.Before(current.refreshAt)):
		return current, nil //nolint:nilerr // a good value outlives the failure of its renewal
	case failure != nil:
		return current, failure
	}
	flight := r.flights.DoChan("", func() (any, error) { return r.refresh(current.generation) })
	if good {
		return current, nil
	}
	select {
	case <-ctx.Done():
		return fetched[T]{}, contextError(ctx)
	case result := <-flight:
		return result.Val.(fetched[T]), result.Err
	}
}

// refresh fetches a value newer than the known one, with a deadline of its own.
func (r *refreshable[T]) refresh(known uint64) (fetched[T], error) {
	switch current, failure := r.state(r.clock.Now()); {
	case current.generation > known: // another flight has landed since the caller looked
		return current, nil
	case failure != nil:
		return current, failure
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	value, err := r.fetch(ctx)
	if err != nil {
		return value, r.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value.generation = r.current.generation + 1
	r.current, r.failures, r.failure = value, 0, nil
	return value, nil
}

func (r *refreshable[T]) failed(err error) *APIError {
	apiError := typed(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	apiError.RetryAfter = max(backoff(r.spread, r.failures), apiError.RetryAfter)
	r.failures++
	r.failure, r.notBefore = apiError, r.clock.Now().Add(apiError.RetryAfter)
	return typed(apiError)
}

// backoff doubles with each failure up to ttl.MaxLoginBackoff, minus up to a quarter, so that replicas part.
func backoff(spread func(int64) int64, failures int) time.Duration {
	wait := min(ttl.FirstLoginBackoff<<min(failures, 16), ttl.MaxLoginBackoff)
	return wait - time.Duration(spread(int64(wait)/4+1))
}
