// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/nodesize"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Nodes that see less memory than is advertised", func() {
	const name = "p2.4c_8g"
	var pool *karpv1.NodePool
	poolOf := func(flavors ...string) {
		pool = ready(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavors...)))
	}
	// planned is the memory that pods may have on a node of the flavor, as core plans with it.
	planned := func() resource.Quantity {
		GinkgoHelper()
		return typesOf(env.CloudProvider, pool)[name].Allocatable()[corev1.ResourceMemory]
	}
	// filling are n pods that together leave nothing of what is planned.
	filling := func(n int64) []*corev1.Pod {
		GinkgoHelper()
		all := planned()
		each := resource.NewQuantity(all.Value()/n, resource.BinarySI)
		return coretest.UnschedulablePods(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: *each, corev1.ResourceCPU: resource.MustParse("50m")},
		}}, int(n))
	}
	nodes := func() []*corev1.Node { return expectations.ExpectNodes(ctx, env.Client) }

	DescribeTable("should need one node for what is packed onto one, before and after it has learned", func(overhead float64) {
		poolOf(name)
		tc := newTestCluster(overhead)
		estimated := planned()
		Expect(tc.settle(filling(1)...)).To(BeEmpty())
		Expect(nodes()).To(HaveLen(1))

		learned := planned()
		Expect(learned.Cmp(estimated)).To(BeNumerically(">", 0), "nothing was learned")
		seen := nodes()[0].Status.Allocatable[corev1.ResourceMemory]
		Expect(learned.Cmp(seen)).To(BeNumerically("<=", 0), "more is planned than there is")
		wasted := seen.DeepCopy()
		wasted.Sub(learned)
		Expect(wasted.Value()>>20).To(BeNumerically("<", 150), "capacity is wasted")

		Expect(tc.settle(filling(1)...)).To(BeEmpty())
		Expect(nodes()).To(HaveLen(2))
		Expect(tc.settle(append(filling(2), filling(3)...)...)).To(BeEmpty())
		Expect(nodes()).To(HaveLen(4))

		// A new process learns it from the nodes that exist.
		env.Restart(ctx)
		sizes := nodesize.NewController(env.Client, env.Flavors, env.Recorder)
		for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
			Expect(sizes.Reconcile(ctx, claim)).To(BeZero())
		}
		known := planned()
		Expect(known.Cmp(learned)).To(BeZero())
	},
		Entry("by 2 %", 0.02),
		Entry("by 4.5 %", 0.045),
		Entry("by 7 %", 0.07),
	)
	It("should carry the labels that the cloud controller manager writes, byte for byte", func() {
		poolOf(name)
		tc := newTestCluster(0.04)
		Expect(tc.settle(filling(1)...)).To(BeEmpty())
		planned := expectations.ExpectNodeClaims(ctx, env.Client)[0].Labels
		Expect(planned).To(HaveKeyWithValue(corev1.LabelTopologyRegion, cloud.RegionHN))
		Expect(planned).To(HaveKeyWithValue(corev1.LabelTopologyZone, env.Servers()[0].AvailabilityZone))
		Expect(planned).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, env.Servers()[0].Flavor.Name))
		for _, key := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable} {
			Expect(nodes()[0].Labels).To(HaveKeyWithValue(key, planned[key]))
		}
	})
	It("should have the disk that is planned", func() {
		poolOf(name)
		tc := newTestCluster(0.04)
		disk := typesOf(env.CloudProvider, pool)[name].Allocatable()[corev1.ResourceEphemeralStorage]
		Expect(tc.settle(coretest.UnschedulablePod(coretest.PodOptions{
			ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceEphemeralStorage: disk}},
		}))).To(BeEmpty())
		Expect(nodes()).To(HaveLen(1))
	})
	It("should not be launched in a loop when the estimate was too high", func() {
		poolOf(name, "p2.4c_16g")
		env.Tune(func(o *options.Options) { o.MemoryOverheadPercent = 0 })
		tc := newTestCluster(0.07)
		Expect(tc.settle(filling(1)...)).To(BeEmpty())
		// The first node has taught that the flavor is too small for the pod.
		Expect(lo.CountValuesBy(nodes(), func(n *corev1.Node) string { return n.Labels[corev1.LabelInstanceTypeStable] })).
			To(Equal(map[string]int{name: 1, "p2.4c_16g": 1}))
		Expect(tc.settle(filling(2)...)).To(BeEmpty())
		Expect(nodes()).To(HaveLen(2), "the capacity of the first node is not used")
	})
	It("should be launched too small once, and never again, when nothing larger is allowed", func() {
		poolOf(name)
		env.Tune(func(o *options.Options) { o.MemoryOverheadPercent = 0 })
		tc := newTestCluster(0.07)
		Expect(tc.settle(filling(1)...)).To(HaveLen(1))
		Expect(nodes()).To(HaveLen(1))
	})
})
