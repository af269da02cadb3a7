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

// Package liveness tells work that hangs from work that fails. A cloud that is away makes work fail, and a restart cures
// nothing then; work that is far beyond its own deadline never ends by itself, and only a restart does.
package liveness

import (
	"fmt"
	"sync"
	"time"
)

// Patience is how many of its own deadlines a piece of work may take before it counts as stuck: one that is merely late
// because the machine is busy must not end the process.
const Patience = 5

// Checker is a part of the process that can tell that it hangs.
type Checker interface {
	// Stuck returns an error that says what hangs and for how long, and nil while the part works, also when its work
	// fails again and again.
	Stuck(now time.Time) error
}

// Func is a function as a Checker.
type Func func(now time.Time) error

// Stuck implements Checker.
func (f Func) Stuck(now time.Time) error { return f(now) }

// Work watches work of which at most one piece is under way at a time. Its zero value is ready to use.
type Work struct {
	mu    sync.Mutex
	busy  bool
	begun time.Time
}

// Begin says that a piece of work begins; what it returns says that the work has ended, well or not.
func (w *Work) Begin(now time.Time) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.begun = true, now
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy = false
	}
}

// Stuck returns an error when the work under way has taken longer than the limit.
func (w *Work) Stuck(now time.Time, what string, limit time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy {
		return nil
	}
	return Overdue(now, w.begun, what, limit)
}

// Overdue returns an error when something has not ended, or happened, within the limit.
func Overdue(now, since time.Time, what string, limit time.Duration) error {
	if took := now.Sub(since); took > limit {
		return fmt.Errorf("%s hangs for %s, more than %s", what, took.Round(time.Second), limit)
	}
	return nil
}
