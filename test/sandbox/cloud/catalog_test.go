// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The catalog", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	Describe("of flavors", func() {
		It("should leave out what the real API leaves out of old flavors", func() {
			raw, isList := b.get("/iaas-cloud/api/flavors?new=true").json().([]any)
			Expect(isList).To(BeTrue())
			Expect(raw).To(ContainElements(HaveKeyWithValue("name", "nix.1c_1g"), HaveKeyWithValue("vcpus", Not(BeZero()))))
			for _, entry := range raw {
				fields, isObject := entry.(map[string]any)
				Expect(isObject).To(BeTrue())
				Expect(fields).To(HaveKey("vcpus"))
				switch fields["name"] {
				case "nix.1c_1g":
					Expect(fields).ToNot(Or(HaveKey("category"), HaveKey("generation"), HaveKey("billing_plans")))
				case "p2.2c_4g":
					Expect(fields).To(And(HaveKey("category"), HaveKey("generation"), HaveKey("billing_plans"), HaveKeyWithValue("gpu", BeNil())))
				}
			}
		})
	})
	It("should list images, own images with a null size while queued, and snapshots", func() {
		images, err := b.client.CloudServer.OSImages().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(images[0].OSDistribution).To(Equal("Ubuntu"))
		Expect(images[0].Version).ToNot(BeEmpty())
		own, err := b.client.CloudServer.CustomImages().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(own).To(HaveLen(2))
		Expect(string(b.get("/iaas-cloud/api/user/images").body)).To(ContainSubstring(`"size":null`))
		Expect(own[0].Name).To(Equal("golden-node"))
		snapshots, err := b.client.CloudServer.Snapshots().List(ctx, &gobizfly.ListSnasphotsOptions{})
		Expect(err).ToNot(HaveOccurred())
		Expect(snapshots).To(HaveLen(1))
	})
	Describe("of the Kubernetes Engine", func() {
		It("should let a node leave, any number of times, with the cluster's token alone", func() {
			request := &gobizfly.ClusterLeaveRequest{NodeName: "node-1"}
			for range 2 {
				reply, err := b.client.KubernetesEngine.ClusterLeave(ctx, b.BKE().ClusterUID, b.BKE().ClusterToken, request)
				Expect(err).ToNot(HaveOccurred())
				Expect(reply.Message).To(ContainSubstring("node-1"))
			}
			Expect(b.State().LeftNodes).To(Equal([]string{"node-1"}))
			Expect(b.call("POST", "/api/kubernetes-engine/engine/cluster_leave/"+b.BKE().ClusterUID, request).status).To(Equal(401))
		})
	})
})
