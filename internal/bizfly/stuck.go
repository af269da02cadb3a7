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
	"errors"
	"fmt"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
)

const (
	// loopFetches logins within loopWindow, none of whose tokens was ever used without being refused, are a loop. The
	// back-offs allow about half as many, whatever the cloud does: more means that it is the client that is broken.
	loopFetches = 25
	loopWindow  = 10 * time.Minute
)

var _ liveness.Checker = (*Client)(nil)

// Stuck implements liveness.Checker: a login or a read of the service catalog far beyond its deadline, or logins one
// after the other that lead to nothing. A cloud that is away, or that refuses the credentials, is neither.
func (c *Client) Stuck(now time.Time) error {
	connection := c.backend.Load().connection
	return errors.Join(
		connection.sessions.stuck(now, "the login"),
		connection.catalogs.stuck(now, "the read of the service catalog"),
		connection.sessions.looping(now),
	)
}

// begin notes that a fetch begins; what it returns notes its end.
func (r *refreshable[T]) begin() (end func()) {
	now := r.clock.Now()
	r.mu.Lock()
	r.unproven = append(r.unproven, now)
	r.unproven = r.unproven[max(0, len(r.unproven)-loopFetches):]
	r.mu.Unlock()
	return r.work.Begin(now)
}

// prove notes that the value was used, and that whatever came of it was not for its sake.
func (r *refreshable[T]) prove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unproven = r.unproven[:0]
}

func (r *refreshable[T]) stuck(now time.Time, what string) error {
	return r.work.Stuck(now, what, liveness.Patience*r.timeout)
}

func (r *refreshable[T]) looping(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unproven) < loopFetches || now.Sub(r.unproven[0]) > loopWindow {
		return nil
	}
	return fmt.Errorf("%d logins since %s, and every token was refused", len(r.unproven), r.unproven[0].UTC().Format(time.RFC3339))
}
