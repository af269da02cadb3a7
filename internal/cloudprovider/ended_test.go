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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("A claim that ends before core knows its server", func() {
	It("should be told from a lost one when core has not waited for a slow server", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour, HideBuilding: true})
		nodeClass()
		claim := nodeClaim(nil)
		Expect(reasonOf(refused(claim))).To(Equal(cloudprovider.ReasonAwaitingServerID))
		// Core's launch timeout deletes the claim, and nobody asks Delete, since there is no provider ID.
		Expect(env.Cleanup(ctx)).To(Succeed())
		Expect(env.CloudProvider.GivenUp(string(claim.UID))).To(BeTrue())
	})
	It("should not be taken for one whose server core knows", func() {
		nodeClass()
		claim := nodeClaim(nil)
		launched(claim)
		Expect(env.CloudProvider.GivenUp(string(claim.UID))).To(BeFalse())
		env.Restart(ctx)
		launched(claim)
		Expect(env.CloudProvider.GivenUp(string(claim.UID))).To(BeFalse())
		Expect(env.CloudProvider.GivenUp("never seen")).To(BeFalse())
	})
})
