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

package bizfly

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// outageAfter is how many exchanges in a row must fail before it is called an outage: one lost connection is none.
const outageAfter = 3

// Health is what the traffic of the client says about the cloud.
type Health struct {
	// Outage is true while the cloud does not answer or answers with server errors.
	Outage bool
	// Since is when the first of the failures happened that make the outage; zero when there is none.
	Since time.Time
	// LastAnswer is when the cloud last gave an answer that made sense; zero when it never did.
	LastAnswer time.Time
	// LastLogin is when the token in use was issued; zero before the first login.
	LastLogin time.Time
}

// health counts failures in a row.
type health struct {
	clock   clock.PassiveClock
	metrics *metrics

	mu         sync.Mutex
	failures   int
	since      time.Time
	lastAnswer time.Time
}

func (h *health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.since, h.lastAnswer = 0, time.Time{}, h.clock.Now()
	h.metrics.outage.Set(0)
}

func (h *health) failed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		h.since = h.clock.Now()
	}
	h.failures++
	if h.failures >= outageAfter {
		h.metrics.outage.Set(1)
	}
}

func (h *health) report() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	report := Health{Outage: h.failures >= outageAfter, LastAnswer: h.lastAnswer}
	if report.Outage {
		report.Since = h.since
	}
	return report
}
