// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

var _ = Describe("A NodeClass that names what does not exist", func() {
	DescribeTable("should not be ready, and report the field, the value and what is available",
		func(condition, field, value, available string, spec v1alpha1.BizflyNodeClassSpec) {
			class := nodeClass(spec)
			create(class)
			Eventually(func(g Gomega) {
				g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: class.Name}, class)).To(Succeed())
				g.Expect(class.StatusConditions().Root().IsFalse()).To(BeTrue(), "%+v", class.Status.Conditions)
				g.Expect(class.StatusConditions().Get(condition).IsFalse()).To(BeTrue(), "%+v", class.Status.Conditions)
				g.Expect(class.StatusConditions().Get(condition).Message).To(And(
					ContainSubstring(field), ContainSubstring(value), ContainSubstring(available)))
			}).Should(Succeed())
		},
		Entry("zone", v1alpha1.ConditionTypeZonesReady, "zones", "HN9", "HN1", v1alpha1.BizflyNodeClassSpec{Zones: []string{"HN9"}}),
		Entry("network", v1alpha1.ConditionTypeNetworksReady, "networkSelectorTerms", "no-such-network", "default-vpc", v1alpha1.BizflyNodeClassSpec{
			NetworkSelectorTerms: []v1alpha1.NetworkSelectorTerm{{Name: "no-such-network"}}}),
		Entry("firewall", v1alpha1.ConditionTypeFirewallsReady, "firewallSelectorTerms", "no-such-firewall", "kubernetes-nodes", v1alpha1.BizflyNodeClassSpec{
			FirewallSelectorTerms: []v1alpha1.FirewallSelectorTerm{{Name: "no-such-firewall"}}}),
		Entry("SSH key", v1alpha1.ConditionTypeSSHKeyReady, "sshKeyName", "no-such-key", "ops", v1alpha1.BizflyNodeClassSpec{
			SSHKeyName: "no-such-key"}),
		Entry("image", v1alpha1.ConditionTypeImagesReady, "imageSelectorTerms", "no-such-image", "golden-node", v1alpha1.BizflyNodeClassSpec{
			ImageSelectorTerms: []v1alpha1.ImageSelectorTerm{{Name: "no-such-image"}}}),
	)
})

var _ = Describe("A NodePool that asks for what no flavor has", func() {
	It("should have an event", func() {
		pool := readyPool(karpv1.NodeSelectorRequirementWithMinValues{
			Key: v1alpha1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpIn, Values: []string{"999"},
		})
		create(deployment(pool, 1))
		Eventually(func(g Gomega) {
			reported := lo.Filter(e2e.Listed(g, env, &corev1.EventList{}).Items, func(e corev1.Event, _ int) bool {
				return e.InvolvedObject.Kind == "NodePool" && e.InvolvedObject.Name == pool.Name && e.Reason == events.ReasonNoCompatibleFlavor
			})
			g.Expect(reported).NotTo(BeEmpty())
			g.Expect(reported[0].Message).To(ContainSubstring(v1alpha1.LabelInstanceCPU))
		}).Should(Succeed())
		Expect(servers(Default, pool)).To(BeEmpty())
	})
})

var _ = Describe("A configuration that cannot work", func() {
	DescribeTable("should stop the controller with one clear line", func(overrides map[string]string, words ...string) {
		expectExit(env, overrides, words...)
	},
		Entry("no password", map[string]string{"BIZFLY_CLOUD_PASSWORD": ""}, "BIZFLY_CLOUD_PASSWORD"),
		Entry("no cluster name", map[string]string{"CLUSTER_NAME": ""}, "CLUSTER_NAME"),
		Entry("an unknown region", map[string]string{"BIZFLY_CLOUD_REGION": "MARS"}, "BIZFLY_CLOUD_REGION", "MARS", "HN"),
	)
})

// One that has reached it starts all the same, so that an outage blocks no upgrade.
var _ = Describe("A cluster that has never reached its cloud", func() {
	It("should stop the controller with one clear line when the endpoint is unreachable", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_API_URL": "http://127.0.0.1:1/api"}, "127.0.0.1:1", "connection refused")
	})

	It("should stop the controller with one clear line when the password is wrong", func() {
		output := expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_PASSWORD": "not-the-password"}, "login", "BIZFLY_CLOUD_PASSWORD")
		Expect(output).NotTo(ContainSubstring("not-the-password"))
	})

	It("should be seen by the demo's proxy when the endpoint is another host", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_API_URL": "https://manage.bizflycloud.example/api"}, "cannot start")
		count, hosts := neverReached().ForeignRequests()
		Expect(count).To(BeNumerically(">", 0))
		Expect(hosts).To(ConsistOf(HavePrefix("manage.bizflycloud.example")))
	})
})

// expectExit runs the controller until it exits, and expects the reason in one log line that contains the words.
func expectExit(env *environment.Environment, overrides map[string]string, words ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	output, err := env.RunController(ctx, overrides)
	Expect(err).To(MatchError("exit status 1"), output)
	messages := lo.Filter(strings.Split(strings.TrimSpace(output), "\n"), func(line string, _ int) bool { return strings.Contains(line, "cannot start") })
	Expect(messages).To(HaveLen(1), output)
	for _, word := range words {
		Expect(messages[0]).To(ContainSubstring(word))
	}
	Expect(output).NotTo(Or(ContainSubstring("panic"), ContainSubstring("goroutine ")))
	return output
}
