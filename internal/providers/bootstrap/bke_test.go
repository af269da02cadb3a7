// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	join "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// learner knows nothing until its values are read after they were set.
type learner struct{ values join.Values }

func (l *learner) Values(context.Context) (join.Values, error) {
	if l.values.ClusterID == "" {
		return l.values, errors.New("no node of a pool")
	}
	return l.values, nil
}

var _ = Describe("BKE mode", func() {
	It("should run the worker image's own script and nothing else", func() {
		Expect(render(input(bke())).UserData).To(Equal("#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"))
	})
	It("should be the mode of a NodeClass that names none", func() {
		Expect(render(input(&v1alpha1.BizflyNodeClass{})).UserData).To(ContainSubstring("bizfly-kubernetes-engine"))
	})
	It("should give the script the metadata that it reads", func() {
		Expect(render(input(bke())).Metadata).To(Equal(map[string]string{
			"bizfly_cloud_service": "kubernetes_engine",
			"bke_cluster_id":       "zdckkshu1he44fsb",
			"bke_cluster_token":    secret,
			"bke_join_endpoint":    "http://engine.example/engine/cluster_join/zdckkshu1he44fsb",
			"bke_log_endpoint":     "http://engine.example/engine/cluster_log/zdckkshu1he44fsb",
			"kubernetes_version":   "v1.35.2",
			"bke_node_everywhere":  "false",
			"bke_node_localdns":    "false",
			"bke_node_network_id":  "network-1",
		}))
	})
	It("should follow the cluster's local DNS", func() {
		known.Snapshot_.Cluster.LocalDNS = true
		Expect(render(input(bke())).Metadata).To(HaveKeyWithValue("bke_node_localdns", "true"))
	})
	It("should send the cluster's version with an image that does not name its own", func() {
		in := input(bke())
		in.KubernetesVersion = ""
		Expect(render(in).Metadata).To(HaveKeyWithValue("kubernetes_version", "v1.35.4"))
	})
	It("should leave out a log endpoint that is not configured", func() {
		values.LogEndpoint = ""
		Expect(render(input(bke())).Metadata).ToNot(HaveKey("bke_log_endpoint"))
	})
	It("should wait for the catalog", func() {
		known.Snapshot_ = nil
		Expect(validate(bke())).To(MatchError(catalog.ErrNotReady))
		_, err := provider().Render(ctx, input(bke()))
		Expect(err).To(MatchError(catalog.ErrNotReady))
	})

	DescribeTable("should report which variable is missing and what to do", func(unset func(*join.Values), variable string) {
		unset(&values)
		invalid := invalidOf(validate(bke()))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonNotConfigured))
		Expect(invalid.Message).To(And(ContainSubstring(variable), ContainSubstring("set it in the environment of the controller"), Not(ContainSubstring(secret))))
		_, err := provider().Render(ctx, input(bke()))
		Expect(err).To(MatchError(invalid.Message))
		Expect(validate(custom("#!/bin/bash"))).To(Succeed(), "Custom mode does not need it")
	},
		Entry("the cluster id", func(v *join.Values) { v.ClusterID = "" }, "BKE_CLUSTER_ID is not set"),
		Entry("the token", func(v *join.Values) { v.Token = " " }, "BKE_CLUSTER_TOKEN is not set"),
		Entry("the join endpoint", func(v *join.Values) { v.JoinEndpoint = "" }, "BKE_JOIN_ENDPOINT is not set"),
		Entry("a join endpoint that is no URL", func(v *join.Values) { v.JoinEndpoint = "engine.example" }, "BKE_JOIN_ENDPOINT is not an http or https URL"),
		Entry("a log endpoint that is no URL", func(v *join.Values) { v.LogEndpoint = "ftp://x" }, "BKE_LOG_ENDPOINT is not an http or https URL"),
	)
	It("should name all that is missing at once", func() {
		values = join.Values{}
		Expect(validate(bke())).To(MatchError(And(
			ContainSubstring("BKE_CLUSTER_ID"), ContainSubstring("BKE_CLUSTER_TOKEN"), ContainSubstring("BKE_JOIN_ENDPOINT"))))
	})

	It("should send what was learned", func() {
		learned := &learner{}
		config.BKE = learned
		p := provider()
		_, err := p.Resolve(ctx, bke())
		Expect(invalidOf(err).Message).To(And(ContainSubstring("BKE_CLUSTER_ID is not set"), ContainSubstring("no node of a pool")))
		learned.values = join.Values{ClusterID: "zdckkshu1he44fsb", Token: secret, JoinEndpoint: "https://engine.example/engine/cluster_join/zdckkshu1he44fsb",
			Learned: "learned from pool-1"}
		resolution, err := p.Resolve(ctx, bke())
		Expect(err).ToNot(HaveOccurred())
		Expect(resolution.Notes).To(Equal([]string{"learned from pool-1"}))
		output, err := p.Render(ctx, input(bke()))
		Expect(err).ToNot(HaveOccurred())
		Expect(output.Metadata).To(And(HaveKeyWithValue("bke_cluster_id", "zdckkshu1he44fsb"), HaveKeyWithValue("bke_cluster_token", secret)))
	})

	It("should wait until the catalog knows the cluster", func() {
		known.Snapshot_ = &catalog.Snapshot{ClusterUnknown: true}
		Expect(validate(bke())).To(MatchError(catalog.ErrClusterUnknown))
		_, err := provider().Render(ctx, input(bke()))
		Expect(err).To(MatchError(catalog.ErrClusterUnknown))
	})

	Context("with a file for the kubelet's arguments", func() {
		var file string
		BeforeEach(func() {
			// A quote and a blank in the path: whatever is configured must stay one word.
			file = filepath.Join(GinkgoT().TempDir(), "it's here", "kubelet")
			config.BKEKubeletArgsFile = file
		})
		// run executes the user data up to the worker image's script, which this machine does not have.
		run := func(userData string) string {
			GinkgoHelper()
			script := strings.TrimSuffix(userData, "/opt/bizfly-kubernetes-engine/bootstrap.sh\n")
			Expect(script).ToNot(Equal(userData), "BKE's script must come last")
			out, err := exec.CommandContext(ctx, "bash", "-c", script).CombinedOutput()
			Expect(err).ToNot(HaveOccurred(), string(out))
			written, err := os.ReadFile(file)
			Expect(err).ToNot(HaveOccurred())
			return string(written)
		}

		It("should register with the taints and labels of the claim and of Karpenter", func() {
			Expect(run(render(input(bke())).UserData)).To(Equal("KUBELET_EXTRA_ARGS=" +
				"--register-with-taints=karpenter.sh/unregistered=:NoExecute,dedicated=storage:NoSchedule,node.cilium.io/agent-not-ready=:NoExecute " +
				"--node-labels=karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general,team=storage\n"))
		})
		It("should not repeat the unregistered taint", func() {
			in := input(bke())
			in.NodeClaim.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
			Expect(strings.Count(run(render(in).UserData), "unregistered")).To(Equal(1))
		})
		It("should leave out labels with which a kubelet does not start", func() {
			in := input(bke())
			in.Labels = map[string]string{
				"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "HN1", "node.kubernetes.io/instance-type": "p2.2c_4g",
				"node.kubernetes.io/anything": "x", "special.kubelet.kubernetes.io/x": "x", "bare": "x", "example.com/x": "x",
				"node-role.kubernetes.io/worker": "", "node-restriction.kubernetes.io/x": "x", "app.kubernetes.io/name": "x", "x-k8s.io/x": "x", "k8s.io/x": "x",
			}
			Expect(run(render(in).UserData)).To(HaveSuffix(" --node-labels=bare=x,example.com/x=x,karpenter.sh/do-not-sync-taints=true,kubernetes.io/os=linux," +
				"node.kubernetes.io/anything=x,node.kubernetes.io/instance-type=p2.2c_4g,special.kubelet.kubernetes.io/x=x,topology.kubernetes.io/zone=HN1,x-k8s.io/x=x\n"))
		})
		DescribeTable("should not let anything but labels and taints into the script", func(spoil func(*bootstrap.Input)) {
			in := input(bke())
			spoil(&in)
			_, err := provider().Render(ctx, in)
			Expect(err).To(MatchError(ContainSubstring("is not valid")))
		},
			Entry("a label's value", func(in *bootstrap.Input) { in.Labels["team"] = "x'; reboot; '" }),
			Entry("a label's key", func(in *bootstrap.Input) { in.Labels["$(reboot)"] = "x" }),
			Entry("a taint's key", func(in *bootstrap.Input) { in.NodeClaim.Spec.Taints[0].Key = "a b" }),
			Entry("a taint's value", func(in *bootstrap.Input) { in.NodeClaim.Spec.Taints[0].Value = "a,b" }),
			Entry("a taint's effect", func(in *bootstrap.Input) { in.NodeClaim.Spec.Taints[0].Effect = "Sometimes" }),
		)
	})
})
