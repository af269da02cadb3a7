// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
)

// publishCluster makes what kubeadm publishes for nodes that join: where the API server is, and its authority.
func publishCluster() {
	GinkgoHelper()
	own := lo.Must(clientcmd.LoadFromFile(env.Kubeconfig()))
	published := clientcmdapi.NewConfig()
	for _, cluster := range own.Clusters {
		published.Clusters[""] = cluster
	}
	kubeconfig := lo.Must(clientcmd.Write(*published))
	create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, Data: map[string]string{"kubeconfig": string(kubeconfig)},
	})
}

// joinTokens are the bootstrap tokens that there are.
func joinTokens(g Gomega) []corev1.Secret {
	return lo.Filter(e2e.Listed(g, env, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem)).Items, func(s corev1.Secret, _ int) bool {
		return s.Type == "bootstrap.kubernetes.io/token"
	})
}

// kept returns the part of a capacity that pods cannot use.
func kept(capacity, allocatable corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	rest := capacity[name].DeepCopy()
	rest.Sub(allocatable[name])
	return rest
}

// joined applies a sample, launches a pod on it, and returns its node and claim.
func joined(sample string) (*karpv1.NodePool, *corev1.Node, *karpv1.NodeClaim) {
	GinkgoHelper()
	apply(sample, "nodeclass.yaml")
	apply(sample, "nodepool.yaml")
	pool := samplePool(sample)
	pods := deployment(pool, 1, func(spec *corev1.PodSpec) {
		spec.Tolerations = []corev1.Toleration{{Key: "example.com/" + sample, Operator: corev1.TolerationOpExists}}
	})
	create(pods)
	Eventually(func(g Gomega) {
		for _, server := range servers(g, pool) {
			GinkgoWriter.Printf("server %s: %+v\n", server.Name, server.Truth.Guest)
		}
		g.Expect(running(g, pods)).To(HaveLen(1))
	}).Should(Succeed())
	nodes, found := nodesOf(Default, pool.Name), claims(Default, pool)
	Expect(nodes).To(HaveLen(1))
	Expect(found).To(HaveLen(1))
	Expect(nodes[0].Spec.ProviderID).To(Equal(found[0].Status.ProviderID))
	Expect(nodes[0].Spec.Taints).To(ConsistOf(And(HaveField("Key", "example.com/"+sample), HaveField("Effect", corev1.TaintEffectNoSchedule))))
	Expect(client.IgnoreNotFound(env.Client().Delete(ctx, pods))).To(Succeed())
	return pool, &nodes[0], &found[0]
}

var _ = Describe("Bootstrapping", func() {
	BeforeEach(publishCluster)
	It("should join a kubeadm cluster by the sample, with a token and certificate of its own", func() {
		apply("kubeadm", "rbac.yaml")
		pool, node, claim := joined("kubeadm")

		By("a certificate that the cluster has approved and signed for a token of Karpenter's")
		requests := e2e.Listed(Default, env, &certificatesv1.CertificateSigningRequestList{}).Items
		Expect(requests).To(ContainElement(And(
			HaveField("Spec.Username", HavePrefix("system:bootstrap:")), HaveField("Spec.Groups", ContainElement("system:bootstrappers:karpenter")),
			HaveField("Status.Certificate", Not(BeEmpty())))))
		By("a token that is gone once the node has registered")
		Eventually(func(g Gomega) { g.Expect(joinTokens(g)).To(BeEmpty()) }).Should(Succeed())
		By("the same view of the node before and after it was there")
		Expect(node.Status.Capacity.Pods().Value()).To(Equal(int64(60)))
		Expect(claim.Status.Capacity.Pods().Value()).To(Equal(int64(60)))
		for name, want := range map[corev1.ResourceName]string{corev1.ResourceCPU: "130m", corev1.ResourceMemory: "950Mi"} {
			seen, computed := kept(node.Status.Capacity, node.Status.Allocatable, name), kept(claim.Status.Capacity, claim.Status.Allocatable, name)
			Expect(seen.Cmp(resource.MustParse(want))).To(BeZero(), "%s: %s", name, seen.String())
			Expect(computed.Cmp(seen)).To(BeZero(), "%s: %s", name, computed.String())
		}
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should join a k3s cluster by the sample, with pods per core and a soft eviction", func() {
		pool, node, claim := joined("k3s")
		Eventually(func(g Gomega) { g.Expect(joinTokens(g)).To(BeEmpty()) }).Should(Succeed())
		pods := min(110, 20*node.Status.Capacity.Cpu().Value())
		Expect(node.Status.Capacity.Pods().Value()).To(Equal(pods))
		Expect(claim.Status.Capacity.Pods().Value()).To(Equal(pods))
		cpu := kept(node.Status.Capacity, node.Status.Allocatable, corev1.ResourceCPU)
		Expect(cpu.String()).To(Equal("130m"))
		seen, computed := kept(node.Status.Capacity, node.Status.Allocatable, corev1.ResourceMemory),
			kept(claim.Status.Capacity, claim.Status.Allocatable, corev1.ResourceMemory)
		Expect(computed.Cmp(seen)).To(BeNumerically(">=", 0), "computed %s, seen %s", computed.String(), seen.String())
		Expect(computed.Cmp(resource.MustParse("700Mi"))).To(BeNumerically(">=", 0), "400Mi, 200Mi and the hard threshold alone")
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should run user data from a Secret and from the NodeClass before BKE's own script", func() {
		create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: "templates"}, StringData: map[string]string{
			"userData": "#!/bin/bash\necho \"KUBELET_EXTRA_ARGS=--node-labels=example.com/from-secret=true,{{ .KubeletLabels }} --register-with-taints={{ " +
				".KubeletTaints }}\" > /etc/default/kubelet\n",
		}})
		class := nodeClass(v1alpha1.BizflyNodeClassSpec{
			BootstrapMode: v1alpha1.BootstrapModeBKE, UserDataFrom: &v1alpha1.UserDataSource{
				SecretKeyRef: &v1alpha1.KeySelector{Name: "templates", Key: "userData"}},
			UserData: lo.ToPtr("#cloud-config\npackages: [nfs-common]\n"),
		})
		create(class)
		pool := nodePool(class.Name)
		create(pool)
		pods := deployment(pool, 1)
		create(pods)
		Eventually(func(g Gomega) { g.Expect(running(g, pods)).To(HaveLen(1)) }).Should(Succeed())
		Expect(nodesOf(Default, pool.Name)).To(HaveExactElements(HaveField("Labels", HaveKeyWithValue("example.com/from-secret", "true"))))
		userData := servers(Default, pool)[0].Truth.UserData
		order := lo.Map([]string{"example.com/from-secret", "nfs-common", "/opt/bizfly-kubernetes-engine/bootstrap.sh"},
			func(text string, _ int) int { return strings.Index(userData, text) })
		Expect(order[0] > 0 && order[0] < order[1] && order[1] < order[2]).To(BeTrue(), fmt.Sprint(order))
		Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
		Expect(class.Status.UserDataHash).NotTo(BeEmpty())
		Expect(env.Client().Delete(ctx, pods)).To(Succeed())
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
		expectNothingLeft(pool)
	})
})
