// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestControllers(t *testing.T) { suite.Run(t, "Controllers") }

var _ = Describe("Managed", func() {
	claim := func(edit func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"}}}
		edit(c)
		return c
	}
	none := func(*karpv1.NodeClaim) {}
	read := controllers.Managed(func(c *karpv1.NodeClaim) string { return c.Status.ImageID })

	DescribeTable("should pass updates that change what the controller reads, and no others",
		func(before, after func(*karpv1.NodeClaim), passes bool) {
			Expect(read.Update(event.UpdateEvent{ObjectOld: claim(before), ObjectNew: claim(after)})).To(Equal(passes))
		},
		Entry("a field that is read", none, func(c *karpv1.NodeClaim) { c.Status.ImageID = "image" }, true),
		Entry("the provider ID", none, func(c *karpv1.NodeClaim) { c.Status.ProviderID = "bizflycloud://1" }, true),
		Entry("the registration", none, func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered) }, true),
		Entry("the deletion", none, func(c *karpv1.NodeClaim) { c.DeletionTimestamp = lo.ToPtr(metav1.Now()) }, true),
		Entry("a field that is not", none, func(c *karpv1.NodeClaim) { c.Status.NodeName = "node" }, false),
		Entry("nothing", none, none, false),
		Entry("a NodeClaim of another provider", none, func(c *karpv1.NodeClaim) {
			c.Status.ProviderID, c.Spec.NodeClassRef.Group = "aws:///1", "karpenter.k8s.aws"
		}, false),
	)
	It("should pass NodeClaims that are new to the process, and none that are gone", func() {
		Expect(read.Create(event.CreateEvent{Object: claim(none)})).To(BeTrue())
		Expect(read.Delete(event.DeleteEvent{Object: claim(none)})).To(BeFalse())
	})
})
