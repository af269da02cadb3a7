// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("What users make themselves", func() {
	ctx := context.Background()
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })

	It("should be snapshots of volumes, from which servers can be made", func() {
		disk := b.AddVolume(cloud.VolumeSpec{Name: "golden", SizeGiB: 50, Bootable: true})
		made, err := b.client.CloudServer.Snapshots().Create(ctx, &gobizfly.SnapshotCreateRequest{Name: "golden-1", VolumeID: disk.ID})
		Expect(err).ToNot(HaveOccurred())
		Expect([]any{made.Name, made.Size, made.Status}).To(Equal([]any{"golden-1", 50, "available"}))
		request := b.raw(map[string]any{"os": map[string]any{"id": made.ID, "type": "snapshot"},
			"rootdisk": map[string]any{"size": 40, "volume_type": "PREMIUM-SSD1"}})
		small := b.call(http.MethodPost, "/iaas-cloud/api/servers", request)
		Expect(small.status).To(Equal(http.StatusBadRequest))
		Expect(small.object()["message"]).To(ContainSubstring("disk would be too small: 40 < 50"))
		request = b.raw(map[string]any{"os": map[string]any{"id": made.ID, "type": "snapshot"},
			"rootdisk": map[string]any{"size": 50, "volume_type": "PREMIUM-SSD1"}})
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/servers", request).status).To(Equal(http.StatusOK))
		Expect(b.client.CloudServer.Snapshots().Delete(ctx, made.ID)).To(Succeed())
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/snapshots/"+made.ID, nil).status).To(Equal(http.StatusNotFound))
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/snapshots", map[string]any{"name": "x", "volume_id": "nope"}).status).To(Equal(http.StatusNotFound))
	})
	It("should be snapshots of disks in use only by force", func() {
		server := b.AddServer(cloud.ServerSpec{Name: "database"})
		request := map[string]any{"name": "database-1", "volume_id": server.VolumesAttached[0].ID}
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/snapshots", request).status).To(Equal(http.StatusBadRequest))
		request["force"] = true
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/snapshots", request).status).To(Equal(http.StatusOK))
	})
	It("should be images that can go", func() {
		own, err := b.client.CloudServer.CustomImages().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/user/image/"+own[0].ID, nil).status).To(Equal(http.StatusNoContent))
		Expect(b.client.CloudServer.CustomImages().List(ctx)).To(HaveLen(len(own) - 1))
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/user/image/"+own[0].ID, nil).status).To(Equal(http.StatusNotFound))
	})
	It("should be networks, which servers get ports in and which stay while they have any", func() {
		made, err := b.client.CloudServer.VPCNetworks().Create(ctx, &gobizfly.CreateVPCPayload{Name: "workers", CIDR: "10.50.0.0/24"})
		Expect(err).ToNot(HaveOccurred())
		Expect(made.Subnets[0].CIDR).To(Equal("10.50.0.0/24"))
		Expect(made.InternetGateway).To(BeNil())
		all, err := b.client.CloudServer.VPCNetworks().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		withGateway := b.get("/iaas-cloud/api/vpc-networks?igw_attached=true").json().([]any)
		Expect(withGateway).To(HaveExactElements(HaveKeyWithValue("name", "default-vpc")))
		Expect(b.get("/iaas-cloud/api/vpc-networks?igw_attached=false").json()).To(HaveLen(len(all) - 1))

		Expect(b.call(http.MethodPost, "/iaas-cloud/api/servers", b.raw(map[string]any{"vpc_network_ids": []string{made.ID}})).status).To(Equal(http.StatusOK))
		b.Advance(latency)
		Expect(b.Servers()).To(HaveLen(1))
		Expect(b.State().NetworkInterfaces).To(ContainElement(And(HaveField("NetworkID", made.ID), HaveField("IPAddress", HavePrefix("10.50.0.")))))
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/vpc-networks/"+made.ID, nil).status).To(Equal(http.StatusConflict))

		empty, err := b.client.CloudServer.VPCNetworks().Create(ctx, &gobizfly.CreateVPCPayload{Name: "empty"})
		Expect(err).ToNot(HaveOccurred())
		Expect(b.client.CloudServer.VPCNetworks().Delete(ctx, empty.ID)).To(Succeed())
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/vpc-networks", map[string]any{"name": "x", "cidr": "10.0.0.0/33"}).status).To(Equal(http.StatusBadRequest))
	})
	It("should be firewalls, which stay while a port has them", func() {
		made := b.call(http.MethodPost, "/iaas-cloud/api/firewalls", map[string]any{
			"name": "nodes", "inbound": []map[string]any{{"type": "SSH", "protocol": "TCP", "cidr": "10.0.0.0/8"}},
		}).object()
		Expect(made).To(And(HaveKeyWithValue("name", "nodes"), HaveKeyWithValue("rules_count", BeEquivalentTo(1))))
		id := made["id"].(string)
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/servers", b.raw(map[string]any{"firewalls": []string{id}})).status).To(Equal(http.StatusOK))
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/firewalls/"+id, nil).status).To(Equal(http.StatusConflict))
		unused := b.call(http.MethodPost, "/iaas-cloud/api/firewalls", map[string]any{"name": "unused"}).object()
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/firewalls/"+unused["id"].(string), nil).object()).To(HaveKey("message"))
	})
	It("should be keys", func() {
		made, err := b.client.CloudServer.SSHKeys().Create(ctx, &gobizfly.SSHKeyCreateRequest{Name: "laptop", PublicKey: "ssh-ed25519 AAAA laptop"})
		Expect(err).ToNot(HaveOccurred())
		Expect(made.Name).To(Equal("laptop"))
		keys, err := b.client.CloudServer.SSHKeys().List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(keys, func(k *gobizfly.KeyPair, _ int) string { return k.SSHKeyPair.Name })).To(ContainElement("laptop"))
		Expect(b.call(http.MethodPost, "/iaas-cloud/api/keypairs", map[string]any{"name": "laptop", "public_key": "ssh-rsa x"}).status).To(Equal(http.StatusConflict))
		_, err = b.client.CloudServer.SSHKeys().Delete(ctx, "laptop")
		Expect(err).ToNot(HaveOccurred())
		Expect(b.call(http.MethodDelete, "/iaas-cloud/api/keypairs/laptop", nil).status).To(Equal(http.StatusNotFound))
	})
	It("should change by hand while the cloud runs", func() {
		b.Edit(func(c *cloud.Catalog) { c.VPCs[cloud.RegionHN][1].InternetGateway = ptr.To("gateway") })
		Expect(b.get("/iaas-cloud/api/vpc-networks?igw_attached=true").json()).To(HaveLen(2))
	})
})
