// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"container/heap"
	"context"
	"time"
)

// event is what happens at a time.
type event struct {
	at       time.Time
	sequence int
	do       func(context.Context)
}

// agenda is the events to come, earliest first; those of one moment in the order in which they were planned.
type agenda struct {
	events  events
	planned int
}

func (a *agenda) add(at time.Time, do func(context.Context)) {
	a.planned++
	heap.Push(&a.events, &event{at, a.planned, do})
}

// pop returns the next event that is not after then; nil where there is none.
func (a *agenda) pop(until time.Time) *event {
	if len(a.events) == 0 || a.events[0].at.After(until) {
		return nil
	}
	return heap.Pop(&a.events).(*event)
}

// events implements heap.Interface.
type events []*event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].sequence < e[j].sequence
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) { *e = append(*e, x.(*event)) }

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
