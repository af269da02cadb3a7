// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package offline_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/offline"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

func TestOffline(t *testing.T) { suite.Run(t, "Offline") }

var _ = Describe("The embedded catalog", func() {
	It("should be what the client reads from the sandbox", func(ctx context.Context) {
		sandbox := cloud.Start(cloud.Options{})
		DeferCleanup(sandbox.Close)
		want, err := connect.Catalog(ctx, connect.Client(ctx, sandbox)).Snapshot()
		Expect(err).NotTo(HaveOccurred())
		embedded := catalog.NewDefaultProvider(offline.NewAPI(), clock.RealClock{}, catalog.Config{})
		Expect(embedded.Refresh(ctx)).To(Succeed())
		got, err := embedded.Snapshot()
		Expect(err).NotTo(HaveOccurred())
		a, b := *want, *got
		a.BKEReadAt, b.BKEReadAt, a.Seq, b.Seq = time.Time{}, time.Time{}, 0, 0
		Expect(b).To(Equal(a), "make generate writes it")
	})
})
