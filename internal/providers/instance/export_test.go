// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import "context"

// List returns the servers of a list that is at most a few seconds old, for tests.
func (p *DefaultProvider) List(ctx context.Context) ([]*Instance, error) {
	snapshot, err := p.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	return snapshot.All(), nil
}
