// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The catalog", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	Describe("of flavors", func() {
		var flavors []*gobizfly.ServerFlavorResponse
		BeforeEach(func() {
			var err error
			flavors, err = b.client.CloudServer.Flavors().List(ctx)
			Expect(err).ToNot(HaveOccurred())
		})
		named := func(name string) *gobizfly.ServerFlavorResponse {
			flavor, _ := lo.Find(flavors, func(f *gobizfly.ServerFlavorResponse) bool { return f.Name == name })
			return flavor
		}

		It("should hold at least 60, in four categories and two generations, two of them with GPUs", func() {
			Expect(len(flavors)).To(BeNumerically(">=", 60))
			categories := lo.Uniq(lo.Map(flavors, func(f *gobizfly.ServerFlavorResponse, _ int) string { return f.Category }))
			Expect(categories).To(ContainElements("basic", "premium", "enterprise", "dedicated"))
			models := lo.Uniq(lo.Map(flavors, func(f *gobizfly.ServerFlavorResponse, _ int) string { return f.Generation.Model }))
			Expect(models).To(ContainElements("gen2", "gen4", ""))
			gpus := lo.Filter(flavors, func(f *gobizfly.ServerFlavorResponse, _ int) bool { return f.GPU != nil })
			Expect(lo.Map(gpus, func(f *gobizfly.ServerFlavorResponse, _ int) int { return f.GPU.Count })).To(ConsistOf(1, 2))
			Expect(lo.UniqBy(flavors, func(f *gobizfly.ServerFlavorResponse) string { return f.Name })).To(HaveLen(len(flavors)))
			Expect(lo.UniqBy(flavors, func(f *gobizfly.ServerFlavorResponse) string { return f.ID })).To(HaveLen(len(flavors)))
			Expect(slices.ContainsFunc(flavors, func(f *gobizfly.ServerFlavorResponse) bool { return strings.HasSuffix(f.Name, "_vps") })).To(BeTrue())
		})
		It("should give memory in MiB and the plans of a flavor", func() {
			flavor := named("p4a.4c_8g")
			Expect(flavor.RAM).To(Equal(8192))
			Expect(flavor.VCPUs).To(Equal(4))
			Expect(flavor.BillingPlans).To(ConsistOf("on_demand", "saving_plan", "spot_instance"))
			Expect(flavor.Generation.AvailabilityZones).To(Equal([]string{"HN1"}))
			Expect(named("e2.8c_16g").Generation.AvailabilityZones).To(Equal([]string{"HN1", "HN2"}))
		})
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
		It("should differ by region", func() {
			hcm, err := b.login(b.Credentials().ProjectID, "HCM").CloudServer.Flavors().List(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(hcm).ToNot(BeEmpty())
			Expect(len(hcm)).To(BeNumerically("<", len(flavors)))
		})
	})
	It("should list generations by zone and category, below both URLs", func() {
		for _, base := range []string{"/iaas-cloud/api", "/api"} {
			data, isList := b.get(base + "/flavor-generations?az=HN2&category=premium").object()["data"].([]any)
			Expect(isList).To(BeTrue())
			Expect(data).To(HaveLen(1))
			Expect(data[0]).To(HaveKeyWithValue("code", "p2"))
		}
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
		_, err = b.client.CloudServer.Snapshots().Get(ctx, snapshots[0].ID)
		Expect(err).ToNot(HaveOccurred())
	})
	It("should list volume types by category and zone", func() {
		types, err := b.client.CloudServer.Volumes().ListVolumeTypes(ctx, &gobizfly.ListVolumeTypesOptions{Category: "dedicated", AvailabilityZone: "HN2"})
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(types, func(t *gobizfly.VolumeType, _ int) string { return t.Name })).To(Equal([]string{"DEDICATED-SSD1"}))
		Expect(types[0].Type).To(Equal("DEDICATED SSD"))
	})
	It("should list networks, firewalls and keys", func() {
		vpcs, err := b.client.CloudServer.VPCNetworks().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.CountBy(vpcs, func(v *gobizfly.VPCNetwork) bool { return v.IsDefault })).To(Equal(1))
		Expect(vpcs[0].Tags).To(Equal([]string{"default-vpc-network"}))
		Expect(vpcs[0].Subnets[0].CIDR).To(Equal("10.108.16.0/20"))
		Expect(vpcs[1].AvailabilityZones).To(Equal([]string{"HN1", "HN2"}))
		firewalls, err := b.client.CloudServer.Firewalls().List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(firewalls[0].Name).To(Equal("default"))
		Expect(firewalls[0].InBound).ToNot(BeEmpty())
		keys, err := b.client.CloudServer.SSHKeys().List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(keys[0].SSHKeyPair.Name).To(Equal("ops"))
	})
	Describe("of the Kubernetes Engine", func() {
		It("should list versions with flatcar's and one without an image", func() {
			versions, err := b.client.KubernetesEngine.GetKubernetesVersion(ctx, gobizfly.GetKubernetesVersionOpts{All: lo.ToPtr(true)})
			Expect(err).ToNot(HaveOccurred())
			images := lo.SliceToMap(versions.ControllerVersions, func(v gobizfly.ControllerVersion) (string, string) { return v.K8SVersion, v.WorkerImageID })
			Expect(images).To(And(HaveKey("v1.33.9"), HaveKey("v1.34.6"), HaveKey("v1.35.4"), HaveKey("v1.35.4.flatcar")))
			Expect(images["v1.35.4"]).ToNot(Equal(images["v1.35.4.flatcar"]))
			Expect(images["v1.35.1"]).To(BeEmpty())
		})
		It("should know the cluster", func() {
			cluster, err := b.client.KubernetesEngine.Get(ctx, b.BKE().ClusterUID)
			Expect(err).ToNot(HaveOccurred())
			Expect(cluster.Version.K8SVersion).To(Equal("v1.35.4"))
			Expect(cluster.VPCNetworkID).To(Equal(b.BKE().NetworkID))
			list, err := b.client.KubernetesEngine.List(ctx, nil)
			Expect(err).ToNot(HaveOccurred())
			Expect(list).To(HaveLen(1))
			_, err = b.client.KubernetesEngine.Get(ctx, "unknown")
			Expect(err).To(MatchError(gobizfly.ErrNotFound))
		})
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
