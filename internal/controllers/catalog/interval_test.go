// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	catalogcontroller "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

var _ = Describe("The interval", func() {
	It("should refresh now and then in the new interval, while it waits for the end of the old one", func(ctx context.Context) {
		suite.UseControlPlane()
		env := coretest.NewEnvironment()
		DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
		manager := unit.NewManager(env.Config)
		provider := &counting{}
		every := func(interval time.Duration) *options.Options {
			o := options.Defaults()
			o.CatalogInterval = interval
			return o
		}
		settings := options.NewStore(every(time.Hour))
		controller := catalogcontroller.NewController(provider, settings)
		Expect(controller.Register(ctx, manager)).To(Succeed())
		managerContext, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- manager.Start(managerContext) }()
		Eventually(ctx, provider.refreshes.Load).Should(BeEquivalentTo(1))
		settings.Set(every(100 * time.Millisecond))
		Eventually(ctx, provider.refreshes.Load).Should(BeNumerically(">=", 4))
		stop()
		Eventually(ctx, done).Should(Receive())
	})
})
