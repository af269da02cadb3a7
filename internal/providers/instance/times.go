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
	"time"

	"github.com/samber/lo"
)

// Times are the parts of Config that can be changed while the provider runs; 0 means the default.
type Times struct {
	// IDWait is how long Launch and Resume wait for a server's id; see Config.
	IDWait time.Duration
	// VisibilityWindow is how long after an order its server or task must have been seen; see Config.
	VisibilityWindow time.Duration
	// PollInterval is the time between two looks for the servers that were ordered; see Config.
	PollInterval time.Duration
	// ListMaxAge is how old a list may be when List is called; see Config.
	ListMaxAge time.Duration
}

// SetTimes changes the times from now on. A wait for a server's id that has begun ends when it was going to end.
func (p *DefaultProvider) SetTimes(times Times) {
	times.IDWait = lo.CoalesceOrEmpty(times.IDWait, defaultIDWait)
	times.VisibilityWindow = lo.CoalesceOrEmpty(times.VisibilityWindow, defaultVisibilityWindow)
	times.PollInterval = lo.CoalesceOrEmpty(times.PollInterval, defaultPollInterval)
	times.ListMaxAge = lo.CoalesceOrEmpty(times.ListMaxAge, defaultListMaxAge)
	p.times.Store(&times)
	// A poller that waits for its next round looks again when that is due.
	select {
	case p.poller.left <- struct{}{}:
	default:
	}
}
