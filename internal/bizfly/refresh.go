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

// session is what a login brought, with the times from which the next one should and must be.
type session struct {
	token     string
	projectID string
	services  *serviceCatalog

	refreshAt, expiresAt time.Time
	// generation is the number of the login that brought it; 0 means never.
	generation uint64
}

// sessions is the session that all callers share and for which one of them at a time logs in. It is renewed in the
// background while it is still good, so that no call waits for that, and after a failure no login is tried before an
// exponential back-off has passed. No lock is held during a login.
type sessions struct {
	clock   clock.PassiveClock
	spread  func(n int64) int64
	timeout time.Duration
	login   func(ctx context.Context, last session) (session, error)
	flights singleflight.Group

	mu        sync.Mutex
	current   session
	failures  int
	notBefore time.Time
	failure   *APIError
}

// state returns the session at hand, whether it is still good or not, and the last failure while its back-off lasts.
func (r *sessions) state(now time.Time) (session, *APIError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || !now.Before(r.notBefore) {
		return r.current, nil
	}
	failure := typed(r.failure)
	failure.RetryAfter = r.notBefore.Sub(now)
	return r.current, failure
}

// get returns a session that is good and newer than the generation that the cloud rejected (0 for none). It logs in
// where there is none, or joins the login under way, which goes on when this caller gives up, since others wait for it
// too.
func (r *sessions) get(ctx context.Context, rejected uint64) (session, error) {
	now := r.clock.Now()
	current, failure := r.state(now)
	good := current.generation > rejected && now.Before(current.expiresAt)
	switch {
	case good && (failure != nil || now.Before(current.refreshAt)):
		return current, nil //nolint:nilerr // a good session outlives the failure of its renewal
	case failure != nil:
		return current, failure
	}
	flight := r.flights.DoChan("", func() (any, error) { return r.refresh(current.generation) })
	if good {
		return current, nil
	}
	select {
	case <-ctx.Done():
		return session{}, contextError(ctx)
	case result := <-flight:
		return result.Val.(session), result.Err
	}
}

// refresh brings a session newer than the known one, with a deadline of its own.
func (r *sessions) refresh(known uint64) (session, error) {
	current, failure := r.state(r.clock.Now())
	switch {
	case current.generation > known: // another flight has landed since the caller looked
		return current, nil
	case failure != nil:
		return current, failure
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	value, err := r.login(ctx, current)
	if err != nil {
		return value, r.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value.generation = r.current.generation + 1
	r.current, r.failures, r.failure = value, 0, nil
	return value, nil
}

// failed is the error of all calls until the next login is tried: none of them was sent, whatever became of the login.
func (r *sessions) failed(err error) *APIError {
	apiError := typed(err)
	apiError.NotSent, apiError.Ambiguous = true, false
	r.mu.Lock()
	defer r.mu.Unlock()
	apiError.RetryAfter = min(max(backoff(r.spread, r.failures), apiError.RetryAfter), ttl.MaxLoginBackoff)
	r.failures++
	r.failure, r.notBefore = apiError, r.clock.Now().Add(apiError.RetryAfter)
	return typed(apiError)
}

// backoff doubles with each failure up to ttl.MaxLoginBackoff, minus up to a quarter, so that replicas part.
func backoff(spread func(int64) int64, failures int) time.Duration {
	wait := min(ttl.FirstLoginBackoff<<min(failures, 16), ttl.MaxLoginBackoff)
	return wait - time.Duration(spread(int64(wait)/4+1))
}
