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

package usage_test

import (
	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// packaged is the catalog of a cluster whose package allows so many nodes.
type packaged struct {
	catalog.Provider
	maxNodes int
}

func (p packaged) Snapshot() (*catalog.Snapshot, error) {
	if p.maxNodes < 0 {
		return nil, catalog.ErrNotReady
	}
	return &catalog.Snapshot{MaxNodes: p.maxNodes}, nil
}

var _ = Describe("The package of the BKE cluster", func() {
	// cached waits until the cache has what the API server has.
	cached := func() {
		GinkgoHelper()
		names := func(reader client.Reader) []string {
			nodes, claims := &corev1.NodeList{}, &karpv1.NodeClaimList{}
			Expect(reader.List(ctx, nodes)).To(Succeed())
			Expect(reader.List(ctx, claims)).To(Succeed())
			return append(lo.Map(nodes.Items, func(n corev1.Node, _ int) string { return n.Name }),
				lo.Map(claims.Items, func(c karpv1.NodeClaim, _ int) string { return c.Name + c.ResourceVersion })...)
		}
		Eventually(func() []string { return names(env.Client) }).Should(ConsistOf(lo.ToAnySlice(names(env.APIReader))...))
	}
	room := func(maxNodes int) *status.Condition {
		GinkgoHelper()
		cached()
		result, err := usage.NewController(env.Client, env.Recorder, env.Clock, packaged{maxNodes: maxNodes}, env.CloudProvider).Reconcile(ctx, stored())
		Expect(err).ToNot(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(ttl.NodeClassConditions), "a package may be changed without any event")
		Expect(stored().StatusConditions().Root().IsTrue()).To(BeTrue(), "Ready does not depend on it")
		return stored().StatusConditions(status.WithObservedOnly()).Get(v1alpha1.ConditionTypePackageRoomAvailable)
	}
	nodes := func(count int) {
		GinkgoHelper()
		for range count {
			Expect(env.Client.Create(ctx, coretest.Node())).To(Succeed())
		}
	}
	full := And(HaveField("Status", BeEquivalentTo("False")), HaveField("Reason", events.ReasonPackageLimit))
	notApplicable := And(HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", v1alpha1.ReasonNotApplicable))
	roomy := And(HaveField("Status", BeEquivalentTo("True")), HaveField("Reason", "PackageHasRoom"))

	It("should have room below the number of nodes that it allows, which the cloud says", func() {
		nodes(1)
		cached()
		Expect(condition(v1alpha1.ConditionTypePackageRoomAvailable)).To(HaveValue(And(roomy, HaveField("Message", ContainSubstring("fewer nodes than the 50")))))
		Expect(env.Recorder.Calls(events.ReasonPackageLimit)).To(BeZero())
	})
	It("should have none at that number, say both numbers and what to do, and tell of it once", func() {
		nodes(2)
		Expect(room(3)).To(HaveValue(roomy))
		Expect(room(2)).To(HaveValue(And(full, HaveField("Message", And(
			ContainSubstring("has 2 nodes and the package of the BKE cluster allows 2"), ContainSubstring("choose a bigger package"),
			ContainSubstring("spec.limits"))))))
		nodes(1)
		Expect(room(2)).To(HaveValue(And(full, HaveField("Message", ContainSubstring("has 3 nodes")))))
		Expect(env.Recorder.Calls(events.ReasonPackageLimit)).To(Equal(1))
		Expect(room(4)).To(HaveValue(roomy))
	})
	It("should count servers that are no nodes yet", func() {
		launched()
		Expect(room(1)).To(HaveValue(full))
	})
	It("should not apply where the package has no limit, nor to servers that join in another way", func() {
		nodes(1)
		Expect(room(1)).To(HaveValue(full))
		Expect(room(0)).To(HaveValue(notApplicable))
		Expect(room(1)).To(HaveValue(full))
		change(func(s *v1alpha1.BizflyNodeClassSpec) {
			s.BootstrapMode, s.UserData = v1alpha1.BootstrapModeCustom, lo.ToPtr("#cloud-config\n")
		})
		Expect(room(1)).To(HaveValue(notApplicable))
	})
	It("should stay as it was known while a process that starts has not read it", func() {
		nodes(1)
		Expect(room(-1)).To(BeNil())
		Expect(room(1)).To(HaveValue(full))
		Expect(room(-1)).To(HaveValue(full))
	})
})
