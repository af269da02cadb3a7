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

package instance

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// listTimeout bounds one list, which outlives the caller that began it because others may wait for it too.
const listTimeout = time.Minute

// sharedList answers many callers with few lists: at most one is under way and one is waited for, however many ask.
// What a caller gets was begun after its call, so absence in it proves something; only a caller that names an age may
// get an older one.
type sharedList[T any] struct {
	fetch func(context.Context) ([]T, error)
	clock clock.PassiveClock

	mu sync.Mutex
	// last is the newest list that succeeded; it is shared and never changed.
	last *flight[T]
	// current is under way; next begins when it has ended.
	current, next *flight[T]
}

// flight is one list with those who wait for it.
type flight[T any] struct {
	ctx     context.Context // the values of whoever asked first, for logs, without its deadline
	begun   time.Time
	done    chan struct{}
	waiters int
	items   []T
	err     error
}

func newSharedList[T any](clk clock.PassiveClock, fetch func(context.Context) ([]T, error)) *sharedList[T] {
	return &sharedList[T]{fetch: fetch, clock: clk}
}

// get returns a list that was begun after the call, or at most maxAge before it. The slice is shared: read only.
func (l *sharedList[T]) get(ctx context.Context, maxAge time.Duration) ([]T, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := l.join(ctx, maxAge)
	select {
	case <-f.done:
		return f.items, f.err
	case <-ctx.Done():
		l.leave(f)
		return nil, ctx.Err()
	}
}

// join returns the flight whose answer is young enough for the caller, beginning one where there is none.
func (l *sharedList[T]) join(ctx context.Context, maxAge time.Duration) *flight[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	young := func(f *flight[T]) bool { return f != nil && maxAge > 0 && l.clock.Since(f.begun) <= maxAge }
	switch {
	case young(l.last):
		return l.last
	case l.current == nil:
		l.current = &flight[T]{ctx: context.WithoutCancel(ctx), done: make(chan struct{}), waiters: 1}
		l.begin(l.current)
		return l.current
	case young(l.current):
		l.current.waiters++
		return l.current
	case l.next == nil:
		l.next = &flight[T]{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
	}
	l.next.waiters++
	return l.next
}

// leave takes back a join, so that no list is made that nobody waits for any more.
func (l *sharedList[T]) leave(f *flight[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiters--; f.waiters == 0 && l.next == f {
		l.next = nil
	}
}

// begin is called with the lock held and runs the list without it.
func (l *sharedList[T]) begin(f *flight[T]) {
	f.begun = l.clock.Now()
	go func() {
		ctx, cancel := context.WithTimeout(f.ctx, listTimeout)
		f.items, f.err = l.fetch(ctx)
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		if f.err == nil {
			l.last = f
		}
		close(f.done)
		l.current, l.next = l.next, nil
		if l.current != nil {
			l.begin(l.current)
		}
	}()
}
