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
	"errors"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
)

var _ liveness.Checker = (*DefaultProvider)(nil)

// Stuck implements liveness.Checker: a shared list, or a look for ordered servers, that does not end. Everybody who needs
// one waits for it, so that nothing would be launched, deleted or collected any more.
func (p *DefaultProvider) Stuck(now time.Time) error {
	return errors.Join(
		p.servers.stuck(now, "the list of servers"),
		p.volumes.stuck(now, "the list of volumes"),
		p.poller.work.Stuck(now, "the look for servers that were ordered", liveness.Patience*roundTimeout),
	)
}

func (l *sharedList[T]) stuck(now time.Time, what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil
	}
	return liveness.Overdue(now, l.current.begun, what, liveness.Patience*listTimeout)
}
