// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

var _ = Describe("An older provider in the cluster", func() {
	const ours, older = "karpenter-bizflycloud-leader-election", "karpenter-leader-election"
	var clk *clocktesting.FakeClock
	var mapper *meta.DefaultRESTMapper
	BeforeEach(func() {
		clk, mapper = clocktesting.NewFakeClock(time.Now()), meta.NewDefaultRESTMapper([]schema.GroupVersion{
			{Group: "karpenter.bizflycloud.vn", Version: "v1alpha1"}, {Group: "karpenter.bizflycloud.com", Version: "v1"},
		})
	})
	look := func(ctx SpecContext, lease string) []string {
		return operator.Foreign(ctx, mapper, env.Client, clk, metav1.NamespaceDefault, lease)
	}
	held := func(ctx SpecContext, holder string) {
		GinkgoHelper()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: older},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: lo.EmptyableToPtr(holder), LeaseDurationSeconds: lo.ToPtr[int32](15), RenewTime: lo.ToPtr(metav1.NewMicroTime(clk.Now())),
			},
		}
		Expect(env.Client.Create(ctx, lease)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Client.Delete(ctx, lease)).To(Succeed()) })
	}

	It("should not be found where there is none", func(ctx SpecContext) {
		Expect(look(ctx, ours)).To(BeEmpty())
		Expect(look(ctx, older)).To(BeEmpty())
	})
	It("should be found by its custom resources, and not by those of the same kind in our group", func(ctx SpecContext) {
		mapper.Add(schema.GroupVersionKind{Group: "karpenter.bizflycloud.vn", Version: "v1alpha1", Kind: "ProviderConfig"}, meta.RESTScopeRoot)
		Expect(look(ctx, ours)).To(BeEmpty())
		mapper.Add(schema.GroupVersionKind{Group: "karpenter.bizflycloud.com", Version: "v1", Kind: "BizflyCloudNodeClass"}, meta.RESTScopeRoot)
		Expect(look(ctx, ours)).To(ConsistOf(ContainSubstring("BizflyCloudNodeClass.karpenter.bizflycloud.com")))
	})
	It("should be found by the Lease that it holds, until that has expired", func(ctx SpecContext) {
		held(ctx, "karpenter-76f5b8-x2x4d_5c4f")
		Expect(look(ctx, ours)).To(ConsistOf(And(ContainSubstring("karpenter-76f5b8-x2x4d_5c4f holds the Lease default/karpenter-leader-election"),
			Not(ContainSubstring("waits for")))))
		Expect(look(ctx, older)).To(ConsistOf(ContainSubstring("which this controller waits for")))
		clk.Step(16 * time.Second)
		Expect(look(ctx, ours)).To(BeEmpty())
	})
	It("should not be found in a Lease that was released", func(ctx SpecContext) {
		held(ctx, "")
		Expect(look(ctx, ours)).To(BeEmpty())
	})
	It("should not be found in another replica of ours that holds the Lease of the same name", func(ctx SpecContext) {
		held(ctx, lo.Must(os.Hostname())+"_5c4f")
		Expect(look(ctx, older)).To(BeEmpty())
		Expect(look(ctx, ours)).To(HaveLen(1))
	})
})
