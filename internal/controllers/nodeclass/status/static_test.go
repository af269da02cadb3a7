// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("A NodeClass of static NodePools", func() {
	const flavor = "nix.2c_4g"
	var w *setup
	pool := func(name string, replicas *int64) *karpv1.NodePool {
		GinkgoHelper()
		made := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavor))
		made.Name, made.Spec.Replicas, made.Spec.Template.Spec.NodeClassRef.Name = name, replicas, "general"
		if replicas != nil {
			made.Spec.Weight, made.Spec.Limits = nil, nil
		}
		Expect(env.Client.Create(ctx, made)).To(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client.Delete(ctx, made))).To(Succeed()) })
		return made
	}
	flavors := func() string {
		GinkgoHelper()
		nodeClass, result := w.look()
		found := condition(nodeClass, v1alpha1.ConditionTypeFlavorsReady)
		if found.IsFalse() {
			Expect(ready(nodeClass).IsFalse()).To(BeTrue())
			Expect(result.RequeueAfter).To(Equal(10 * time.Second))
		}
		return found.Reason
	}
	BeforeEach(func() {
		w = newSetup(nil)
		apply("")
		w.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: flavor}, capacity.ReasonInsufficientCapacity, time.Hour)
	})
	It("should not be ready while nothing that they lack can be launched", func() {
		pool("static", lo.ToPtr[int64](1))
		Eventually(flavors).Should(Equal("NothingLaunchable"))
		w.Capacity.MarkAvailable(capacity.Offering{Flavor: flavor})
		Expect(flavors()).To(Equal(v1alpha1.ConditionTypeFlavorsReady))
	})
	It("should not be ready while fewer values than minValues of one ask for can be launched", func() {
		static := pool("static", lo.ToPtr[int64](1))
		static.Spec.Template.Spec.Requirements[0].Values = append(static.Spec.Template.Spec.Requirements[0].Values, "nix.2c_2g")
		Expect(env.Client.Update(ctx, static)).To(Succeed())
		Eventually(flavors).Should(Equal(v1alpha1.ConditionTypeFlavorsReady))
		static.Spec.Template.Spec.Requirements[0].MinValues = lo.ToPtr(2)
		Expect(env.Client.Update(ctx, static)).To(Succeed())
		Eventually(flavors).Should(Equal("NothingLaunchable"))
	})
	It("should be ready while they have their nodes", func() {
		static := pool("static", lo.ToPtr[int64](1))
		claim := &karpv1.NodeClaim{}
		claim.Name, claim.Labels = "static-1", map[string]string{karpv1.NodePoolLabelKey: static.Name}
		claim.Spec.NodeClassRef, claim.Spec.Requirements = static.Spec.Template.Spec.NodeClassRef, []karpv1.NodeSelectorRequirementWithMinValues{}
		Expect(env.Client.Create(ctx, claim)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(ctx, claim)).To(Succeed()) })
		Eventually(flavors).Should(Equal("NothingLaunchable"))
		claim.Status.ProviderID = "bizflycloud://5f1f2a5e-0000-4000-8000-00000000000a"
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		Eventually(flavors).Should(Equal(v1alpha1.ConditionTypeFlavorsReady))
	})
	It("should be ready while one has as many nodes as its limit allows", func() {
		static := pool("static", lo.ToPtr[int64](1))
		Eventually(flavors).Should(Equal("NothingLaunchable"))
		static.Spec.Limits = karpv1.Limits{resources.Node: resource.MustParse("0")}
		Expect(env.Client.Update(ctx, static)).To(Succeed())
		Eventually(flavors).Should(Equal(v1alpha1.ConditionTypeFlavorsReady))
	})
	It("should be ready while one that lacks nodes is being deleted", func() {
		static := pool("static", lo.ToPtr[int64](1))
		static.Finalizers = []string{"example.test/drain"}
		Expect(env.Client.Update(ctx, static)).To(Succeed())
		Eventually(flavors).Should(Equal("NothingLaunchable"))
		Expect(env.Client.Delete(ctx, static)).To(Succeed())
		DeferCleanup(func() {
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(static), static)).To(Succeed())
			static.Finalizers = nil
			Expect(env.Client.Update(ctx, static)).To(Succeed())
		})
		Eventually(flavors).Should(Equal(v1alpha1.ConditionTypeFlavorsReady))
	})
	It("should be ready for other NodePools", func() {
		pool("static", lo.ToPtr[int64](1))
		Eventually(flavors).Should(Equal("NothingLaunchable"))
		pool("dynamic", nil)
		Eventually(flavors).Should(Equal(v1alpha1.ConditionTypeFlavorsReady))
	})
})
