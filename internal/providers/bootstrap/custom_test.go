// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Custom mode", func() {
	DescribeTable("should offer the variable", func(template, rendered string) {
		nodeClass := custom(template)
		nodeClass.Spec.JoinToken = &v1alpha1.JoinToken{}
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{
			MaxPods:      lo.ToPtr(int32(50)),
			KubeReserved: map[string]string{"cpu": "100m", "memory": "1Gi"}, SystemReserved: map[string]string{"memory": "200Mi"},
			EvictionHard: map[string]string{"memory.available": "5%"}, ClusterDNS: []string{"10.96.0.10"},
		}
		Expect(validate(nodeClass)).To(Succeed())
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
		Entry("Values", "{{ .Values.team }}", "storage"),
		Entry("PodsPerCore, where the NodeClass sets none", "{{ .PodsPerCore }}", "0"),
		Entry("EvictionSoft, where the NodeClass sets none", "{{ toJson .EvictionSoft }}{{ toJson .EvictionSoftGracePeriod }}", "nullnull"),
		Entry("KubeletArgs", "{{ range $name, $value := .KubeletArgs }}--{{ $name }}={{ $value }} {{ end }}",
			"--cluster-dns=10.96.0.10 --eviction-hard=imagefs.available<15%,imagefs.inodesFree<5%,memory.available<5%,nodefs.available<10%,nodefs.inodesFree<5% "+
				"--kube-reserved=cpu=100m,memory=1Gi --max-pods=50 --system-reserved=cpu=20m,memory=200Mi "),
		Entry("APIServerEndpoint", "{{ .APIServerEndpoint }}", "10.20.0.10:6443"),
		Entry("CABundle", "{{ .CABundle }}", authority),
		Entry("CACertHashes", `{{ join "," .CACertHashes }}`, authorityHash),
		Entry("ClusterDNS", `{{ join "," .ClusterDNS }}`, "10.96.0.10"),
		Entry("JoinToken", `{{ .JoinToken }}`, "node01.0123456789abcdef"),
	)
	DescribeTable("should tell of arguments that the kubelet of Kubernetes 1.37 does not know", func(
		lines string, flags ...string) {
		resolution, err := provider().Resolve(ctx, custom("#!/bin/sh\n"+lines))
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(resolution.Notes, " ")).To(lo.Ternary(len(flags) == 0, BeEmpty(),
			ContainSubstring("the kubelet "+strings.Join(flags, ", ")+": that of Kubernetes 1.37")))
	},
		Entry("on its command line", "exec kubelet --v=2 --containerd=/run/c.sock --boot-id-file /b", "--boot-id-file", "--containerd"),
		Entry("in its variable", "echo KUBELET_EXTRA_ARGS=--containerd=/run/c.sock > /etc/default/kubelet", "--containerd"),
		Entry("in kubeadm's list", "kubeletExtraArgs:\n- name: container-hints\n  value: /h\n", "--container-hints"),
		Entry("in kubeadm's map", "kubeletExtraArgs:\n  machine-id-file: /m\n  containerd: /c\n", "--containerd", "--machine-id-file"),
		Entry("in k3s' list", "kubelet-arg:\n- 'storage-driver-db=x'\n", "--storage-driver-db"),
		Entry("but not of runtimes", "apt install containerd\ndockerd --containerd=/c.sock\nsystemctl restart kubelet"),
	)
	It("should offer the kubelet's whole configuration as YAML", func() {
		nodeClass := custom("{{ .KubeletConfiguration }}")
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{
			MaxPods: lo.ToPtr(int32(50)), PodsPerCore: lo.ToPtr(int32(10)), KubeReserved: map[string]string{"cpu": "100m", "memory": "1Gi"},
			EvictionSoft: map[string]string{"memory.available": "500Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m30s"},
			EvictionMaxPodGracePeriod: lo.ToPtr(int32(60)), ImageGCHighThresholdPercent: lo.ToPtr(int32(70)), ImageGCLowThresholdPercent: lo.ToPtr(int32(0)),
			CPUCFSQuota: lo.ToPtr(false), ClusterDNS: []string{"10.96.0.53", "10.96.0.54"},
		}
		Expect(render(input(nodeClass)).UserData).To(MatchYAML(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 40 # 4 vCPUs
podsPerCore: 10
kubeReserved: {cpu: 100m, memory: 1Gi}
systemReserved: {cpu: 20m, memory: 100Mi}
evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}
evictionSoft: {memory.available: 500Mi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMaxPodGracePeriod: 60
imageGCHighThresholdPercent: 70
imageGCLowThresholdPercent: 0
cpuCFSQuota: false
clusterDNS: [10.96.0.53, 10.96.0.54]
registerWithTaints:
- {key: karpenter.sh/unregistered, effect: NoExecute}
- {key: dedicated, value: storage, effect: NoSchedule}
- {key: node.cilium.io/agent-not-ready, effect: NoExecute}
`))
	})
	It("should pass the rest of spec.kubelet on as arguments too", func() {
		nodeClass := custom(`{{ range $name, $value := .KubeletArgs }}--{{ $name }}={{ $value }}
{{ end }}{{ join "," .ClusterDNS }}`)
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{
			EvictionMaxPodGracePeriod: lo.ToPtr(int32(60)), ImageGCHighThresholdPercent: lo.ToPtr(int32(70)), ImageGCLowThresholdPercent: lo.ToPtr(int32(60)),
			CPUCFSQuota: lo.ToPtr(false), ClusterDNS: []string{"10.96.0.53"},
		}
		Expect(strings.Split(render(input(nodeClass)).UserData, "\n")).To(ContainElements("--eviction-max-pod-grace-period=60",
			"--image-gc-high-threshold=70", "--image-gc-low-threshold=60", "--cpu-cfs-quota=false", "--cluster-dns=10.96.0.53", "10.96.0.53"))
	})
	It("should not repeat the unregistered taint where the NodeClaim has it", func() {
		in := input(custom("{{ .KubeletTaints }}"))
		in.NodeClaim.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
		Expect(render(in).UserData).To(Equal("karpenter.sh/unregistered=:NoExecute,node.cilium.io/agent-not-ready=:NoExecute"))
	})
	It("should leave out labels with which a kubelet does not start", func() {
		in := input(custom("{{ .KubeletLabels }}"))
		in.Labels = map[string]string{
			"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "HN1", "node.kubernetes.io/instance-type": "p2.2c_4g",
			"node.kubernetes.io/anything": "x", "special.kubelet.kubernetes.io/x": "x", "bare": "x", "example.com/x": "x",
			"node-role.kubernetes.io/worker": "", "node-restriction.kubernetes.io/x": "x", "app.kubernetes.io/name": "x", "x-k8s.io/x": "x", "k8s.io/x": "x",
		}
		Expect(render(in).UserData).To(Equal("bare=x,example.com/x=x,karpenter.sh/do-not-sync-taints=true,kubernetes.io/os=linux," +
			"node.kubernetes.io/anything=x,node.kubernetes.io/instance-type=p2.2c_4g,special.kubelet.kubernetes.io/x=x,topology.kubernetes.io/zone=HN1,x-k8s.io/x=x"))
	})
	DescribeTable("should let nothing but labels and taints into a script", func(spoil func(*bootstrap.Input)) {
		in := input(custom("{{ .KubeletLabels }} {{ .KubeletTaints }}"))
		spoil(&in)
		Expect(provider().Render(ctx, in)).Error().To(MatchError(ContainSubstring("is not valid")))
	},
		Entry("a label's value", func(in *bootstrap.Input) { in.Labels["team"] = "x'; reboot; '" }),
		Entry("a label's key", func(in *bootstrap.Input) { in.Labels["$(reboot)"] = "x" }),
		Entry("a taint's key", func(in *bootstrap.Input) { in.NodeClaim.Spec.Taints[0].Key = "a b" }),
		Entry("a taint's value", func(in *bootstrap.Input) { in.NodeClaim.Spec.Taints[0].Value = "a,b" }),
	)
	It("should offer a command that finds the server's id", func() {
		script := render(input(custom(`SERVER_ID=$({{ .ServerIDCommand }})`))).UserData
		out, err := exec.CommandContext(ctx, "bash", "-c", `set -euo pipefail
curl() { printf '%s' '{"random_seed": "x", "uuid": "83679162-1378-4288-a2d4-70e13ec132aa", "name": "n"}'; }
`+script+`
echo "$SERVER_ID"`).CombinedOutput()
		Expect(err).ToNot(HaveOccurred(), string(out))
		Expect(string(out)).To(Equal("83679162-1378-4288-a2d4-70e13ec132aa\n"))
	})

	DescribeTable("should offer the function", func(template, rendered string) {
		Expect(render(input(custom(template))).UserData).To(Equal(rendered))
	},
		Entry("toYaml", "{{ toYaml .Values }}", "team: storage"),
		Entry("toJson", "{{ toJson .NetworkIDs }}", `["network-1","network-2"]`),
		Entry("b64enc", "{{ b64enc .ClusterName }}", "cHJvZA=="),
		Entry("indent", `x: {{ indent 2 "a\nb" }}`, "x:   a\n  b"),
		Entry("nindent", `x:{{ nindent 2 "a\nb" }}`, "x:\n  a\n  b"),
		Entry("quote", `{{ quote "say \"hi\"" }}`, `"say \"hi\""`),
		Entry("squote", `{{ squote "it's" }}`, `'it'\''s'`),
		Entry("join", `{{ .NetworkIDs | join "+" }}`, "network-1+network-2"),
		Entry("splitList and len", `{{ splitList "," .KubeletTaints | len }} {{ splitList "," "" | toJson }}`, "3 []"),
		Entry("index, eq, ne, and, or, not", `{{ if index .Labels "team" | eq "storage" }}{{ not false }}{{ end }} {{ ne "a" "b" }} {{ and .ClusterName "x" }} `+
			`{{ or "" .ClusterName }}`, "true true x prod"),
		Entry("sha256sum", `{{ sha256sum "abc" }}`, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
		Entry("default", `{{ .ClusterName | default "x" }} {{ "" | default "x" }}`, "prod x"),
		Entry("lower, upper, trim and replace", `{{ lower "A" }}{{ upper "b" }}{{ trim " c " }}{{ replace "." "-" "1.2" }}`, "aBc1-2"),
		Entry("contains, hasPrefix and hasSuffix", `{{ contains "ro" .ClusterName }} {{ hasPrefix "p" .ClusterName }} {{ hasSuffix "x" .ClusterName }}`,
			"true true false"),
		Entry("printf", `{{ printf "%s-%s 100%%" .ClusterName .MaxPods }}`, "prod-110 100%"),
	)

	DescribeTable("should report where a template is wrong, and never quote it", func(template, where, what string) {
		nodeClass := custom("#!/bin/bash\n# " + secret + "\n" + template)
		invalid := invalidOf(validate(nodeClass))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonInvalidUserData))
		Expect(invalid.Message).To(And(HavePrefix("spec.userData"+where), ContainSubstring(what), Not(ContainSubstring(secret))))
		Expect(provider().Render(ctx, input(nodeClass))).Error().To(MatchError(invalid.Message))
	},
		Entry("an action that does not end", "{{ .NodeName", ", line 3", "does not parse"),
		Entry("an action that does not parse", `{{ "`+secret+`" "b }}`, ", line 3", "does not parse"),
		Entry("an unknown function", `{{ env "`+secret+`" }}`, ", line 3", "functions are b64enc, "),
		Entry("an unknown variable", `{{ printf "`+secret+`%s" .Nodename }}`, ", line 3, column ", "variables are NodeName, "),
		Entry("a function with the wrong argument", `{{ join "`+secret+`" .NodeName }}`, ", line 3, column ", "cannot be rendered"),
		Entry("a variable that does not exist within a branch", `{{ if false }}{{ $.`+"Nodename"+` }}{{ end }}`, ", line 3, column ", "variables are NodeName, "),
		Entry("a value that the NodeClass does not give", `{{ .Values.version }}`, ", line 3, column ", "spec.userDataValues has no such key, it has [team]"),
		Entry("an indent that is too wide", `{{ indent 100000000 "`+secret+`" }}`, ", line 3, column ", "cannot be rendered"),
	)
	It("should reject user data that is only blanks", func() {
		Expect(invalidOf(validate(custom(" \n"))).Message).To(ContainSubstring("it is empty"))
	})
	It("should accept a label that only the NodePool brings, and not render without it", func() {
		nodeClass := custom("{{ .Labels.team }}")
		Expect(validate(nodeClass)).To(Succeed())
		in := input(nodeClass)
		Expect(render(in).UserData).To(Equal("storage"))
		delete(in.Labels, "team")
		_, err := provider().Render(ctx, in)
		Expect(invalidOf(err).Message).To(HavePrefix("spec.userData, line 1, column "))
	})
	It("should not let a template change what others see", func() {
		nodeClass := custom(`{{ .Values.team }}`)
		first := render(input(nodeClass))
		Expect(render(input(nodeClass))).To(Equal(first))
	})

	Context("size", func() {
		It("should accept 16 KiB", func() {
			Expect(render(input(custom(strings.Repeat("x", 16*1024)))).UserData).To(HaveLen(16 * 1024))
		})
		It("should reject more than 16 KiB after rendering", func() {
			nodeClass := custom(strings.Repeat("x", 16*1024-4) + "{{ .NodeName }}")
			Expect(invalidOf(validate(nodeClass)).Message).To(ContainSubstring("larger than the 16384 bytes"))
			_, err := provider().Render(ctx, input(nodeClass))
			Expect(invalidOf(err).Message).To(ContainSubstring("larger than the 16384 bytes"))
		})
		It("should stop a template that grows beyond it", func() {
			template := strings.Repeat("{{ indent 16000 `x` }}", 1000)
			Expect(invalidOf(validate(custom(template))).Message).To(ContainSubstring("larger than the 16384 bytes"))
		})
		DescribeTable("should reject a format whose result is not bounded by its values", func(template string) {
			Expect(invalidOf(validate(custom(template))).Message).To(And(HavePrefix("spec.userData, line 1, column "),
				ContainSubstring("printf takes the verb %s alone")))
		},
			Entry("widths", `{{ printf "`+strings.Repeat("%999999[1]d", 200)+`" 1 }}`),
			Entry("a width for a text", `{{ printf "%9999s" .NodeName }}`),
			Entry("a flag", `{{ printf "%+s" 1 }}`),
			Entry("another verb", `{{ printf "%d" 1 }}`),
			Entry("no verb", `{{ printf "100%" }}`),
			Entry("a verb without a value", `{{ printf "%s" }}`),
			Entry("a value without a verb", `{{ printf "x" .NodeName }}`),
		)
	})
})
