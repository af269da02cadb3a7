// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	catalogcontroller "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

func TestCatalogController(t *testing.T) { suite.Run(t, "Catalog controller") }

var _ = Describe("catalog.refresh", func() {
	var provider *counting
	var controller *catalogcontroller.Controller

	BeforeEach(func() {
		provider = &counting{}
		controller = catalogcontroller.NewController(provider, options.NewStore(options.Defaults()))
	})
	It("should be known by its name", func() { Expect(controller.Name()).To(Equal("catalog.refresh")) })
	It("should refresh and come back after the interval, not all replicas at once", func(ctx context.Context) {
		seen := map[time.Duration]bool{}
		for range 20 {
			result := lo.Must(controller.Reconcile(ctx))
			Expect(result.RequeueAfter).To(And(BeNumerically(">=", 10*time.Minute), BeNumerically("<=", 12*time.Minute)))
			seen[result.RequeueAfter] = true
		}
		Expect(provider.refreshes.Load()).To(BeEquivalentTo(20))
		Expect(len(seen)).To(BeNumerically(">", 1))
	})
	It("should come back soon after a failure, without the workqueue's own backoff", func(ctx context.Context) {
		provider.err = errors.New("the cloud does not answer")
		result := lo.Must(controller.Reconcile(ctx))
		Expect(result.RequeueAfter).To(And(BeNumerically(">=", 30*time.Second), BeNumerically("<=", 36*time.Second)))
	})
	It("should come back soon while it is not known which BKE cluster this is", func(ctx context.Context) {
		provider.snapshot = &catalog.Snapshot{ClusterUnknown: true}
		result := lo.Must(controller.Reconcile(ctx))
		Expect(result.RequeueAfter).To(And(BeNumerically(">=", 30*time.Second), BeNumerically("<=", 36*time.Second)))
	})
	It("should come back after the interval that is tuned", func(ctx context.Context) {
		settings := options.NewStore(options.Defaults())
		controller = catalogcontroller.NewController(provider, settings)
		tuned := options.Defaults()
		tuned.CatalogInterval = time.Minute
		settings.Store(tuned)
		result := lo.Must(controller.Reconcile(ctx))
		Expect(result.RequeueAfter).To(And(BeNumerically(">=", time.Minute), BeNumerically("<=", 72*time.Second)))
	})
	It("should have defaults", func(ctx context.Context) {
		result := lo.Must(catalogcontroller.NewController(provider, options.NewStore(options.Defaults())).Reconcile(ctx))
		Expect(result.RequeueAfter).To(BeNumerically(">=", options.Defaults().CatalogInterval))
	})
	It("should run on a replica that is not the leader", func(ctx context.Context) {
		suite.UseControlPlane()
		env := coretest.NewEnvironment()
		DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
		Expect(env.Client.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "lease", Namespace: "default"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: lo.ToPtr("another"), LeaseDurationSeconds: lo.ToPtr[int32](3600), RenewTime: lo.ToPtr(metav1.NowMicro()),
			},
		})).To(Succeed())
		manager, err := controllerruntime.NewManager(env.Config, controllerruntime.Options{
			LeaderElection: true, LeaderElectionID: "lease", LeaderElectionNamespace: "default", Metrics: server.Options{BindAddress: "0"},
			Controller: config.Controller{SkipNameValidation: lo.ToPtr(true)},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(controller.Register(ctx, manager)).To(Succeed())
		managerContext, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- manager.Start(managerContext) }()
		Eventually(ctx, provider.refreshes.Load).Should(BeNumerically(">=", 1))
		Expect(manager.Elected()).NotTo(BeClosed())
		stop()
		Eventually(ctx, done).Should(Receive())
	})
})

// counting is a catalog that only counts.
type counting struct {
	refreshes atomic.Int64
	err       error
	snapshot  *catalog.Snapshot
}

func (c *counting) Snapshot() (*catalog.Snapshot, error) {
	return c.snapshot, lo.Ternary(c.snapshot == nil, catalog.ErrNotReady, nil)
}

func (c *counting) Refresh(context.Context) error {
	c.refreshes.Add(1)
	return c.err
}
