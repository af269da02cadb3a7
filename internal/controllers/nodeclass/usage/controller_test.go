// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func stored() *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	nodeClass := &v1alpha1.BizflyNodeClass{}
	Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
	return nodeClass
}

func controller() *usage.Controller {
	return usage.NewController(env.Client, env.Recorder, env.Clock, env.CloudProvider)
}

// look reconciles the NodeClass once and returns what is stored then.
func look() *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	Expect(controller().Reconcile(ctx, stored())).Error().ToNot(HaveOccurred())
	nodeClass := stored()
	Expect(nodeClass.StatusConditions().Root().IsTrue()).To(BeTrue(), "Ready does not depend on it")
	return nodeClass
}

func condition(conditionType string) *status.Condition {
	GinkgoHelper()
	return look().StatusConditions(status.WithObservedOnly()).Get(conditionType)
}

var _ = Describe("The controller", func() {
	It("should not start conditions of others", func() {
		fresh := &v1alpha1.BizflyNodeClass{}
		fresh.Name = "fresh"
		Expect(env.Client.Create(ctx, fresh)).To(Succeed())
		Expect(controller().Reconcile(ctx, fresh)).Error().ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(fresh), fresh)).To(Succeed())
		Expect(lo.Map(fresh.Status.Conditions, func(c status.Condition, _ int) string { return c.Type })).To(ConsistOf(v1alpha1.ConditionTypeLaunchesSucceeding))
	})
	It("should write once and leave the order of others while nothing changes", func() {
		first := look()
		slices.Reverse(first.Status.Conditions)
		Expect(env.Client.Status().Update(ctx, first)).To(Succeed())
		Expect(look().ResourceVersion).To(Equal(first.ResourceVersion))
	})
	It("should leave the reasons that others have written as they are", func() {
		nodeClass := stored()
		nodeClass.StatusConditions().SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "no image")
		nodeClass.StatusConditions().Set(status.Condition{Type: status.ConditionReady, Status: "False", Reason: "ImageNotFound", Message: "ImagesReady: no image"})
		Expect(env.Client.Status().Update(ctx, nodeClass)).To(Succeed())
		before := stored()
		Expect(controller().Reconcile(ctx, before)).Error().ToNot(HaveOccurred())
		Expect(stored().Status.Conditions).To(ContainElements(lo.ToAnySlice(before.Status.Conditions)...))
		Expect(stored().StatusConditions().Root().Reason).To(Equal("ImageNotFound"))
	})
	It("should be retried soon after a conflict", func() {
		stale, fresh := stored(), stored()
		fresh.Labels = map[string]string{"a": "b"}
		Expect(env.Client.Update(ctx, fresh)).To(Succeed())
		result := lo.Must(controller().Reconcile(ctx, stale))
		Expect(result.RequeueAfter).To(Equal(time.Second))
	})
	It("should leave a NodeClass alone that is being deleted", func() {
		nodeClass := stored()
		nodeClass.Finalizers = []string{"example.com/hold"}
		Expect(env.Client.Update(ctx, nodeClass)).To(Succeed())
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		Expect(condition(v1alpha1.ConditionTypeLaunchesSucceeding)).To(BeNil())
	})
	It("should stamp, hold and free a NodeClass without a request to the cloud, which may hang", func() {
		nodeClass := fresh()
		env.Sandbox.ResetRequests()
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectNotFound(ctx, env.Client, nodeClass)
		Expect(env.Sandbox.Requests()).To(BeEmpty())
	})
})
