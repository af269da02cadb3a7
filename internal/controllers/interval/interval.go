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

// Package interval is the time between two runs of a singleton controller, which can be changed while it runs: the
// controller then runs at once instead of when the old interval would have ended.
package interval

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Interval is the time between two runs.
type Interval struct {
	value   atomic.Int64
	changed chan event.GenericEvent
}

// New makes an interval.
func New(value time.Duration) *Interval {
	i := &Interval{changed: make(chan event.GenericEvent, 1)}
	i.value.Store(int64(value))
	return i
}

// Get returns the interval in force.
func (i *Interval) Get() time.Duration { return time.Duration(i.value.Load()) }

// Set changes the interval, and lets the controller run where that is another one. It never blocks.
func (i *Interval) Set(value time.Duration) {
	if i.value.Swap(int64(value)) == int64(value) {
		return
	}
	select {
	case i.changed <- event.GenericEvent{}:
	default: // A run is due already, and it reads what is in force then.
	}
}

// Source starts the controller's runs that Set asks for, beside singleton.Source, whose request is the same.
func (i *Interval) Source() source.Source {
	return source.Channel(i.changed, handler.Funcs{
		GenericFunc: func(_ context.Context, _ event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.Add(reconcile.Request{})
		},
	})
}
