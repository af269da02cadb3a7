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
		userData := render(input(sample("kubeadm"))).UserData
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
	It("should leave space for more", func() {
		for _, name := range []string{"kubeadm", "k3s"} {
			Expect(len(render(input(sample(name))).UserData)).To(BeNumerically("<", 8*1024), name)
		}
	})
})
