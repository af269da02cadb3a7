// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
)

// samples are the files that users start from.
const samples = "../../../config/samples"

// apply applies a sample as kubectl would and deletes it again at the end of the spec.
func apply(path ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{samples}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	// The checksum of k3s is for users to fill in.
	content = bytes.ReplaceAll(content, []byte("the-checksum-of-this-version"), []byte(guest.K3sSHA256))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred())
		create(object)
		objects = append(objects, object)
	}
}

// samplePool is a NodePool that a sample has made.
func samplePool(name string) *karpv1.NodePool {
	GinkgoHelper()
	pool := &karpv1.NodePool{}
	Eventually(func(g Gomega) {
		g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: name}, pool)).To(Succeed())
		g.Expect(pool.StatusConditions().Root().IsTrue()).To(BeTrue(), "%+v", pool.Status.Conditions)
	}).Should(Succeed())
	return pool
}

// podsOf are the pods of a sample's workload, which have the label app, that have a node.
func podsOf(g Gomega, app string) []corev1.Pod {
	pods := e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(corev1.NamespaceDefault), client.MatchingLabels{"app": app})
	return lo.Filter(pods.Items, func(p corev1.Pod, _ int) bool { return p.Spec.NodeName != "" && p.DeletionTimestamp == nil })
}

// nodesOf are the pool's Nodes.
func nodesOf(g Gomega, pool string) []corev1.Node {
	return e2e.Listed(g, env, &corev1.NodeList{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}).Items
}

// removed deletes a workload with its pods, and then waits for the pools' servers to go.
func removed(objects []*unstructured.Unstructured, pools ...*karpv1.NodePool) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(env.Client().Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	}
	for _, pool := range pools {
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
	}
	for _, pool := range pools {
		expectNothingLeft(pool)
	}
}

