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

package config

import (
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
)

// syncTimeout is what one look may take: a few reads of the API server, and a login with a client of its own.
const syncTimeout = 2 * time.Minute

var _ liveness.Checker = (*DefaultProvider)(nil)

// Stuck implements liveness.Checker: a look at the configuration that does not come back, so that no change of it would
// ever be noticed.
func (p *DefaultProvider) Stuck(now time.Time) error {
	return p.work.Stuck(now, "the look at the configuration", liveness.Patience*syncTimeout)
}
