// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("A NodeClaim that ends before core knows its server", func() {
	It("should still get its server when its NodeClass is deleted meanwhile", func() {
		class := nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Finalizers = []string{v1alpha1.TerminationFinalizer} })
		failCreate(cloud.Fault{Effect: cloud.EffectLostResponse, Count: 1})
		env.Sandbox.AddFaults(2, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		Expect(env.Client.Delete(ctx, class)).To(Succeed())
		env.Sandbox.ClearFaults()
		env.Tune(func(o *options.Options) { o.ServerIDWait = env.IDWait })
		Expect(serverOf(launched(claim)).Name).To(Equal(intentOf(claim).Name))
		Expect(createRequests()).To(Equal(1))
	})
	It("should be ended again when core could not delete it, instead of holding up all scheduling", func() {
		nodeClass()
		failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true, Count: 1})
		claim := nodeClaim(nil)
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		// The API server was away when core deleted the claim, so that core asks again.
		lo.Times(2, func(int) bool {
			return Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		})
		Expect(createRequests()).To(Equal(1))
		Expect(env.Client.Delete(ctx, claim.DeepCopy())).To(Succeed())
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeFalse(), "it is being deleted, and one of its name may be another's")
	})
})
