// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestPool(t *testing.T) { suite.Run(t, "Pool") }

// growing is a cloud whose autoscaler adds two nodes while it rejects that autoscaling is off.
type growing struct {
	pool    gobizfly.ExtendedWorkerPool
	changes []bizfly.WorkerPoolChange
}

func (g *growing) GetCluster(context.Context, string) (*gobizfly.FullCluster, error) {
	cluster := &gobizfly.FullCluster{}
	cluster.WorkerPools = []gobizfly.ExtendedWorkerPool{g.pool}
	return cluster, nil
}

func (g *growing) UpdateWorkerPool(_ context.Context, _, _ string, change bizfly.WorkerPoolChange) error {
	g.changes = append(g.changes, change)
	if change.EnableAutoscaling != nil {
		g.pool.DesiredSize += 2
		return &bizfly.APIError{Class: bizfly.ClassInvalid, Message: "enable_autoscaling is not valid"}
	}
	g.pool.DesiredSize, g.pool.MinSize, g.pool.MaxSize = *change.DesiredSize, *change.MinSize, *change.MaxSize
	return nil
}

var _ = Describe("Pin", func() {
	It("should keep nodes that are added while it works", func(ctx context.Context) {
		cloud := &growing{}
		cloud.pool.UID, cloud.pool.Name, cloud.pool.EnableAutoScaling = "p", "pool-1", true
		cloud.pool.DesiredSize, cloud.pool.MinSize, cloud.pool.MaxSize = 3, 1, 9
		cluster := pool.Cluster{API: cloud, UID: "c", Interval: time.Millisecond}
		listed := lo.Must(cluster.List(ctx))

		result := lo.Must(cluster.Pin(ctx, listed[0]))
		Expect(result.After.Scales()).To(BeFalse())
		Expect(cloud.changes).To(HaveLen(2))
		Expect(cloud.changes[1].DesiredSize).To(Equal(lo.ToPtr(5)))
	})
})
