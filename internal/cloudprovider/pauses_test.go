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
