// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

var _ = Describe("The settings", func() {
	It("should keep what is unavailable marked for the time that is active when it fails", func() {
		nodeClass()
		pool := unit.NodePool()
		before := available(pool)
		env.Tune(func(o *options.Options) { o.UnavailableOfferingTTL = time.Hour })
		env.Sandbox.SetStock("*", "*", "*", 0)
		Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
		env.Tune(func(o *options.Options) { o.UnavailableOfferingTTL = time.Second })
		env.Clock.Step(59 * time.Minute)
		Expect(available(pool)).To(Equal(before - 3))
		env.Clock.Step(2 * time.Minute)
		Eventually(func() int { return available(pool) }).Should(Equal(before))
	})
	It("should pause for the time that is active when the account is rejected", func() {
		nodeClass()
		pool := unit.NodePool()
		env.Tune(func(o *options.Options) { o.AccountPause = 10 * time.Minute })
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectBalance, Count: 1})
		Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
		env.Clock.Step(9 * time.Minute)
		Expect(available(pool)).To(BeZero())
		env.Clock.Step(2 * time.Minute)
		Eventually(func() int { return available(pool) }).Should(BeNumerically(">", 0))
	})
})
