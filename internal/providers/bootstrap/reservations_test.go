// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// amounts are quantities as text, which compare where quantities of different formats do not.
func amounts(list corev1.ResourceList) map[string]string {
	texts := map[string]string{}
	for name, quantity := range list {
		texts[string(name)] = quantity.String()
	}
	return texts
}

func withKubelet(kubelet *v1alpha1.KubeletConfiguration) *v1alpha1.BizflyNodeClass {
	nodeClass := custom("#!/bin/bash")
	nodeClass.Spec.Kubelet = kubelet
	return nodeClass
}

var _ = Describe("Reservations", func() {
	It("should be what BKE answers for the one size that is public", func() {
		reserved := provider().Reservations(bke(), 2, 1977, 40<<30)
		Expect(reserved.MaxPods).To(BeEquivalentTo(110))
		Expect(amounts(reserved.Kept)).To(Equal(map[string]string{"cpu": "70m", "memory": "594Mi", "ephemeral-storage": "4Gi"}),
			"20m and 100Mi for the system, 50m and 394Mi for the kubelet, and 100Mi below which it evicts pods")
	})
	DescribeTable("should grow with the server", func(cpu, memoryMiB int, keptCPU, keptMemory string) {
		Expect(amounts(provider().Reservations(bke(), cpu, memoryMiB, 40<<30).Kept)).To(
			And(HaveKeyWithValue("cpu", keptCPU), HaveKeyWithValue("memory", keptMemory)))
	},
		Entry("1 vCPU, 1 GiB", 1, 1024, "60m", "356Mi"),
		Entry("4 vCPU, 8 GiB", 4, 8192, "80m", "1943Mi"),
		Entry("8 vCPU, 16 GiB", 8, 16384, "90m", "2762Mi"),
		Entry("32 vCPU, 128 GiB", 32, 131072, "150m", "9643Mi"),
		Entry("64 vCPU, 256 GiB", 64, 262144, "230m", "12265Mi"),
	)
	It("should be what the NodeClass sets for the worker image in BKE mode", func() {
		nodeClass := bke()
		Expect(provider().Reservations(nodeClass, 2, 4096, 40<<30).Configured).To(BeFalse())
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{ClusterDNS: []string{"10.96.0.10"}}
		Expect(provider().Reservations(nodeClass, 2, 4096, 40<<30).Configured).To(BeFalse(), "without effect")
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{MaxPods: lo.ToPtr(int32(10)), KubeReserved: map[string]string{"cpu": "1"}}
		reserved := provider().Reservations(nodeClass, 2, 4096, 40<<30)
		Expect(reserved.Configured).To(BeTrue())
		Expect(reserved.MaxPods).To(BeEquivalentTo(10))
		Expect(amounts(reserved.Kept)).To(HaveKeyWithValue("cpu", "1020m"))
	})
	DescribeTable("should follow the NodeClass in Custom mode", func(kubelet *v1alpha1.KubeletConfiguration, part func(bootstrap.Reservations) any, want any) {
		Expect(part(provider().Reservations(withKubelet(kubelet), 4, 8192, 100<<30))).To(Equal(want))
	},
		Entry("maxPods", &v1alpha1.KubeletConfiguration{MaxPods: lo.ToPtr(int32(250))},
			func(r bootstrap.Reservations) any { return r.MaxPods }, int32(250)),
		Entry("kubeReserved, with defaults for the rest", &v1alpha1.KubeletConfiguration{KubeReserved: map[string]string{"memory": "2Gi",
			"ephemeral-storage": "1Gi"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "80m", "memory": "2248Mi", "ephemeral-storage": "11Gi"}),
		Entry("systemReserved, with defaults for the rest", &v1alpha1.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "0.5"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "560m", "memory": "1943Mi", "ephemeral-storage": "10Gi"}),
		Entry("evictionHard as quantities", &v1alpha1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "500Mi", "nodefs.available": "5Gi"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "80m", "memory": "2343Mi", "ephemeral-storage": "5Gi"}),
		Entry("evictionHard as percentages", &v1alpha1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "12.5%", "nodefs.available": "20%"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "80m", "memory": "2867Mi", "ephemeral-storage": "20Gi"}),
		Entry("podsPerCore where it is lower than maxPods", &v1alpha1.KubeletConfiguration{PodsPerCore: lo.ToPtr(int32(10))},
			func(r bootstrap.Reservations) any { return r.MaxPods }, int32(40)),
		Entry("podsPerCore where it is not", &v1alpha1.KubeletConfiguration{PodsPerCore: lo.ToPtr(int32(100)), MaxPods: lo.ToPtr(int32(60))},
			func(r bootstrap.Reservations) any { return r.MaxPods }, int32(60)),
		Entry("evictionHard alone where evictionSoft is higher, as the kubelet does",
			&v1alpha1.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "5%", "nodefs.available": "15%"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "80m", "memory": "1943Mi", "ephemeral-storage": "10Gi"}),
		Entry("and survive what is no quantity", &v1alpha1.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "much", "memory": "-1Gi"},
			EvictionHard: map[string]string{"memory.available": "x%", "nodefs.available": "y"}},
			func(r bootstrap.Reservations) any { return amounts(r.Kept) }, map[string]string{"cpu": "20m", "memory": "100Mi", "ephemeral-storage": "0"}),
	)
})
