// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"net/http"
)

// WorkerPoolChange is what of a worker pool of BKE changes. What is nil stays as it is.
type WorkerPoolChange struct {
	// EnableAutoscaling is whether BKE's autoscaler changes the pool's size.
	EnableAutoscaling *bool `json:"enable_autoscaling,omitempty"`
	// DesiredSize, MinSize and MaxSize are numbers of nodes.
	DesiredSize *int `json:"desired_size,omitempty"`
	MinSize     *int `json:"min_size,omitempty"`
	MaxSize     *int `json:"max_size,omitempty"`
}

var opUpdateWorkerPool = func() *operation {
	op := change(kindAction, "UpdateWorkerPool", "/_/{uid}/{pool}", acknowledgement).at(serviceKubernetes)
	op.method = http.MethodPatch
	return op
}()

// UpdateWorkerPool changes a worker pool of a BKE cluster. gobizfly's request cannot carry enable_autoscaling: false,
// which it leaves out. It is sent at most once: IsAmbiguous says that the change may have been made. It is not part of
// API: only the kubectl plugin changes worker pools, when its user asks.
func (c *Client) UpdateWorkerPool(ctx context.Context, clusterUID, poolID string, change WorkerPoolChange) error {
	return run(ctx, c, opUpdateWorkerPool, func(g *sdk) error {
		_, err := fetch[any](ctx, g, opUpdateWorkerPool, "/_/"+clusterUID+"/"+poolID, change)
		return err
	}, clusterUID, poolID)
}
