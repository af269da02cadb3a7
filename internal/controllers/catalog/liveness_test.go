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

package catalog_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	catalogcontroller "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// hanging is a catalog whose refresh ends when the spec lets it, whatever its context says.
type hanging struct {
	counting
	begun, release chan struct{}
}

func (h *hanging) Refresh(ctx context.Context) error {
	close(h.begun)
	<-h.release
	return h.counting.Refresh(ctx)
}

var _ = Describe("Liveness of catalog.refresh", func() {
	var clk *clocktesting.FakeClock
	var config catalogcontroller.Config

	BeforeEach(func() {
		clk = clocktesting.NewFakeClock(time.Now())
		config = catalogcontroller.Config{Backoff: 30 * time.Second, Clock: clk}
	})

	It("should be alive before its first run, which waits for the caches", func() {
		Expect(catalogcontroller.NewController(&counting{}, config).Stuck(clk.Now().Add(time.Hour))).To(Succeed())
	})
	It("should be alive while it runs, also when every refresh fails for an hour", func(ctx context.Context) {
		controller := catalogcontroller.NewController(&counting{err: errors.New("the cloud does not answer")}, config)
		for range 120 {
			_, err := controller.Reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(controller.Stuck(clk.Now())).To(Succeed())
			clk.Step(30 * time.Second)
		}
	})
	It("should be stuck when no run comes for several intervals", func(ctx context.Context) {
		controller := catalogcontroller.NewController(&counting{}, config)
		result, err := controller.Reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		clk.Step(result.RequeueAfter * 4)
		Expect(controller.Stuck(clk.Now())).To(Succeed())
		clk.Step(time.Second)
		Expect(controller.Stuck(clk.Now())).To(MatchError(ContainSubstring("the controller that refreshes the catalog hangs")))
		_, err = controller.Reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(controller.Stuck(clk.Now())).To(Succeed())
	})
	It("should be stuck when a refresh does not heed its deadline", func(ctx context.Context) {
		provider := &hanging{begun: make(chan struct{}), release: make(chan struct{})}
		controller := catalogcontroller.NewController(provider, config)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = controller.Reconcile(ctx)
		}()
		Eventually(provider.begun).WithTimeout(10 * time.Second).Should(BeClosed())
		clk.Step(5 * ttl.CatalogRefresh)
		Expect(controller.Stuck(clk.Now())).To(Succeed())
		clk.Step(time.Second)
		Expect(controller.Stuck(clk.Now())).To(MatchError(ContainSubstring("the refresh of the catalog hangs")))
		close(provider.release)
		Eventually(done).WithTimeout(10 * time.Second).Should(BeClosed())
		Expect(controller.Stuck(clk.Now())).To(Succeed())
	})
})
