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

// Package interval lets a singleton controller run at once when a setting changes that it runs by, instead of when the old
// interval would have ended.
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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// Source starts a run of the controller when the interval changes, beside singleton.Source, whose request is the same.
func Source(settings *options.Store, of func(*options.Options) time.Duration) source.Source {
	changed := make(chan event.GenericEvent, 1)
	last := atomic.Int64{}
	last.Store(int64(of(settings.Load())))
	settings.OnChange(func(o *options.Options) {
		if next := int64(of(o)); last.Swap(next) == next {
			return
		}
		select {
		case changed <- event.GenericEvent{}:
		default: // A run is due already, and it reads what is active then.
		}
	})
	return source.Channel(changed, handler.Funcs{
		GenericFunc: func(_ context.Context, _ event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.Add(reconcile.Request{})
		},
	})
}
