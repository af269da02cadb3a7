// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
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
	It("should pause the account, and report it, when it is unpaid and a 403 gives no reason", func() {
		nodeClass()
		pool := unit.NodePool()
		env.Sandbox.SetQuota(cloud.Quota{Unpaid: true})
		Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
		Expect(env.Recorder.Calls(events.ReasonAccountLimit)).To(Equal(1))
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(BeZero(), "no NodeClass is at fault")
		Expect(available(pool)).To(BeZero())
		env.Sandbox.SetQuota(cloud.Quota{})
		env.Clock.Step(time.Hour)
		Eventually(func() int { return available(pool) }).Should(BeNumerically(">", 0))
		launched(nodeClaim(pool))
	})
	It("should pause for the time that is active when the account is rejected", func() {
		nodeClass()
		pool := unit.NodePool()
		env.Tune(func(o *options.Options) { o.AccountPause = 10 * time.Minute })
		failCreate(cloud.Fault{Effect: cloud.EffectBalance, Count: 1})
		Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
		env.Clock.Step(9 * time.Minute)
		Expect(available(pool)).To(BeZero())
		env.Clock.Step(2 * time.Minute)
		Eventually(func() int { return available(pool) }).Should(BeNumerically(">", 0))
	})
})
