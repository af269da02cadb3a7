// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
)

// addOrphan adds a server that this cluster has launched for a NodeClaim that is no more.
func addOrphan() cloud.Server {
	GinkgoHelper()
	system := &corev1.Namespace{}
	Expect(env.Client().Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system)).To(Succeed())
	claim, uid := unique("orphan"), string(uuid.NewUUID())
	spec := cloud.ServerSpec{Name: instance.Name(claim, uid, string(system.UID), 1), Zone: "HN1", Status: cloud.StatusShutoff, Metadata: map[string]string{
		v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: "sandbox", v1alpha1.MetadataClusterUID: string(system.UID),
		v1alpha1.MetadataNodeClaim: claim, v1alpha1.MetadataNodeClaimUID: uid, v1alpha1.MetadataAttempt: "1",
	}}
	var created cloud.Server
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &created)).To(Succeed())
	return created
}

// recordAPIServers replaces the addresses of the API servers that the ProviderConfig records; none confirms those that run.
func recordAPIServers(addresses []string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		config := providerConfig(g)
		config.RecordAPIServers(addresses)
		g.Expect(env.Client().Update(ctx, config)).To(Succeed())
	}).Should(Succeed())
}

var _ = Describe("The settings of the controller", func() {
	It("should let garbage collection only report in a dry run and in a possible clone", func() {
		orphan := addOrphan()
		exists := func(g Gomega) bool {
			return lo.ContainsBy(e2e.Truth(g, env).Servers, func(s cloud.Server) bool { return s.ID == orphan.ID && !s.Truth.Deleting })
		}
		DeferCleanup(func() {
			if exists(Default) { // no other spec may find it
				Expect(env.Sandbox().Call(ctx, http.MethodDelete, "servers/"+orphan.ID, nil, nil)).To(Succeed())
			}
		})
		// reported waits until passes of the garbage collector have reported the server for this reason, and have not deleted it.
		reported := func(because gomegatypes.GomegaMatcher) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				if !exists(g) {
					StopTrying("the server was deleted").Now()
				}
				g.Expect(e2e.Listed(g, env, &corev1.EventList{}).Items).To(ContainElement(And(HaveField("Reason", events.ReasonWouldGarbageCollect),
					HaveField("InvolvedObject.Name", v1alpha1.ProviderConfigName), HaveField("Message", And(ContainSubstring(orphan.ID), because)))))
			}).Should(Succeed())
			Consistently(exists).WithTimeout(3 * time.Second).Should(BeTrue())
		}
		eager := map[string]string{"LAUNCH_TIMEOUT": "10s", "GARBAGE_COLLECTION_GRACE": "11s", "GARBAGE_COLLECTION_INTERVAL": "1s"}

		By("being told to")
		restartController(lo.Assign(eager, map[string]string{"GARBAGE_COLLECTION_DRY_RUN": "true"}))
		reported(ContainSubstring("GARBAGE_COLLECTION_DRY_RUN is on"))

		By("finding none of the API servers that are recorded")
		DeferCleanup(recordAPIServers, []string(nil)) // once the address is gone that would be recorded again
		// The API server of these tests publishes no address, since it has only one of the loopback interface.
		create(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}},
			Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
		})
		recordAPIServers([]string{"192.0.2.1:6443"})
		Expect(env.RestartController(ctx, eager)).Error().NotTo(HaveOccurred())
		reported(ContainSubstring("none of the recorded API servers is left"))

		By("being confirmed that the cluster is the original")
		recordAPIServers(nil)
		Eventually(exists).Should(BeFalse())
	})
	It("should bound a launch by LAUNCH_TIMEOUT", func() {
		// Nothing else would end the launch: whether a server was created stays open for longer than core's own timeout.
		restartController(map[string]string{"LAUNCH_TIMEOUT": "10s"})
		pool := readyPool()
		behave := misbehave(cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectReset})
		web := deployment(pool, 1)
		create(web)
		var first []karpv1.NodeClaim
		Eventually(func(g Gomega) {
			first = claims(g, pool)
			g.Expect(first).To(HaveLen(1))
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(claims(g, pool)).NotTo(ContainElement(HaveField("UID", first[0].UID)))
		}).WithTimeout(time.Minute).Should(Succeed())
		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		behave()
		expectNothingLeft(pool)
	})
})
