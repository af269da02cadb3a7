// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// afterOutage is how long everything may take after an outage: the longest back-off that it can have led to, and a launch.
const afterOutage = 5 * time.Minute

// misbehave arms faults of the cloud until the end of the spec, or until what it returns is called.
func misbehave(rules ...cloud.Fault) (behave func()) {
	GinkgoHelper()
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "faults", map[string]any{"seed": 1, "rules": rules}, nil)).To(Succeed())
	behave = func() { Expect(env.Sandbox().Call(ctx, http.MethodDelete, "faults", nil, nil)).To(Succeed()) }
	DeferCleanup(behave)
	return behave
}

// fetched is the status and the body of a page of the controller.
func fetched(g Gomega, url string) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

// expectProbes reports that the kubelet would leave the controller alone.
func expectProbes(g Gomega) {
	for _, probe := range []string{"healthz", "readyz"} {
		status, body := fetched(g, env.Controller().HealthURL()+probe)
		g.Expect(status).To(Equal(http.StatusOK), "%s: %s", probe, body)
	}
}

var _ = Describe("An outage of the cloud", func() {
	It("should block neither restart nor drain, lose nothing, and end without an effect", func() {
		pool := readyPool()
		web := deployment(pool, 3, environment.Apart)
		create(web)
		Eventually(func(g Gomega) {
			g.Expect(running(g, web)).To(HaveLen(3))
			g.Expect(lo.Filter(claims(g, pool), func(c karpv1.NodeClaim, _ int) bool { return c.StatusConditions().Root().IsTrue() })).To(HaveLen(3))
		}).Should(Succeed())
		before := claims(Default, pool)
		untouched, deleted, drained := before[0], before[1], before[2]
		survivor, ok := lo.Find(running(Default, web), func(p corev1.Pod) bool { return p.Spec.NodeName == untouched.Status.NodeName })
		Expect(ok).To(BeTrue())

		By("stopping to answer")
		behave := misbehave(cloud.Fault{Path: "**", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		By("restarting the controller, as an upgrade does")
		_, err := env.RestartController(ctx, nil) // which waits until it is ready
		Expect(err).NotTo(HaveOccurred())
		By("deleting a claim and a node")
		Expect(env.Client().Delete(ctx, &deleted)).To(Succeed())
		Expect(env.Client().Delete(ctx, &corev1.Node{ObjectMeta: metaOf(drained.Status.NodeName)})).To(Succeed())

		By("draining what can be drained without the cloud")
		Eventually(func(g Gomega) {
			names := lo.Map(running(g, web), func(p corev1.Pod, _ int) string { return p.Spec.NodeName })
			g.Expect(names).To(ConsistOf(untouched.Status.NodeName))
			for _, claim := range []karpv1.NodeClaim{deleted, drained} {
				g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: claim.Name}, &claim)).To(Succeed())
				g.Expect(claim.DeletionTimestamp).NotTo(BeNil())
			}
		}).Should(Succeed())
		By("waiting with the rest")
		Consistently(func(g Gomega) {
			expectProbes(g)
			g.Expect(lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return providerid.New(s.ID) })).
				To(ConsistOf(lo.Map(before, func(c karpv1.NodeClaim, _ int) string { return c.Status.ProviderID })))
			for _, claim := range before {
				g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: claim.Name}, &claim)).To(Succeed())
			}
		}).WithTimeout(15 * time.Second).WithPolling(time.Second).Should(Succeed())
		By("saying what is the matter")
		Eventually(func(g Gomega) {
			config := &v1alpha1.ProviderConfig{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config)).To(Succeed())
			g.Expect(config.StatusConditions().Get(v1alpha1.ConditionTypeEndpointReachable).IsFalse()).To(BeTrue(), "%+v", config.Status.Conditions)
			_, page := fetched(g, env.Controller().MetricsURL())
			g.Expect(page).To(MatchRegexp(`\nkarpenter_bizfly_api_request_duration_seconds_count\{[^}]*outcome="(Outage|Ambiguous)"`))
			g.Expect(page).NotTo(MatchRegexp(`\nkarpenter_bizfly_unavailable_offerings\{[^}]*\} [1-9]`), "an outage is not insufficient capacity")
		}).Should(Succeed())

		By("answering again")
		behave()
		Eventually(func(g Gomega) {
			for _, claim := range []karpv1.NodeClaim{deleted, drained} {
				g.Expect(client.IgnoreNotFound(env.Client().Get(ctx, types.NamespacedName{Name: claim.Name}, &claim))).To(Succeed())
				g.Expect(lo.Map(claims(g, pool), func(c karpv1.NodeClaim, _ int) string { return c.Name })).NotTo(ContainElement(claim.Name))
			}
			g.Expect(running(g, web)).To(HaveLen(3))
			existing := lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return providerid.New(s.ID) })
			g.Expect(existing).To(ConsistOf(lo.Map(claims(g, pool), func(c karpv1.NodeClaim, _ int) string { return c.Status.ProviderID })))
			g.Expect(existing).To(And(HaveLen(3), ContainElement(untouched.Status.ProviderID)))
			g.Expect(existing).NotTo(ContainElement(BeElementOf(deleted.Status.ProviderID, drained.Status.ProviderID)))
		}).WithTimeout(afterOutage).Should(Succeed())
		Expect(lo.Map(running(Default, web), func(p corev1.Pod, _ int) types.UID { return p.UID })).To(ContainElement(survivor.UID), "it was not touched")

		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
	})
})
