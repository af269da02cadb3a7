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

package corefaults_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/corefaults"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

var _ = Describe("A claim that core remembers and nobody else", func() {
	var cluster *state.Cluster
	var memory *corefaults.ClaimMemory
	var controller *corefaults.StaleClaims
	BeforeEach(func() {
		cluster = state.NewCluster(env.Clock, env.Client, env.CloudProvider)
		memory = corefaults.NewClaimMemory(env.Client, env.Clock)
		controller = corefaults.NewStaleClaims(memory, env.APIReader, cluster)
		Expect(cluster.Synced(ctx)).To(BeTrue())
	})
	created := func() *karpv1.NodeClaim {
		GinkgoHelper()
		claim := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "general-"},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: unit.NodeClassRef(), Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}},
		}
		Expect(memory.Create(ctx, claim)).To(Succeed())
		return claim
	}
	look := func() {
		GinkgoHelper()
		result, err := controller.Reconcile(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	}

	It("should still be a fault of core, or this cure can go", func() {
		claim := created()
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		cluster.DeleteNodeClaim(claim.Name)
		cluster.UpdateNodeClaim(claim)
		Expect(cluster.Synced(ctx)).To(BeFalse())
	})
	It("should be taken out of the cluster state, so that core schedules again", func() {
		claim := created()
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		cluster.DeleteNodeClaim(claim.Name)
		cluster.UpdateNodeClaim(claim)

		look()
		Expect(cluster.NodeClaimExists(claim.Name)).To(BeTrue(), "core may be about to write it into its state")
		env.Clock.Step(15 * time.Second)
		Eventually(func() bool { look(); return cluster.Synced(ctx) }).WithTimeout(10 * time.Second).Should(BeTrue())
		Expect(cluster.NodeClaimExists(claim.Name)).To(BeFalse())
	})
	It("should stay in the cluster state while it exists", func() {
		claim := created()
		cluster.UpdateNodeClaim(claim)
		env.Clock.Step(time.Hour)
		look()
		Expect(cluster.NodeClaimExists(claim.Name)).To(BeTrue())
		Expect(cluster.Synced(ctx)).To(BeFalse(), "it has no server yet")
	})
	It("should stay in the cluster state while only the cache does not know it", func() {
		claim := created()
		cluster.UpdateNodeClaim(claim)
		memory.Client = blind{Client: env.Client}
		env.Clock.Step(time.Hour)
		look()
		Expect(cluster.NodeClaimExists(claim.Name)).To(BeTrue())
	})
	It("should be nobody's concern once it has a server", func() {
		claim := created()
		claim.Status.ProviderID = "bizflycloud://x"
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		cluster.UpdateNodeClaim(claim)
		env.Clock.Step(time.Hour)
		Eventually(func() string {
			cached := &karpv1.NodeClaim{}
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(claim), cached)).To(Succeed())
			return cached.Status.ProviderID
		}).WithTimeout(10 * time.Second).ShouldNot(BeEmpty())
		look()
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		look()
		Expect(cluster.NodeClaimExists(claim.Name)).To(BeTrue(), "core's own informer deletes it")
	})
})

// blind is a cache that lags.
type blind struct{ client.Client }

func (b blind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	key.Name = "nosuch-" + key.Name
	return b.Client.Get(ctx, key, object, options...)
}

var _ = Describe("A node that was unhealthy before core knew it", func() {
	It("should be shown to core's node repair when it registers", func() {
		controller := corefaults.NewLateNodes(env.Client, env.CloudProvider, env.Clock, env.Recorder)
		claim, err := env.Launched(ctx)
		Expect(err).ToNot(HaveOccurred())
		before := coretest.Node(coretest.NodeOptions{
			ObjectMeta:  metav1.ObjectMeta{Name: "late"},
			ProviderID:  claim.Status.ProviderID,
			ReadyStatus: corev1.ConditionUnknown,
		})
		Expect(env.Client.Create(ctx, before)).To(Succeed())
		before.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(env.Clock.Now())}}
		Expect(env.Client.Status().Update(ctx, before)).To(Succeed())
		after := before.DeepCopy()
		after.Labels = map[string]string{karpv1.NodeClassLabelKey(unit.NodeClassRef().GroupKind()): unit.NodeClassName}
		Expect(controller.Arrived(before, after)).To(BeTrue())
		Expect(controller.Arrived(after, after)).To(BeFalse())

		result, err := controller.Reconcile(ctx, after)
		Expect(err).ToNot(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically("~", 10*time.Minute, 5*time.Second))
		env.Clock.Step(11 * time.Minute)
		_, err = controller.Reconcile(ctx, after)
		Expect(err).ToNot(HaveOccurred())
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		Expect(live.DeletionTimestamp.IsZero()).To(BeFalse())
	})
})
