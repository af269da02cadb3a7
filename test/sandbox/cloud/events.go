// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"container/heap"
	"context"
	"time"
)

// event is a change at a later time. All progress is made of events: they are applied, in the order of their times, when the state
// is read, so that a test with a fake clock needs no timers.
type event struct {
	at  time.Time
	seq uint64
	do  func()
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].seq < q[j].seq
	}
	return q[i].at.Before(q[j].at)
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) {
	if e, isEvent := x.(*event); isEvent {
		*q = append(*q, e)
	}
}

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}

// after schedules do; the caller holds the lock.
func (c *Cloud) after(d time.Duration, do func()) {
	heap.Push(&c.events, &event{at: c.now.Add(d), seq: c.nextSeq(), do: do})
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// advance applies what is due; the caller holds the lock.
func (c *Cloud) advance() {
	now := c.opts.Clock.Now()
	for len(c.events) > 0 && !c.events[0].at.After(now) {
		e := c.events[0]
		heap.Pop(&c.events)
		if e.at.After(c.now) {
			c.now = e.at
		}
		e.do()
	}
	c.now = now
}

type hook struct {
	deleted bool
	server  Server
}

// fireHooks calls the queued hooks without the lock. Whoever comes while another goroutine (or a hook itself) is at it
// leaves its hooks to that one, which keeps them in order.
func (c *Cloud) fireHooks() {
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return
	}
	c.draining = true
	for len(c.hooks) > 0 {
		next := c.hooks[0]
		c.hooks = c.hooks[1:]
		targets := c.active
		if next.deleted {
			targets = c.deleted
		}
		c.mu.Unlock()
		for _, target := range targets {
			target(next.server)
		}
		c.mu.Lock()
	}
	c.hooks = nil
	c.draining = false
	c.mu.Unlock()
}

// Settle applies all events that are due and fires the hooks that follow.
func (c *Cloud) Settle() { c.with(func() {}) }

// Advance steps a fake clock (any clock with a Step method) and settles. With a real clock it only settles.
func (c *Cloud) Advance(d time.Duration) {
	if stepper, ok := c.opts.Clock.(interface{ Step(time.Duration) }); ok {
		stepper.Step(d)
	}
	c.Settle()
}

// Run settles whenever an event is due, until the context ends, so that hooks fire without requests. Start does it
// for a real clock; a test with a fake clock does without.
func (c *Cloud) Run(ctx context.Context) {
	for {
		c.Settle()
		c.mu.Lock()
		wait := time.Hour
		if len(c.events) > 0 {
			wait = c.events[0].at.Sub(c.opts.Clock.Now())
		}
		c.mu.Unlock()
		timer := c.opts.Clock.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}
