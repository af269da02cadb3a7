// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// readyClass creates a NodeClass that leaves everything to discovery, and returns its name.
func readyClass() string {
	GinkgoHelper()
	class := nodeClass(v1alpha1.BizflyNodeClassSpec{})
	create(class)
	Eventually(func(g Gomega) {
		g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: class.Name}, class)).To(Succeed())
		g.Expect(class.StatusConditions().Root().IsTrue()).To(BeTrue(), "%+v", class.Status.Conditions)
	}).Should(Succeed())
	return class.Name
}

// readyPool creates such a NodeClass, and a NodePool.
func readyPool(requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	GinkgoHelper()
	pool := nodePool(readyClass(), requirements...)
	create(pool)
	return pool
}

var _ = Describe("Scaling", func() {
	It("should launch servers in every zone for spread pods, and delete them after the pods", func() {
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
	It("should replace two servers by a cheaper one where the capacity type is open", func() {
		pool := readyPool(karpv1.NodeSelectorRequirementWithMinValues{
			Key: v1alpha1.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{"premium"},
		})
		stored := pool.DeepCopy()
		pool.Spec.Template.Spec.Requirements = lo.Reject(pool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool {
			return r.Key == karpv1.CapacityTypeLabelKey
		})
		pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		Expect(env.Client().Patch(ctx, pool, client.MergeFrom(stored))).To(Succeed())
		// One of them fits on a server of 8 GiB, and both on one of 16.
		web := deployment(pool, 1, func(pod *corev1.PodSpec) {
			pod.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("600m"), corev1.ResourceMemory: resource.MustParse("5Gi"),
			}
		})
		create(web)
		Eventually(func(g Gomega) { g.Expect(running(g, web)).To(HaveLen(1)) }).Should(Succeed())
		first := servers(Default, pool)
		smaller := web.DeepCopy()
		web.Spec.Replicas = lo.ToPtr[int32](2)
		Expect(env.Client().Patch(ctx, web, client.MergeFrom(smaller))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(running(g, web)).To(HaveLen(2))
			g.Expect(servers(g, pool)).To(ConsistOf(And(HaveField("Flavor.RAM", 16<<10), Not(HaveField("ID", first[0].ID)))))
		}).Should(Succeed())
		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should leave one server per claim when the controller is killed while it launches", func() {
		pool := readyPool()
		web := deployment(pool, 4, environment.Apart)
		create(web)
		Eventually(func(g Gomega) { g.Expect(servers(g, pool)).NotTo(BeEmpty()) }).Should(Succeed())
		Expect(env.Controller().Kill()).To(Succeed())
		Expect(env.StartController(ctx, nil)).Error().NotTo(HaveOccurred())

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
