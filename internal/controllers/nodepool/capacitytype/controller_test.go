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

package capacitytype_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodepool/capacitytype"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

var _ = Describe("The capacity types of a NodePool", func() {
	reconciled := func(pool *karpv1.NodePool) *karpv1.NodePool {
		GinkgoHelper()
		live := &karpv1.NodePool{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(pool), live)).To(Succeed())
		Expect(capacitytype.NewController(env.APIReader, env.Recorder, env.Clock).Reconcile(ctx, live)).To(BeZero())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(pool), live)).To(Succeed())
		return live
	}
	poolOf := func(operator corev1.NodeSelectorOperator, values ...string) *karpv1.NodePool {
		GinkgoHelper()
		pool := unit.NodePool(unit.Requirement(karpv1.CapacityTypeLabelKey, operator, values...))
		expectations.ExpectApplied(ctx, env.Client, pool)
		return pool
	}

	DescribeTable("should be rejected with the reason and the alternative, before there is a pod",
		func(operator corev1.NodeSelectorOperator, values ...string) {
			pool := reconciled(poolOf(operator, values...))
			condition := pool.StatusConditions().Get(capacitytype.ConditionTypeCapacityTypeSupported)
			Expect(condition.IsFalse()).To(BeTrue())
			Expect(condition.Reason).To(Equal(events.ReasonCapacityTypeUnsupported))
			for _, part := range []string{"neither spot nor reserved", "prepaid", "on-demand", "spec.billingPlan", "SavingPlan", "spec.replicas"} {
				Expect(condition.Message).To(ContainSubstring(part))
			}
			Expect(env.Recorder.Calls(events.ReasonCapacityTypeUnsupported)).To(Equal(1))
			Expect(env.Recorder.DetectedEvent(condition.Message)).To(BeTrue())
		},
		Entry("spot", corev1.NodeSelectorOpIn, "spot"),
		Entry("reserved", corev1.NodeSelectorOpIn, "reserved"),
		Entry("both", corev1.NodeSelectorOpIn, "spot", "reserved"),
		Entry("all but on-demand", corev1.NodeSelectorOpNotIn, "on-demand"),
	)
	DescribeTable("should be left alone when on-demand is among them",
		func(operator corev1.NodeSelectorOperator, values ...string) {
			pool := poolOf(operator, values...)
			before := pool.ResourceVersion
			Expect(reconciled(pool).ResourceVersion).To(Equal(before))
			Expect(env.Recorder.Events()).To(BeEmpty())
		},
		Entry("alone", corev1.NodeSelectorOpIn, "on-demand"),
		Entry("beside spot", corev1.NodeSelectorOpIn, "spot", "on-demand"),
		Entry("by not being excluded", corev1.NodeSelectorOpNotIn, "spot"),
	)
	It("should not touch what core says of the NodePool", func() {
		pool := poolOf(corev1.NodeSelectorOpIn, "spot")
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		Expect(env.Client.Status().Update(ctx, pool)).To(Succeed())
		Expect(pool.StatusConditions().Root().IsTrue()).To(BeTrue())
		Expect(reconciled(pool).StatusConditions().Root().IsTrue()).To(BeTrue())
	})
	It("should be forgiven once they are corrected", func() {
		pool := reconciled(poolOf(corev1.NodeSelectorOpIn, "spot"))
		pool.Spec.Template.Spec.Requirements[0].Values = []string{"on-demand"}
		Expect(env.Client.Update(ctx, pool)).To(Succeed())
		Expect(reconciled(pool).StatusConditions().Get(capacitytype.ConditionTypeCapacityTypeSupported)).To(BeNil())
	})
	It("should say it once, however often it is asked", func() {
		pool := reconciled(poolOf(corev1.NodeSelectorOpIn, "spot"))
		version := pool.ResourceVersion
		Expect(reconciled(pool).ResourceVersion).To(Equal(version))
	})
	It("should be another provider's business when the NodeClass is", func() {
		pool := coretest.NodePool()
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn,
			"spot")}
		expectations.ExpectApplied(ctx, env.Client, pool)
		Expect(reconciled(pool).StatusConditions().Get(capacitytype.ConditionTypeCapacityTypeSupported)).To(BeNil())
	})
})
