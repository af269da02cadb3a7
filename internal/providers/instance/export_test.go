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

import "context"

// Polling reports whether the poller's goroutine exists, for tests.
func (p *DefaultProvider) Polling() bool {
	p.launcher.poller.mu.Lock()
	defer p.launcher.poller.mu.Unlock()
	return p.launcher.poller.running
}

// List returns the servers of a list that is at most a few seconds old, for tests.
func (p *DefaultProvider) List(ctx context.Context) ([]*Instance, error) {
	snapshot, err := p.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	return snapshot.All(), nil
}
