// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
		Expect(provider().Render(ctx, input(bke()))).Error().To(MatchError(catalog.ErrNotReady))
	})
	DescribeTable("should report which variable is missing and what to do", func(unset func(*join.Values), variable string) {
		unset(&values)
		invalid := invalidOf(validate(bke()))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonNotConfigured))
		Expect(invalid.Message).To(And(ContainSubstring(variable), ContainSubstring("set it in the environment of the controller"), Not(ContainSubstring(secret))))
		Expect(provider().Render(ctx, input(bke()))).Error().To(MatchError(invalid.Message))
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
		Expect(provider().Render(ctx, input(bke()))).Error().To(MatchError(catalog.ErrClusterUnknown))
	})
})
