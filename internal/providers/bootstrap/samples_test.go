// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The samples", func() {
	sample := func(name string) *v1alpha1.BizflyNodeClass {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "samples", name, "nodeclass.yaml"))
		Expect(err).ToNot(HaveOccurred())
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(yaml.UnmarshalStrict(content, nodeClass)).To(Succeed())
		Expect(validate(nodeClass)).To(Succeed())
		return nodeClass
	}
	It("should give kubeadm a JoinConfiguration and a patch of the kubelet's configuration", func() {
		parts := pieces(render(input(sample("kubeadm"))).UserData)
		Expect(parts).To(HaveLen(2), "the script that keeps pods off the metadata service is before it")
		userData := parts[1].text
		config := struct {
			WriteFiles []struct{ Path, Content string } `json:"write_files"`
		}{}
		Expect(yaml.Unmarshal([]byte(userData), &config)).To(Succeed())
		files := map[string]string{}
		for _, file := range config.WriteFiles {
			files[file.Path] = file.Content
		}
		join, kubelet := map[string]any{}, map[string]any{}
		Expect(yaml.UnmarshalStrict([]byte(files["/etc/kubernetes/join.yaml"]), &join)).To(Succeed())
		Expect(join).To(HaveKeyWithValue("discovery", map[string]any{"bootstrapToken": map[string]any{
			"apiServerEndpoint": "10.20.0.10:6443", "token": "node01.0123456789abcdef", "caCertHashes": []any{authorityHash},
		}}))
		Expect(yaml.UnmarshalStrict([]byte(files["/etc/kubernetes/patches/kubeletconfiguration+merge.yaml"]), &kubelet)).To(Succeed())
		Expect(kubelet).To(And(HaveKeyWithValue("maxPods", BeEquivalentTo(60)), HaveKeyWithValue("registerWithTaints", HaveLen(3))))
		Expect(files["/usr/local/sbin/karpenter-join"]).To(ContainSubstring("pkgs.k8s.io/core:/stable:/v1.35/deb"))
	})
	It("should give k3s its configuration", func() {
		userData := render(input(sample("k3s"))).UserData
		_, rest, _ := strings.Cut(userData, "<<EOF\n")
		text, _, _ := strings.Cut(rest, "\nEOF\n")
		config := map[string]any{}
		Expect(yaml.UnmarshalStrict([]byte(text), &config)).To(Succeed())
		Expect(config).To(And(
			HaveKeyWithValue("server", "https://10.20.0.10:6443"),
			HaveKeyWithValue("token", MatchRegexp(`^K10[0-9a-f]{64}::node01\.0123456789abcdef$`)),
			HaveKeyWithValue("node-taint", ContainElement("karpenter.sh/unregistered=:NoExecute")),
			HaveKeyWithValue("node-label", ContainElement("team=storage")),
			HaveKeyWithValue("kubelet-arg", ContainElements("pods-per-core=20", "max-pods=80", "eviction-soft=memory.available<300Mi",
				"eviction-soft-grace-period=memory.available=1m30s")),
		))
	})
	It("should run k3s only of the version and checksum that are given", func() {
		k3s := sample("k3s")
		k3s.Spec.UserDataValues["k3sSHA256"] = strings.Repeat("5", 64)
		userData := render(input(k3s)).UserData
		Expect(userData).To(And(
			ContainSubstring("-o /usr/local/bin/k3s https://github.com/k3s-io/k3s/releases/download/v1.35.0%2Bk3s1/k3s\n"),
			ContainSubstring("\necho '"+strings.Repeat("5", 64)+"  /usr/local/bin/k3s' | sha256sum -c -\n"), ContainSubstring("\nset -euo pipefail\n"),
			Not(ContainSubstring("get.k3s.io"))))
		Expect(strings.Index(userData, "sha256sum -c")).To(BeNumerically("<", strings.Index(userData, "ExecStart=/usr/local/bin/k3s agent")))
	})
	It("should leave space for more", func() {
		for _, name := range []string{"kubeadm", "k3s"} {
			Expect(len(render(input(sample(name))).UserData)).To(BeNumerically("<", 8*1024), name)
		}
	})
})
