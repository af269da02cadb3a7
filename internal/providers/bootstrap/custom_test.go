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
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Custom mode", func() {
	DescribeTable("should offer the variable", func(template, rendered string) {
		nodeClass := custom(template)
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{
			MaxPods:      lo.ToPtr(int32(50)),
			KubeReserved: map[string]string{"cpu": "100m", "memory": "1Gi"}, SystemReserved: map[string]string{"memory": "200Mi"},
			EvictionHard: map[string]string{"memory.available": "5%"},
		}
		Expect(provider().Validate(nodeClass)).To(Succeed())
		output := render(input(nodeClass))
		Expect(output.UserData).To(Equal(rendered))
		Expect(output.Metadata).To(BeEmpty())
	},
		Entry("NodeName", "{{ .NodeName }}", "general-x7k2p-0a1b2c3d"),
		Entry("ClusterName", "{{ .ClusterName }}", "prod"),
		Entry("KubernetesVersion", "{{ .KubernetesVersion }}", "v1.35.2"),
		Entry("ProviderIDPrefix", "{{ .ProviderIDPrefix }}", "bizflycloud://"),
		Entry("NetworkIDs", `{{ join "," .NetworkIDs }}`, "network-1,network-2"),
		Entry("Labels", `{{ index .Labels "karpenter.sh/do-not-sync-taints" }} {{ .Labels.team }}`, "true storage"),
		Entry("Taints", "{{ range .Taints }}{{ .Key }}={{ .Value }}:{{ .Effect }} {{ end }}",
			"karpenter.sh/unregistered=:NoExecute dedicated=storage:NoSchedule node.cilium.io/agent-not-ready=:NoExecute "),
		Entry("KubeletLabels", "{{ .KubeletLabels }}", "karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general,team=storage"),
		Entry("KubeletTaints", "{{ .KubeletTaints }}",
			"karpenter.sh/unregistered=:NoExecute,dedicated=storage:NoSchedule,node.cilium.io/agent-not-ready=:NoExecute"),
		Entry("MaxPods", "{{ .MaxPods }}", "50"),
		Entry("KubeReserved", "{{ toJson .KubeReserved }}", `{"cpu":"100m","memory":"1Gi"}`),
		Entry("SystemReserved, the defaults where the NodeClass sets nothing", "{{ toJson .SystemReserved }}", `{"cpu":"20m","memory":"200Mi"}`),
		Entry("EvictionHard, the defaults where the NodeClass sets nothing", "{{ toJson .EvictionHard }}", `{"memory.available":"5%","nodefs.available":"10%"}`),
		Entry("Metadata", "{{ .Metadata.team }}", "storage"),
	)

	DescribeTable("should offer the function", func(template, rendered string) {
		Expect(render(input(custom(template))).UserData).To(Equal(rendered))
	},
		Entry("toYaml", "{{ toYaml .Metadata }}", "team: storage"),
		Entry("toJson", "{{ toJson .NetworkIDs }}", `["network-1","network-2"]`),
		Entry("b64enc", "{{ b64enc .ClusterName }}", "cHJvZA=="),
		Entry("indent", `{{ indent 2 "a\nb" }}`, "  a\n  b"),
		Entry("nindent", `{{ nindent 2 "a\nb" }}`, "\n  a\n  b"),
		Entry("quote", `{{ quote "say \"hi\"" }}`, `"say \"hi\""`),
		Entry("squote", `{{ squote "it's" }}`, `'it'\''s'`),
		Entry("join", `{{ .NetworkIDs | join "+" }}`, "network-1+network-2"),
		Entry("default", `{{ .ClusterName | default "x" }} {{ "" | default "x" }}`, "prod x"),
		Entry("lower, upper, trim and replace", `{{ lower "A" }}{{ upper "b" }}{{ trim " c " }}{{ replace "." "-" "1.2" }}`, "aBc1-2"),
		Entry("contains, hasPrefix and hasSuffix", `{{ contains "ro" .ClusterName }} {{ hasPrefix "p" .ClusterName }} {{ hasSuffix "x" .ClusterName }}`, "true true false"),
		Entry("printf", `{{ printf "%s-%d" .ClusterName .MaxPods }}`, "prod-110"),
	)

	DescribeTable("should say where a template is wrong, and never quote it", func(template, where, what string) {
		nodeClass := custom("#!/bin/bash\n# " + secret + "\n" + template)
		invalid := invalidOf(provider().Validate(nodeClass))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonInvalidUserData))
		Expect(invalid.Message).To(And(HavePrefix("spec.bootstrap.userData"+where), ContainSubstring(what), Not(ContainSubstring(secret))))
		_, err := provider().Render(ctx, input(nodeClass))
		Expect(err).To(MatchError(invalid.Message))
	},
		Entry("an action that does not end", "{{ .NodeName", ", line 3", "does not parse"),
		Entry("an action that does not parse", `{{ "`+secret+`" "b }}`, ", line 3", "does not parse"),
		Entry("an unknown function", `{{ env "`+secret+`" }}`, ", line 3", "functions are b64enc, "),
		Entry("an unknown variable", `{{ printf "`+secret+`%s" .Nodename }}`, ", line 3, column ", "variables are NodeName, "),
		Entry("a function with the wrong argument", `{{ join "`+secret+`" .NodeName }}`, ", line 3, column ", "cannot be rendered"),
		Entry("an indent that is too wide", `{{ indent 100000000 "`+secret+`" }}`, ", line 3, column ", "cannot be rendered"),
	)
	It("should refuse user data that is only blanks", func() {
		Expect(invalidOf(provider().Validate(custom(" \n"))).Message).To(ContainSubstring("it is empty"))
	})
	It("should not hold a label against the template that only the NodePool brings, but refuse to render without it", func() {
		nodeClass := custom("{{ .Labels.team }}")
		Expect(provider().Validate(nodeClass)).To(Succeed())
		in := input(nodeClass)
		Expect(render(in).UserData).To(Equal("storage"))
		delete(in.Labels, "team")
		_, err := provider().Render(ctx, in)
		Expect(invalidOf(err).Message).To(HavePrefix("spec.bootstrap.userData, line 1, column "))
	})
	It("should not let a template change what others see", func() {
		nodeClass := custom(`{{ .Metadata.team }}`)
		first := render(input(nodeClass))
		Expect(render(input(nodeClass))).To(Equal(first))
	})

	Context("size", func() {
		It("should accept 16 KiB", func() {
			Expect(render(input(custom(strings.Repeat("x", 16*1024)))).UserData).To(HaveLen(16 * 1024))
		})
		It("should refuse more than 16 KiB after rendering", func() {
			nodeClass := custom(strings.Repeat("x", 16*1024-4) + "{{ .NodeName }}")
			Expect(invalidOf(provider().Validate(nodeClass)).Message).To(ContainSubstring("larger than the 16384 bytes"))
			_, err := provider().Render(ctx, input(nodeClass))
			Expect(invalidOf(err).Message).To(ContainSubstring("larger than the 16384 bytes"))
		})
		DescribeTable("should stop a template that grows without end", func(template string) {
			Expect(invalidOf(provider().Validate(custom(template))).Message).To(ContainSubstring("larger than the 16384 bytes"))
		},
			Entry("by calling itself", `{{ define "x" }}xxxxxxxx{{ template "x" }}{{ end }}{{ template "x" }}`),
			Entry("by doubling a variable", `{{ $x := "xxxxxxxx" }}`+strings.Repeat(`{{ $x = printf "%s%s" $x $x }}`, 60)+`{{ $x }}`),
			Entry("by replacing", fmt.Sprintf(`{{ $x := "xxxxxxxx" }}%s{{ $x }}`, strings.Repeat(`{{ $x = replace "x" $x $x }}`, 9))),
			Entry("by escaping", fmt.Sprintf(`{{ $x := "xxxxxxxx" }}%s{{ $x }}`, strings.Repeat(`{{ $x = quote $x }}`, 60))),
		)
	})
})
