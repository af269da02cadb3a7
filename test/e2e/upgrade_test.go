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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

// kubectlApply applies a BizflyNodeClass by the real kubectl, as a user does, and deletes it at the end of the spec.
func kubectlApply(name, spec string) {
	GinkgoHelper()
	kubectl := exec.CommandContext(ctx, filepath.Join(env.AssetDir(), "kubectl"), "--kubeconfig", env.Kubeconfig(), "apply", "-f", "-")
	kubectl.Stdin = strings.NewReader(fmt.Sprintf("{apiVersion: %s, kind: BizflyNodeClass, metadata: {name: %s}, spec: %s}", v1alpha1.GroupVersion, name, spec))
	output, err := kubectl.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	DeferCleanup(func() {
		object := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(client.IgnoreNotFound(env.Client().Delete(ctx, object))).To(Succeed())
	})
}

// replaceDefinitions makes the definitions of a folder those of the API server.
func replaceDefinitions(dir string) {
	GinkgoHelper()
	output, err := exec.CommandContext(ctx, filepath.Join(env.AssetDir(), "kubectl"), "--kubeconfig", env.Kubeconfig(), "replace", "-f", dir).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

var _ = Describe("An upgrade", func() {
	It("should replace no node that an earlier version has launched, once its definitions and manifests are the new ones, and manage them", func() {
		previous := os.Getenv("PREVIOUS_CONTROLLER")
		Expect(previous).NotTo(BeEmpty(), "`make e2e` builds the controller of an earlier commit with hack/previous.sh and names it here")
		Expect(env.Controller().Stop()).To(Succeed())
		DeferCleanup(func() {
			Expect(env.Controller().Stop()).To(Succeed())
			replaceDefinitions(filepath.Join(env.Root(), "pkg/apis/crds"))
			_, err := env.StartController(ctx, nil)
			Expect(err).NotTo(HaveOccurred())
		})
		replaceDefinitions(previous + "-crds")
		_, err := env.StartController(ctx, map[string]string{environment.BinaryOverride: previous})
		Expect(err).NotTo(HaveOccurred())

		// The manifests of a user: an empty one, so that the defaults of then are stored, and one that uses every old name.
		names := []string{unique("class"), unique("class")}
		kubectlApply(names[0], `{}`)
		kubectlApply(names[1], `{bootstrap: {mode: BKE, userData: "#!/bin/bash\ntrue\n"}, metadata: {team: platform}, sshKeySelectorTerms: [{name: ops}],
			imageSelectorTerms: [{alias: bke@latest, osType: ubuntu}], networkSelectorTerms: [{name: kubernetes}, {default: true}],
			rootDisk: {size: 60Gi, type: HDD}, dataDisks: [{size: 10Gi, type: SSD}], billingPlan: on_demand, networkPlan: free_bandwidth}`)
		var pools []*karpv1.NodePool
		var workloads []*appsv1.Deployment
		for _, name := range names {
			pool := nodePool(name)
			create(pool)
			workload := deployment(pool, 2, func(spec *corev1.PodSpec) {
				spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
			})
			create(workload)
			pools, workloads = append(pools, pool), append(workloads, workload)
		}
		// launched are the servers of the NodeClaims of both pools, none of which may have drifted.
		launched := func(g Gomega) map[types.UID]string {
			found := map[types.UID]string{}
			for _, claim := range append(claims(g, pools[0]), claims(g, pools[1])...) {
				g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()).To(BeTrue())
				g.Expect(claim.Annotations).To(HaveKey(v1alpha1.AnnotationOwnedVolumes))
				g.Expect(claim.DeletionTimestamp).To(BeNil())
				g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue()).To(BeFalse(), "%v", claim.Status.Conditions)
				found[claim.UID] = claim.Status.ProviderID
			}
			return found
		}
		before := map[types.UID]string{}
		Eventually(func(g Gomega) {
			g.Expect(running(g, workloads[0])).To(HaveLen(2))
			g.Expect(running(g, workloads[1])).To(HaveLen(2))
			before = launched(g)
			g.Expect(before).NotTo(BeEmpty())
		}).Should(Succeed())

		// The order of the CHANGELOG: nothing runs while the definitions and then the manifests become the new ones.
		Expect(env.Controller().Stop()).To(Succeed())
		replaceDefinitions(filepath.Join(env.Root(), "pkg/apis/crds"))
		kubectlApply(names[0], `{}`)
		kubectlApply(names[1], `{userData: "#!/bin/bash\ntrue\n", tags: {team: platform}, sshKeyName: ops,
			imageSelectorTerms: [{alias: bke-ubuntu@latest}], networkSelectorTerms: [{name: kubernetes}, {alias: default}],
			rootDisk: {size: 60Gi, medium: HDD}, dataDisks: [{size: 10Gi, medium: SSD}], billingPlan: OnDemand, networkPlan: FreeBandwidth}`)
		_, err = env.StartController(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			for _, name := range names {
				live := &v1alpha1.BizflyNodeClass{}
				g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: name}, live)).To(Succeed())
				g.Expect(live.StatusConditions().Root().IsTrue()).To(BeTrue(), "%v", live.Status.Conditions)
				g.Expect(live.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHashVersion, v1alpha1.NodeClassHashVersion))
				g.Expect(live.Annotations).To(HaveKey(v1alpha1.AnnotationLearnedSizes), "the new controller has seen the nodes")
			}
		}).Should(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(launched(g)).To(Equal(before))
			g.Expect(truth(g).Servers).To(HaveLen(len(before)))
		}).WithTimeout(45 * time.Second).WithPolling(time.Second).Should(Succeed())

		// What the earlier version has recorded is enough to remove everything.
		for i := range workloads {
			Expect(env.Client().Delete(ctx, workloads[i])).To(Succeed())
		}
		for i := range pools {
			Eventually(func(g Gomega) { g.Expect(claims(g, pools[i])).To(BeEmpty()) }).Should(Succeed())
		}
		expectNothingLeft(pools[0])
	})
	It("should release the lease, so that the next replica leads at once", func() {
		elected := map[string]string{"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": metav1.NamespaceSystem}
		holder := func(g Gomega) string {
			lease := &coordinationv1.Lease{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "karpenter-leader-election"}, lease)).To(Succeed())
			return lo.FromPtr(lease.Spec.HolderIdentity)
		}
		first := restartController(elected)
		var before string
		Eventually(func(g Gomega) {
			before = holder(g)
			g.Expect(before).NotTo(BeEmpty())
		}).Should(Succeed())

		Expect(first.Stop()).To(Succeed())
		Expect(holder(Default)).To(BeEmpty())
		_, err := env.StartController(ctx, elected)
		Expect(err).NotTo(HaveOccurred())
		Eventually(holder).Should(And(Not(BeEmpty()), Not(Equal(before))))
	})
})
