// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

var _ = Describe("A cluster of BizFly Kubernetes Engine", func() {
	It("should join by the worker image's metadata alone, and take no pod before its taints", func() {
		apply("nodeclass-default.yaml")
		np := &karpv1.NodePool{}
		read(np, "nodepool-default.yaml")
		np.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "example.com/team", Value: "blue", Effect: corev1.TaintEffectNoSchedule}}
		create(np)
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client().Delete(ctx, np))).To(Succeed()) })

		By("having a pod wait that fits the new node, and may run on any that has no taint")
		waiting := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "waiting"},
			Spec:       environment.Deployment("", 1).Spec.Template.Spec,
		}
		waiting.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1600m")
		create(waiting)
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client().Delete(ctx, waiting))).To(Succeed()) })

		watched := watchNodes()
		began := time.Now()
		blue := environment.Deployment("blue", 1, environment.OnPool("default"), func(spec *corev1.PodSpec) {
			spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1200m")
			spec.Tolerations = []corev1.Toleration{{Key: "example.com/team", Operator: corev1.TolerationOpExists}}
		})
		create(blue)
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "blue")).To(HaveLen(1)) }).Should(Succeed())
		took("a pod of a cluster of BKE from pending to ready", began)

		nodes := nodesOf(Default, "default")
		Expect(nodes).To(HaveLen(1))
		Expect(lo.Map(watched.taints(nodes[0].Name), func(t corev1.Taint, _ int) string { return t.Key })).NotTo(ContainElement("example.com/team"),
			"the engine's kubelet knows nothing of the NodePool")
		Expect(nodes[0].Spec.Taints).To(ContainElement(HaveField("Key", "example.com/team")))
		Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(waiting), waiting)).To(Succeed())
		Expect(waiting.Spec.NodeName).To(BeEmpty(), "it came before the taint")

		claim := claimsOf(Default, "default")[0]
		Expect(claim.Status.Allocatable).NotTo(BeEmpty())
		for name, planned := range claim.Status.Allocatable {
			reported := nodes[0].Status.Allocatable[name]
			AddReportEntry(string(name), fmt.Sprintf("planned %s, reported %s", planned.String(), reported.String()))
			Expect(planned.Cmp(reported)).To(BeNumerically("<=", 0), "%s: planned %s, reported %s", name, planned.String(), reported.String())
		}

		Expect(env.Client().Delete(ctx, blue)).To(Succeed())
		Expect(env.Client().Delete(ctx, np)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(serversOf(g, "default")).To(BeEmpty()) }).Should(Succeed())
	})
})

var _ = Describe("User data of 16 KiB in several parts", func() {
	It("should run in the documented order, with BKE's own script after the NodeClass's", func() {
		comment := "#" + strings.Repeat("0123456789abcde\n#", 800)
		class := &v1alpha1.BizflyNodeClass{}
		read(class, "nodeclass-default.yaml")
		class.Name = "parts"
		class.Spec.UserData = ptr.To(`Content-Type: multipart/mixed; boundary="=="
MIME-Version: 1.0

--==
Content-Type: text/cloud-config

bootcmd:
  - [sh, -c, "echo order 1: bootcmd"]
write_files:
  - {path: /etc/marker, content: order 2 written}
runcmd:
  - [sh, -c, "echo order 4: runcmd, with $(test -e /etc/kubernetes/kubelet.conf && echo a kubelet)"]
  - ip netns add pod && ip link add pod0 type veth peer name eth0 netns pod && ip link set pod0 up && ip address add 10.255.0.1/30 dev pod0
  - ip -n pod link set eth0 up && ip -n pod address add 10.255.0.2/30 dev eth0 && ip -n pod route add default via 10.255.0.1
  - ip netns exec pod timeout 2 bash -c '</dev/tcp/169.254.169.254/80' || true
  - >-
    iptables -t raw -vnxL PREROUTING |
    awk '/169.254.169.254/ && $1 > 0 { print "order 5: a pod is kept off the metadata service" }'
` + comment + `
--==
Content-Type: text/x-shellscript

#!/bin/sh
echo "order 3: $(cat /etc/marker) before the script, and $(test -e /etc/kubernetes/kubelet.conf || echo no kubelet yet)"
--==--
`)
		create(class)
		DeferCleanup(func() {
			Expect(env.Client().DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{"size": class.Name})).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}, client.MatchingLabels{"size": class.Name}).Items).To(BeEmpty())
			}).Should(Succeed())
			Expect(env.Client().Delete(ctx, class)).To(Succeed())
		})
		id := idOf(launched(class.Name, 1, []string{"p2.2c_4g"})[0])
		state := lo.Must(env.Sandbox().State(ctx))
		server, found := lo.Find(state.Servers, func(s cloud.Server) bool { return s.ID == id })
		Expect(found).To(BeTrue())
		Expect(len(server.Truth.UserData)).To(BeNumerically("~", 16<<10, 1<<10), "it is to be about as long as it may be")
		Eventually(func() []string {
			return lo.Filter(strings.Split(env.Console(id), "\n"), func(line string, _ int) bool { return strings.HasPrefix(line, "order ") })
		}).Should(Equal([]string{
			"order 1: bootcmd", "order 3: order 2 written before the script, and no kubelet yet", "order 4: runcmd, with a kubelet",
			"order 5: a pod is kept off the metadata service",
		}))
	})
})
