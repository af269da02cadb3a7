// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/readiness"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	staticdeprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/deprovisioning"
	staticprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// counting counts the NodeClaims that core creates.
type counting struct {
	client.Client
	claims *atomic.Int64
}

func (c counting) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*karpv1.NodeClaim); ok {
		c.claims.Add(1)
	}
	return c.Client.Create(ctx, o, opts...)
}

// Core's own controllers run here: its static provisioning asks for no offering.
var _ = Describe("A static NodePool of which nothing can be launched", func() {
	It("should let core schedule for all others, and get its nodes once an offering is available", func() {
		gates := coretest.FeatureGates{StaticCapacity: lo.ToPtr(true)}
		ctx := coreoptions.ToContext(context.Background(), coretest.Options(coretest.OptionsFields{FeatureGates: gates}))
		env.Sandbox.SetStock("p2.2c_4g", "*", "*", 0)
		m := unit.NewManager(env.Environment.Config)
		kube, clk := counting{m.GetClient(), &atomic.Int64{}}, clock.RealClock{}
		cluster := state.NewCluster(clk, kube, env.CloudProvider)
		virtual := virtualpods.NewVirtualPodCache(kube)
		// One cache for events and reads, as in the controller: an event whose object another cache does not have yet is the last one.
		Expect(coretest.NodePoolNodeClassRefFieldIndexer(ctx)(m.GetCache())).To(Succeed())
		Expect(status.NewController(kube, clk, env.Catalog, env.Images, env.Networks, env.Bootstrap, env.Flavors).
			Register(ctx, m)).To(Succeed())
		Expect(readiness.NewController(clk, kube, env.CloudProvider).Register(ctx, m)).To(Succeed())
		Expect(informer.NewNodeClaimController(kube, env.CloudProvider, cluster, cost.NewClusterCost(ctx, env.CloudProvider, kube)).Register(ctx, m)).
			To(Succeed())
		static := staticprovisioning.NewController(kube, cluster, env.Recorder, env.CloudProvider, nil, clk, deviceallocation.NewController(kube), virtual)
		deprovisioning := staticdeprovisioning.NewController(kube, cluster, env.CloudProvider, clk, env.Recorder)
		for _, held := range env.CloudProvider.HoldStaticPools(cluster, []controller.Controller{static, deprovisioning}) {
			Expect(held).ToNot(Or(BeIdenticalTo(static), BeIdenticalTo(deprovisioning)))
			Expect(held.Register(ctx, m)).To(Succeed())
		}
		Expect(lifecycle.NewController(clk, kube, env.CloudProvider, env.Recorder, cluster, nodepoolhealth.NewState(), nil).Register(ctx, m)).To(Succeed())
		pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
		pool.Spec.Replicas, pool.Spec.Limits = lo.ToPtr(int64(3)), nil
		ready(pool)
		unit.RunManager(ctx, m)

		claims := func() []karpv1.NodeClaim {
			list := &karpv1.NodeClaimList{}
			Expect(env.APIReader.List(ctx, list)).To(Succeed())
			return list.Items
		}
		Eventually(func() int { return env.Recorder.Calls("StaticNodePoolWaits") }).Should(BeNumerically(">", 0))
		// What core had begun before it read that comes to an end first. Whenever core looks from then on, it creates nothing.
		Eventually(func(g Gomega) {
			g.Expect(claims()).To(BeEmpty())
			g.Expect(cluster.Synced(ctx)).To(BeTrue())
			created := kube.claims.Load()
			g.Expect(env.CloudProvider.LaunchablePools(kube).Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			g.Expect(static.Reconcile(ctx, pool)).Error().ToNot(HaveOccurred())
			g.Expect(kube.claims.Load()).To(Equal(created))
		}).WithTimeout(time.Minute).Should(Succeed())

		env.Sandbox.SetStock("p2.2c_4g", "*", "*", 10)
		for _, zone := range []string{"HN1", "HN2"} {
			env.Capacity.MarkAvailable(capacity.Offering{Flavor: "p2.2c_4g", Zone: zone, BillingPlan: "on_demand"})
		}
		Eventually(claims).WithTimeout(time.Minute).Should(And(HaveLen(3), HaveEach(HaveField("Status.ProviderID", Not(BeEmpty())))))

		three := pool.DeepCopy()
		pool.Spec.Replicas = lo.ToPtr(int64(1))
		Expect(kube.Patch(ctx, pool, client.MergeFrom(three))).To(Succeed())
		Eventually(func() []karpv1.NodeClaim {
			return lo.Filter(claims(), func(claim karpv1.NodeClaim, _ int) bool { return claim.DeletionTimestamp.IsZero() })
		}).Should(HaveLen(1))
	})
})
