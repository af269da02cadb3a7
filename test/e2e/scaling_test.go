// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// readyPool creates a NodeClass that leaves everything to discovery, and a NodePool.
func readyPool(requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	GinkgoHelper()
	class := nodeClass(v1alpha1.BizflyNodeClassSpec{})
	create(class)
	Eventually(func(g Gomega) {
		g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: class.Name}, class)).To(Succeed())
		g.Expect(class.StatusConditions().Root().IsTrue()).To(BeTrue(), "%+v", class.Status.Conditions)
	}).Should(Succeed())
	pool := nodePool(class.Name, requirements...)
	create(pool)
	return pool
}

var _ = Describe("Scaling", func() {
	It("should launch servers in every zone for pods that must be spread, and delete them when the pods are gone", func() {
		pool := readyPool()
		web := deployment(pool, 4)
		web.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web.Spec.Selector,
		}}
		create(web)
		Eventually(func(g Gomega) { g.Expect(running(g, web)).To(HaveLen(4)) }).Should(Succeed())

		zones := map[string]int{}
		for _, pod := range running(Default, web) {
			node := &corev1.Node{}
			Expect(env.Client().Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)).To(Succeed())
			zones[node.Labels[corev1.LabelTopologyZone]]++
		}
		Expect(zones).To(Equal(map[string]int{"HN1": 2, "HN2": 2}))
		Expect(lo.Uniq(lo.Map(servers(Default, pool), func(s cloud.Server, _ int) string { return s.ZoneName }))).To(ConsistOf("HN1", "HN2"))

		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
	})

	It("should leave one server per claim when the controller is killed while it launches", func() {
		pool := readyPool()
		web := deployment(pool, 4, environment.Apart)
		create(web)
		Eventually(func(g Gomega) { g.Expect(servers(g, pool)).NotTo(BeEmpty()) }).Should(Succeed())
		Expect(env.Controller().Kill()).To(Succeed())
		_, err := env.StartController(ctx, nil)
		Expect(err).NotTo(HaveOccurred())

		Eventually(func(g Gomega) { g.Expect(running(g, web)).To(HaveLen(4)) }).Should(Succeed())
		Eventually(func(g Gomega) {
			claimed := lo.Map(claims(g, pool), func(c karpv1.NodeClaim, _ int) string { return c.Status.ProviderID })
			existing := lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return providerid.New(s.ID) })
			g.Expect(existing).To(ConsistOf(claimed))
			g.Expect(existing).To(HaveLen(4))
		}).Should(Succeed())

		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
	})
})
