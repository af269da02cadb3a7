// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

// workload is a Deployment for the sample's pool.
func workload(name string, replicas int32, changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	return environment.Deployment(name, replicas, append([]func(*corev1.PodSpec){environment.OnPool("kubeadm"), func(spec *corev1.PodSpec) {
		spec.Containers[0].Image = repository(pauseImage) + ":v1"
		spec.Tolerations = []corev1.Toleration{{Key: "example.com/kubeadm", Operator: corev1.TolerationOpExists}}
	}}, changes...)...)
}

// running are the pods of a workload that are ready.
func running(g Gomega, name string) []corev1.Pod {
	var pods []corev1.Pod
	for _, pod := range listed(g, &corev1.PodList{}, client.InNamespace(corev1.NamespaceDefault), client.MatchingLabels{"app": name}).Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

var _ = Describe("A cluster of kubeadm", Ordered, func() {
	const pool = "kubeadm"

	BeforeAll(func() {
		apply("kubeadm", "nodeclass.yaml")
		apply("kubeadm", "nodepool.yaml")
	})

	It("should run pending pods on a server that joined by the sample's user data", func() {
		began := time.Now()
		Expect(env.Client().Create(ctx, workload("web", 3))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(running(g, "web")).To(HaveLen(3)) }).Should(Succeed())
		AddReportEntry("pods pending to Running", time.Since(began).Round(100*time.Millisecond).String())
		for _, node := range nodesOf(Default, pool) {
			Expect(node.Labels).To(HaveKeyWithValue("karpenter.sh/initialized", "true"))
			Expect(node.Status.NodeInfo.ContainerRuntimeVersion).To(HavePrefix("containerd://2."))
		}
	})

	It("should drain the nodes as a PodDisruptionBudget allows, and delete their servers", func() {
		began := time.Now()
		Expect(env.Scale(ctx, types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "web"}, 0)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(claimsOf(g, pool)).To(BeEmpty())
			g.Expect(nodesOf(g, pool)).To(BeEmpty())
			g.Expect(serversOf(g, pool)).To(BeEmpty())
		}).Should(Succeed())
		AddReportEntry("scaled down to nothing left", time.Since(began).Round(100*time.Millisecond).String())
	})
})
