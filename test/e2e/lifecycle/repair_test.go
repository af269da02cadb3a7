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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	// tolerated is what the repair policy tolerates of a silent kubelet, the longest of these specs.
	tolerated = 5 * time.Minute
	// afterHang is how long a node that hangs may take to be back: what is tolerated, and the reboot.
	afterHang = tolerated + patience
)

// outlast waits for a condition of a node, and lets it have lasted for as long as the repair policy tolerates it. Core reads from the
// condition since when it lasts, but for no longer than there is the node.
func outlast(name string, condition corev1.NodeConditionType, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		node := &corev1.Node{}
		g.Expect(env.Client().Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		g.Expect(nodeutils.GetCondition(node, condition)).To(matcher)
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == condition {
				node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-tolerated))
			}
		}
		g.Expect(env.Client().Status().Update(ctx, node)).To(Succeed())
	}).Should(Succeed())
}

// The longest spec of the suite comes first, so that the others run beside it.
var _ = Describe("Node repair", SpecPriority(1), func() {
	It("should reboot a hung node in place, and replace one whose server is stopped", func() {
		restartController(map[string]string{"FEATURE_GATES": "NodeRepair=true"})
		pool := readyPool()
		// Pods stay on a silent node, so that nothing is launched for them meanwhile.
		web := deployment(pool, 6, environment.Apart, func(spec *corev1.PodSpec) {
			spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
		})
		create(web)
		Eventually(func(g Gomega) {
			g.Expect(running(g, web)).To(HaveLen(6))
			g.Expect(lo.Filter(claims(g, pool), func(c karpv1.NodeClaim, _ int) bool { return c.StatusConditions().Root().IsTrue() })).To(HaveLen(6))
		}).Should(Succeed())
		node := func(g Gomega, name string) *corev1.Node {
			found := &corev1.Node{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: name}, found)).To(Succeed())
			return found
		}
		before := claims(Default, pool)
		hung, stopped := before[0], before[1]
		boot := node(Default, hung.Status.NodeName).Status.NodeInfo.BootID
		serverID := func(claim karpv1.NodeClaim) string {
			id, ok := providerid.Parse(claim.Status.ProviderID)
			Expect(ok).To(BeTrue())
			return id
		}
		existing := func(g Gomega) []string {
			return lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return s.ID })
		}

		By("stopping the kubelet of one, whose server runs on")
		silenced := node(Default, hung.Status.NodeName)
		patch := client.MergeFrom(silenced.DeepCopy())
		delete(silenced.Labels, guest.LabelAlive)
		Expect(env.Client().Patch(ctx, silenced, patch)).To(Succeed())

		outlast(silenced.Name, corev1.NodeReady, HaveField("Status", corev1.ConditionUnknown))

		By("waiting until it has been rebooted and is back")
		Eventually(func(g Gomega) {
			live := node(g, hung.Status.NodeName)
			g.Expect(live.Status.NodeInfo.BootID).NotTo(Equal(boot))
			g.Expect(nodeutils.GetCondition(live, corev1.NodeReady).Status).To(Equal(corev1.ConditionTrue))
			claim := hung.DeepCopy()
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: hung.Name}, claim)).To(Succeed())
			g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeRebooting).Reason).To(Equal(karpv1.RebootReasonSucceeded))
			g.Expect(claim.StatusConditions().Root().IsTrue()).To(BeTrue(), "%+v", claim.Status.Conditions)
			g.Expect(running(g, web)).To(HaveLen(6))
		}).WithTimeout(afterHang).Should(Succeed())
		Expect(existing(Default)).To(ConsistOf(lo.Map(before, func(c karpv1.NodeClaim, _ int) string { return serverID(c) })), "nothing was replaced")

		By("stopping the server of another")
		Expect(env.Sandbox().Call(ctx, http.MethodPatch, "servers/"+serverID(stopped), map[string]string{"status": "SHUTOFF"}, nil)).To(Succeed())
		outlast(stopped.Status.NodeName, corev1.NodeReady, HaveField("Status", corev1.ConditionUnknown))
		Eventually(func(g Gomega) {
			g.Expect(existing(g)).To(And(HaveLen(6), ContainElement(serverID(stopped))))
			g.Expect(nodeutils.GetCondition(node(g, stopped.Status.NodeName), corev1.NodeReady).Status).To(Equal(corev1.ConditionTrue))
			g.Expect(running(g, web)).To(HaveLen(6))
		}).WithTimeout(afterHang).Should(Succeed())

		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
	})
})
