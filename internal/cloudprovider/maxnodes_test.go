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
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
)

var _ = Describe("The nodes that the BKE package allows", func() {
	limited := func(limit int) {
		config := env.Config()
		config.MaxNodes = func() int { return limit }
		env.CloudProvider = cloudprovider.New(config)
	}
	BeforeEach(func() {
		nodeClass()
		Expect(env.Client.Create(ctx, coretest.Node())).To(Succeed())
		Eventually(func() int {
			nodes := &corev1.NodeList{}
			Expect(env.Client.List(ctx, nodes)).To(Succeed())
			return len(nodes.Items)
		}).Should(Equal(1))
	})

	It("should be what the catalog reads of the cluster", func() {
		snapshot, err := env.Catalog.Snapshot()
		Expect(err).ToNot(HaveOccurred())
		Expect(snapshot.MaxNodes).To(Equal(50))
	})
	It("should count nodes and servers that are no nodes yet, and pause launches at the limit", func() {
		limited(2)
		first := launched(nodeClaim(nil))
		Eventually(func() string {
			cached := &karpv1.NodeClaim{}
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(first), cached)).To(Succeed())
			return cached.Status.ProviderID
		}).ShouldNot(BeEmpty())
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(nil)))).To(BeTrue())
		Expect(env.Recorder.Calls(events.ReasonPackageLimit)).To(Equal(1))
		Expect(servers()).To(HaveLen(1))
		limited(3)
		env.Clock.Step(2 * time.Minute)
		launched(nodeClaim(nil))
		Expect(servers()).To(HaveLen(2))
	})
	It("should not matter where the package has no limit, or it is not enforced", func() {
		limited(0)
		launched(nodeClaim(nil))
		env.CloudProvider = cloudprovider.New(env.Config())
		launched(nodeClaim(nil))
		Expect(servers()).To(HaveLen(2))
	})
})
