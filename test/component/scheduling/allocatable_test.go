// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Nodes whose worker image keeps more from pods than was estimated", func() {
	const name = "p2.4c_8g"
	var pool *karpv1.NodePool
	BeforeEach(func() {
		pool = ready(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, name)))
	})
	planned := func() corev1.ResourceList {
		GinkgoHelper()
		return typesOf(env.CloudProvider, pool)[name].Allocatable()
	}
	keeping := func(reserved corev1.ResourceList) *testCluster {
		h := newTestCluster(0.04)
		h.guests = guest.New(env.Sandbox.Cloud, guest.Options{
			Client: kubernetes.NewForConfigOrDie(env.Environment.Environment.Config), MemoryOverhead: 0.04, Ready: true, Reserved: reserved,
		})
		return h
	}
	// filling is a pod that leaves nothing of what is planned but 50m, which is for rounding.
	filling := func() *corev1.Pod {
		GinkgoHelper()
		cpu := planned()[corev1.ResourceCPU]
		cpu.Sub(resource.MustParse("50m"))
		return coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: cpu, corev1.ResourceMemory: planned()[corev1.ResourceMemory],
			corev1.ResourceEphemeralStorage: planned()[corev1.ResourceEphemeralStorage],
		}}})
	}
	nodes := func() int { return len(expectations.ExpectNodes(ctx, env.Client)) }

	DescribeTable("should be launched in vain a bounded number of times, then plan the true capacity",
		func(reserved corev1.ResourceList, unused int) {
			h := keeping(reserved)
			Expect(h.settle(filling())).To(HaveLen(1), "nothing holds the pod any more, and core knows it")
			Expect(nodes()).To(Equal(unused))
			node := expectations.ExpectNodes(ctx, env.Client)[0]
			for of, quantity := range planned() {
				Expect(quantity.Cmp(node.Status.Allocatable[of])).To(BeNumerically("<=", 0), "more %s is planned than there is", of)
			}
			Expect(h.settle(filling())).To(BeEmpty())
			Expect(nodes()).To(Equal(unused), "the nodes that were launched without use are used")
			for range unused {
				Expect(h.settle(filling())).To(BeEmpty())
			}
			Expect(nodes()).To(Equal(unused + 1))
		},
		Entry("once, for what one node shows", list("cpu", "200m", "memory", "600Mi", "ephemeral-storage", "2Gi"), 1),
		Entry("once, also where it differs much", list("cpu", "1500m", "memory", "3Gi", "ephemeral-storage", "15Gi"), 1),
	)
	It("should not be launched without use where the NodeClass sets what the image reserves", func() {
		class := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
		class.Spec.Kubelet = &v1alpha1.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "1600m", "memory": "3200Mi", "ephemeral-storage": "15Gi"}}
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(env.Resolve(ctx, class)).To(Succeed())
		h := keeping(list("cpu", "1500m", "memory", "3Gi", "ephemeral-storage", "15Gi"))
		Expect(h.settle(filling())).To(BeEmpty())
		Expect(h.settle(filling())).To(BeEmpty())
		Expect(nodes()).To(Equal(2))
	})
})
