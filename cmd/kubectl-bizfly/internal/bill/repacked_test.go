// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill_test

import (
	"context"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/properties/randomcluster"
)

const (
	// repackAt is when a day is repacked: when few pods are there.
	repackAt = 4 * time.Hour
)

// repackedColumn is the sample, repacked once: after it has settled, or at night. Its limits are for beginners, and would not allow the new nodes beside the
// old ones.
func repackedColumn() column {
	return column{name: wayRepacked, title: "`WhenEmptyOrUnderutilized`, 30s, repacked once", change: func(pool *karpv1.NodePool) {
		policies()[0].change(pool)
		pool.Spec.Limits = nil
	}}
}

// repack runs kubectl bizfly repack --yes in a cluster.
func (b *bench) repack(ctx context.Context, live *randomcluster.Live) {
	s := lo.Must(connect.NewFor(ctx, nil, connect.Options{Offline: true}))
	s.Cluster = live.Client
	ctx = s.Context(ctx)
	proposal := lo.Must(repack.Compute(ctx, s, "", ""))
	if len(proposal.Replaced) == 0 {
		return
	}
	runner := repack.Runner{Client: live.Client, Namespace: metav1.NamespaceDefault, Clock: live.Environment.Clock, Wait: func(ctx context.Context) error {
		live.Elapse(ctx, 10*time.Second)
		return nil
	}}
	lo.Must(runner.Run(ctx, proposal))
}

// repacked repacks a cluster that has settled, and returns the bill at which it settles then, with the evictions of the repack alone.
func (b *bench) repacked(
	ctx context.Context, live *randomcluster.Live, before *randomcluster.Bill, quiet time.Duration,
) *randomcluster.Bill {
	b.repack(ctx, live)
	bill := live.Settle(ctx, nil, quiet)
	bill.Evictions -= before.Evictions
	return bill
}