var _ = Describe("The samples", func() {
	BeforeEach(func() { apply("nodeclass-default.yaml") })
	It("should launch what fits best with the default pool", func() {
		apply("nodepool-default.yaml")
		pool := samplePool("default")
		web := deployment(pool, 2)
		create(web)
		Eventually(func(g Gomega) { g.Expect(running(g, web)).To(HaveLen(2)) }).Should(Succeed())
		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should keep to the zones and flavors of zones-and-flavors", func() {
		apply("zones-and-flavors", "nodepool.yaml")
		pool := samplePool("zones-and-flavors")
		workload := apply("zones-and-flavors", "workload.yaml")
		Eventually(func(g Gomega) { g.Expect(podsOf(g, "zones-and-flavors")).To(HaveLen(2)) }).Should(Succeed())
		for _, node := range nodesOf(Default, pool.Name) {
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelTopologyZone, "HN1"))
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, BeElementOf("p2.4c_8g", "p2.4c_16g", "p2.8c_16g")))
		}
		removed(workload, pool)
	})
	It("should scale from zero for a job, and to zero after it", func() {
		apply("scale-to-zero", "nodepool.yaml")
		pool := samplePool("batch")
		Expect(servers(Default, pool)).To(BeEmpty())
		workload := apply("scale-to-zero", "workload.yaml")
		Eventually(func(g Gomega) { g.Expect(podsOf(g, "nightly-report")).To(HaveLen(3)) }).Should(Succeed())
		for _, claim := range claims(Default, pool) {
			Expect(claim.Labels).To(HaveKeyWithValue(v1alpha1.LabelInstanceCategory, BeElementOf("basic", "premium")))
		}
		for _, object := range workload {
			Expect(env.Client().Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		}
		// The pool stays, and takes its own time: consolidateAfter is a minute.
		Eventually(func(g Gomega) { g.Expect(servers(g, pool)).To(BeEmpty()) }).WithTimeout(2 * patience).Should(Succeed())
		Expect(env.Client().Delete(ctx, pool)).To(Succeed())
		expectNothingLeft(pool)
	})
	It("should use up the steady pool before it bursts", func() {
		apply("burst", "nodepool.yaml")
		steady, burst := samplePool("steady"), samplePool("burst")
		workload := apply("burst", "workload.yaml")
		Eventually(func(g Gomega) {
			g.Expect(podsOf(g, "burst")).To(HaveLen(6))
			g.Expect(nodesOf(g, steady.Name)).NotTo(BeEmpty())
			g.Expect(nodesOf(g, burst.Name)).NotTo(BeEmpty())
		}).Should(Succeed())
		cpu := lo.SumBy(nodesOf(Default, steady.Name), func(n corev1.Node) int64 { return n.Status.Capacity.Cpu().Value() })
		Expect(cpu).To(BeNumerically("<=", 8), "the steady pool's limit")
		removed(workload, steady, burst)
	})
	It("should spread over the zones", func() {
		apply("web", "nodeclass.yaml")
		apply("web", "nodepool.yaml")
		pool := samplePool("web")
		workload := apply("web", "workload.yaml")
		Eventually(func(g Gomega) { g.Expect(podsOf(g, "web")).To(HaveLen(4)) }).Should(Succeed())
		zoneOf := lo.SliceToMap(nodesOf(Default, pool.Name), func(n corev1.Node) (string, string) { return n.Name, n.Labels[corev1.LabelTopologyZone] })
		pods := lo.CountValuesBy(podsOf(Default, "web"), func(p corev1.Pod) string { return zoneOf[p.Spec.NodeName] })
		Expect(pods).To(Equal(map[string]int{"HN1": 2, "HN2": 2}))
		removed(workload, pool)
	})
	It("should launch a server with a GPU for a job that asks for one, and none before", func() {
		for _, file := range []string{"device-plugin.yaml", "nodeclass.yaml", "nodepool.yaml"} {
			apply("gpu", file)
		}
		pool := samplePool("gpu")
		Expect(servers(Default, pool)).To(BeEmpty())
		workload := apply("gpu", "workload.yaml")
		Eventually(func(g Gomega) { g.Expect(podsOf(g, "cuda")).To(HaveLen(1)) }).Should(Succeed())
		// The pod may run before Karpenter has noticed that the node is initialized.
		Eventually(func(g Gomega) {
			nodes := nodesOf(g, pool.Name)
			g.Expect(nodes).To(HaveLen(1))
			g.Expect(nodes[0].Labels).To(HaveKey(v1alpha1.LabelInstanceGPUName))
			g.Expect(nodes[0].Labels).To(HaveKeyWithValue(karpv1.NodeInitializedLabelKey, "true"))
		}).Should(Succeed())
		removed(workload, pool)
	})
	It("should wait on Cilium's nodes until the agent has removed its taint", func() {
		apply("cilium", "nodepool.yaml")
		pool := samplePool("cilium")
		workload := apply("cilium", "workload.yaml")
		isAgents := func(t corev1.Taint) bool { return t.Key == "node.cilium.io/agent-not-ready" }
		Eventually(func(g Gomega) {
			nodes := nodesOf(g, pool.Name)
			g.Expect(nodes).To(HaveLen(1))
			// Core waits for those alone that the NodePool names with their effect: that of its own, and that of Cilium's operator.
			g.Expect(lo.Filter(nodes[0].Spec.Taints, func(t corev1.Taint, _ int) bool { return isAgents(t) })).To(ConsistOf(
				HaveField("Effect", corev1.TaintEffectNoExecute), HaveField("Effect", corev1.TaintEffectNoSchedule)))
			g.Expect(nodes[0].Labels).To(HaveKeyWithValue(karpv1.NodeRegisteredLabelKey, "true"))
		}).Should(Succeed())
		Expect(podsOf(Default, "cilium")).To(BeEmpty())
		ids := func(g Gomega) []string {
			return lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return s.ID })
		}
		first := ids(Default)
		Expect(first).To(HaveLen(1))
		// What Cilium's agent does once the node's network works.
		Eventually(func(g Gomega) {
			node := nodesOf(g, pool.Name)[0]
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isAgents)
			g.Expect(env.Client().Update(ctx, &node)).To(Succeed())
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			if seen := ids(g); !slices.Equal(seen, first) {
				StopTrying(fmt.Sprintf("another server was launched meanwhile: %v", seen)).Now()
			}
			g.Expect(podsOf(g, "cilium")).To(HaveLen(1))
		}).Should(Succeed())
		removed(workload, pool)
	})
})
