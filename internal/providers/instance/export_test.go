// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import "context"

// AwaitLeaves waits until no node is on its way out of BKE: nothing that was asked for so far is sent any more.
func (p *DefaultProvider) AwaitLeaves() { _ = p.leaving.Wait() }

// List returns the servers of a list that is at most a few seconds old, for tests.
func (p *DefaultProvider) List(ctx context.Context) ([]*Instance, error) {
	snapshot, err := p.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	return snapshot.All(), nil
}
