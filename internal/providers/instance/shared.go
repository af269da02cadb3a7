// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// shared answers many readers with few lists: at most one is under way and one is waited for, however many ask. A
// reader names the time after which its list must have begun, so that absence in it proves something.
type shared[V any] struct {
	fetch func(context.Context) (V, error)
	clock clock.PassiveClock

	mu sync.Mutex
	// last is the newest list that succeeded; it is shared and never changed.
	last *listed[V]
	// failing is since when every list has failed; zero while the last one succeeded.
	failing time.Time
	// current is under way; next begins when it has ended.
	current, next *listed[V]
}

// listed is one list.
type listed[V any] struct {
	ctx   context.Context // the values of the first reader, for logs, without its deadline
	begun time.Time
	done  chan struct{}
	value V
	err   error
}

func newShared[V any](clk clock.PassiveClock, fetch func(context.Context) (V, error)) *shared[V] {
	return &shared[V]{fetch: fetch, clock: clk}
}

// get returns a list that began after this time, or after the call where that is later. Its value is shared: read only.
func (s *shared[V]) get(ctx context.Context, after time.Time) (*listed[V], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := s.join(ctx, after)
	select {
	case <-l.done:
		return l, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// peek returns the last list when it began after this time, and nil otherwise. It lists nothing.
func (s *shared[V]) peek(after time.Time) *listed[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.begun.After(after) {
		return s.last
	}
	return nil
}

// failingFor is for how long every list has failed.
func (s *shared[V]) failingFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing.IsZero() {
		return 0
	}
	return s.clock.Since(s.failing)
}

// flush forgets the last list.
func (s *shared[V]) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// join returns the list that is young enough for the reader, beginning one where there is none.
func (s *shared[V]) join(ctx context.Context, after time.Time) *listed[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last != nil && s.last.begun.After(after):
		return s.last
	case s.current == nil:
		s.current = &listed[V]{ctx: unhurried(ctx), done: make(chan struct{})}
		s.begin(s.current)
		return s.current
	case s.current.begun.After(after):
		return s.current
	case s.next == nil:
		s.next = &listed[V]{ctx: unhurried(ctx), done: make(chan struct{})}
	}
	return s.next
}

// unhurried is a context for a list that others wait for too: it has neither the deadline nor the bound of admission of
// its first reader.
func unhurried(ctx context.Context) context.Context {
	return bizfly.AdmitWithin(context.WithoutCancel(ctx), ttl.Admission)
}

// begin is called with the lock held and lists without it.
func (s *shared[V]) begin(l *listed[V]) {
	l.begun = s.clock.Now()
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, ttl.List)
		l.value, l.err = s.fetch(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case l.err == nil:
			s.last, s.failing = l, time.Time{}
		case s.failing.IsZero():
			s.failing = l.begun
		}
		close(l.done)
		s.current, s.next = s.next, nil
		if s.current != nil {
			s.begin(s.current)
		}
	}()
}
