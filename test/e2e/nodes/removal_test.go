// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// It comes last: nothing is left for other specs.
var _ = Describe("Removal", SpecPriority(-1), func() {
	It("should leave no server, disk, Node or token behind when the commands of its page are run", func() {
		apply("kubeadm", "nodeclass.yaml")
		apply("kubeadm", "nodepool.yaml")
		last := workload("last", 1)
		create(last)
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "last")).To(HaveLen(1)) }).Should(Succeed())
		before, err := env.Sandbox().State(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(before.Servers)).To(BeNumerically(">", 2))

		page, err := os.ReadFile(filepath.Join(env.Root(), "docs", "how-to", "upgrade-and-remove.md"))
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"remove with helm", "remove definitions with helm"} {
			commands, err := environment.Block(string(page), name)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Script(ctx, commands)).Error().NotTo(HaveOccurred())
		}
		Eventually(func(g Gomega) {
			state, err := env.Sandbox().State(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state.Servers).To(HaveLen(2), "those of the suite itself")
			g.Expect(state.Volumes).To(HaveLen(2))
			g.Expect(state.WanIPs).To(BeEmpty())
			g.Expect(e2e.Listed(g, env, &corev1.NodeList{}).Items).To(HaveLen(2))
			secrets := &metav1.PartialObjectMetadataList{}
			secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			g.Expect(e2e.Listed(g, env, secrets, client.InNamespace(metav1.NamespaceSystem)).Items).To(HaveLen(1), "the token of the suite itself")
			g.Expect(e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(namespace)).Items).To(BeEmpty())
		}).Should(Succeed())
		Expect(env.Client().Delete(ctx, last)).To(Succeed())
	})
})
