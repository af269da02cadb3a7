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

package e2e_test

import (
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

var _ = Describe("An upgrade", func() {
	It("should replace no node that an earlier version has launched, and go on with them", func() {
		previous := os.Getenv("PREVIOUS_CONTROLLER")
		Expect(previous).NotTo(BeEmpty(), "`make e2e` builds the controller of an earlier commit with hack/previous.sh and names it here")
		Expect(env.Controller().Stop()).To(Succeed())
		DeferCleanup(func() {
			Expect(env.Controller().Stop()).To(Succeed())
			_, err := env.StartController(ctx, nil)
			Expect(err).NotTo(HaveOccurred())
		})
		_, err := env.StartController(ctx, map[string]string{environment.BinaryOverride: previous})
		Expect(err).NotTo(HaveOccurred())

		class := nodeClass(v1alpha1.BizflyNodeClassSpec{})
		create(class)
		pool := nodePool(class.Name)
		create(pool)
		workload := deployment(pool, 2, func(spec *corev1.PodSpec) {
			spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
		})
		create(workload)
		before := map[types.UID]string{}
		Eventually(func(g Gomega) {
			g.Expect(running(g, workload)).To(HaveLen(2))
			before = map[types.UID]string{}
			for _, claim := range claims(g, pool) {
				g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()).To(BeTrue())
				g.Expect(claim.Annotations).To(HaveKey(v1alpha1.AnnotationOwnedVolumes))
				before[claim.UID] = claim.Status.ProviderID
			}
			g.Expect(before).NotTo(BeEmpty())
		}).Should(Succeed())

		Expect(env.Controller().Stop()).To(Succeed())
		_, err = env.StartController(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			live := &v1alpha1.BizflyNodeClass{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: class.Name}, live)).To(Succeed())
			g.Expect(live.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHashVersion, v1alpha1.NodeClassHashVersion))
			g.Expect(live.Annotations).To(HaveKey(v1alpha1.AnnotationLearnedSizes), "the new controller has seen the nodes")
		}).Should(Succeed())
		Consistently(func(g Gomega) {
			after := map[types.UID]string{}
			for _, claim := range claims(g, pool) {
				g.Expect(claim.DeletionTimestamp).To(BeNil())
				g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue()).To(BeFalse(), "%v", claim.Status.Conditions)
				after[claim.UID] = claim.Status.ProviderID
			}
			g.Expect(after).To(Equal(before))
			g.Expect(servers(g, pool)).To(HaveLen(len(before)))
		}).WithTimeout(45 * time.Second).WithPolling(time.Second).Should(Succeed())

		// What the earlier version has recorded is enough to remove everything.
		Expect(env.Client().Delete(ctx, workload)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should hand the lease over, so that the next replica leads at once", func() {
		Expect(env.Controller().Stop()).To(Succeed())
		DeferCleanup(func() {
			Expect(env.Controller().Stop()).To(Succeed())
			_, err := env.StartController(ctx, nil)
			Expect(err).NotTo(HaveOccurred())
		})
		elected := map[string]string{"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": metav1.NamespaceSystem}
		holder := func(g Gomega) string {
			lease := &coordinationv1.Lease{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "karpenter-leader-election"}, lease)).To(Succeed())
			return lo.FromPtr(lease.Spec.HolderIdentity)
		}
		first, err := env.StartController(ctx, elected)
		Expect(err).NotTo(HaveOccurred())
		var before string
		Eventually(func(g Gomega) {
			before = holder(g)
			g.Expect(before).NotTo(BeEmpty())
		}).Should(Succeed())

		Expect(first.Stop()).To(Succeed())
		Expect(holder(Default)).To(BeEmpty())
		_, err = env.StartController(ctx, elected)
		Expect(err).NotTo(HaveOccurred())
		// A lease that is still held lasts fifteen seconds.
		Eventually(holder).WithTimeout(10 * time.Second).Should(And(Not(BeEmpty()), Not(Equal(before))))
	})
})
