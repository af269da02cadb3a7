// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Deleting a server", func() {
	var b *box
	var server *gobizfly.Server
	ctx := context.Background()
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		request := b.request("node-1")
		request.DataDisks = []*gobizfly.ServerDisk{{Size: 50}, {Size: 60}}
		launched := b.launch(request)
		Expect(launched.AttachedVolumes).To(HaveLen(1), "data disks come later")
		b.Advance(20 * time.Second)
		server = lo.Must(b.client.CloudServer.Get(ctx, launched.ID))
		Expect(server.AttachedVolumes).To(HaveLen(3))
	})
	diskNamed := func(name string) string {
		disk, found := lo.Find(b.State().Volumes, func(v cloud.Volume) bool { return v.Name == name })
		Expect(found).To(BeTrue())
		return disk.ID
	}
	remaining := func() []string {
		return lo.Map(b.State().Volumes, func(v cloud.Volume, _ int) string { return v.Name + " " + v.Status })
	}
	remove := func(volumes ...string) *gobizfly.ServerTask {
		task, err := b.client.CloudServer.Delete(ctx, server.ID, volumes)
		Expect(err).ToNot(HaveOccurred())
		return task
	}

	It("should name its task with a string, and list the server until that ends", func() {
		raw := b.call(http.MethodDelete, servers+"/"+server.ID, map[string]any{"delete_volume": nil}).object()
		Expect(raw["task_id"]).To(BeAssignableToTypeOf(""))
		fields := b.get(servers + "/" + server.ID).object()
		Expect(fields).To(And(HaveKeyWithValue("status", "ACTIVE"), HaveKeyWithValue("OS-EXT-STS:task_state", "deleting")))
		b.Advance(latency)
		_, err := b.client.CloudServer.Get(ctx, server.ID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		done, err := b.client.CloudServer.GetTask(ctx, raw["task_id"].(string))
		Expect(err).ToNot(HaveOccurred())
		Expect(done.Ready).To(BeTrue())
		Expect(done.Result.Success).To(BeTrue())
		Expect(done.Result.Action).To(Equal("delete_server"))
	})
	It("should keep every disk that is not listed", func() {
		remove()
		b.Advance(latency)
		Expect(remaining()).To(ConsistOf("node-1_rootdisk available", "node-1_datadisk_1 available", "node-1_datadisk_2 available"))
		disks, err := b.client.CloudServer.Volumes().List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(disks).To(HaveEach(HaveField("Attachments", BeEmpty())))
	})
	It("should delete every volume that is listed, also one that is no disk of the server", func() {
		foreign := b.AddVolume(cloud.VolumeSpec{Name: "pvc-1", Description: "default/data by csi-bizflycloud"})
		Expect(b.AttachVolume(foreign.ID, server.ID)).To(Succeed())
		remove(server.AttachedVolumes[0].ID, diskNamed("node-1_datadisk_2"), foreign.ID)
		b.Advance(latency)
		Expect(remaining()).To(ConsistOf("node-1_datadisk_1 available"))
	})
	It("should leave the disks of other servers alone", func() {
		other := b.launch(b.request("node-2"))
		remove(other.AttachedVolumes[0].ID)
		b.Advance(latency)
		Expect(remaining()).To(ContainElement("node-2_rootdisk in-use"))
	})
	It("should reject to delete twice, the unknown and the locked", func() {
		remove()
		Expect(b.call(http.MethodDelete, servers+"/"+server.ID, nil).status).To(Equal(409))
		Expect(b.call(http.MethodDelete, servers+"/unknown", nil).status).To(Equal(404))
		locked := b.launch(b.request("locked"))
		Expect(b.EditServer(locked.ID, func(s *cloud.Server) { s.Locked = true })).To(BeTrue())
		Expect(b.call(http.MethodDelete, servers+"/"+locked.ID, nil).status).To(Equal(403))
	})
	It("should cut short a build", func() {
		task := b.create(b.request("unborn"))
		unborn, found := lo.Find(b.State().Servers, func(s cloud.Server) bool { return s.Name == "unborn" })
		Expect(found).To(BeTrue())
		_, err := b.client.CloudServer.Delete(ctx, unborn.ID, nil)
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		done, err := b.client.CloudServer.GetTask(ctx, task)
		Expect(err).ToNot(HaveOccurred())
		Expect(done.Ready).To(BeTrue())
		Expect(done.Result.Success).To(BeFalse())
		Expect(b.get(servers + "/" + unborn.ID).status).To(Equal(404))
	})
	It("should reject while it is being built, where configured", func() {
		b := newBox(cloud.Options{ConflictOnBuild: true})
		b.create(b.request("unborn"))
		Expect(b.call(http.MethodDelete, servers+"/"+b.State().Servers[0].ID, nil).status).To(Equal(409))
	})
})

var _ = Describe("Volumes", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	It("should show bootable as a bool, attachments and the fields of the real API", func() {
		server := b.launch(b.request("node-1"))
		fields := b.get(volumes + "/" + server.AttachedVolumes[0].ID).object()
		for _, name := range []string{
			"id", "status", "size", "availability_zone", "created_at", "attachments", "name", "description", "volume_type", "snapshot_id", "metadata",
			"bootable", "encrypted", "os-vol-tenant-attr:tenant_id", "type", "category", "region_name", "attached_type", "billing_plan", "volume_image_metadata",
		} {
			Expect(fields).To(HaveKey(name))
		}
		Expect(fields["bootable"]).To(BeTrue())
		attachments, isList := fields["attachments"].([]any)
		Expect(isList).To(BeTrue())
		Expect(attachments[0]).To(And(HaveKeyWithValue("server_id", server.ID), HaveKeyWithValue("device", "/dev/vda")))
		disk, err := b.client.CloudServer.Volumes().Get(ctx, server.AttachedVolumes[0].ID)
		Expect(err).ToNot(HaveOccurred())
		Expect(disk.Attachments[0].Server.ID).To(Equal(server.ID))
		bootable := true
		list, err := b.client.CloudServer.Volumes().List(ctx, &gobizfly.VolumeListOptions{Bootable: &bootable, AvailabilityZone: "HN1", Status: "in-use"})
		Expect(err).ToNot(HaveOccurred())
		Expect(list).To(HaveLen(1))
	})
	It("should not attach across billing plans or zones", func() {
		server := b.launch(b.request("node-1"))
		for _, spec := range []cloud.VolumeSpec{{Name: "a", BillingPlan: "saving_plan"}, {Name: "b", Zone: "HN2"}} {
			disk := b.AddVolume(spec)
			_, err := b.client.CloudServer.Volumes().Attach(ctx, disk.ID, server.ID)
			Expect(err).To(HaveOccurred())
		}
	})
})

var _ = Describe("Ports", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	It("should be listed by network and kind, with the fields of the real API", func() {
		request := b.request("node-1")
		request.IsCreatedWan = lo.ToPtr(true)
		server := b.launch(request)
		all, err := b.client.CloudServer.NetworkInterfaces().List(ctx, &gobizfly.ListNetworkInterfaceOptions{})
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(all, func(n *gobizfly.NetworkInterface, _ int) string { return n.Type })).To(ConsistOf("LAN", "WAN"))
		lan, err := b.client.CloudServer.NetworkInterfaces().List(ctx, &gobizfly.ListNetworkInterfaceOptions{VPCNetworkID: b.BKE().NetworkID})
		Expect(err).ToNot(HaveOccurred())
		Expect(lan).To(HaveLen(1))
		Expect(lan[0].DeviceID).To(Equal(server.ID))
		Expect(lan[0].DeviceOwner).To(Equal("compute:HN1"))
		Expect(lan[0].AttachedServer.Name).To(Equal("node-1"))
		fields := b.get("/iaas-cloud/api/network-interfaces?type=LAN").json().([]any)[0]
		for _, name := range []string{
			"id", "name", "network_id", "tenant_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner", "fixed_ips",
			"allowed_address_pairs", "extra_dhcp_opts", "security_groups", "description", "binding:vnic_type", "port_security_enabled",
			"qos_policy_id", "tags", "created_at", "updated_at", "revision_number", "project_id", "attached_server",
		} {
			Expect(fields).To(HaveKey(name))
		}
		wan, err := b.client.CloudServer.PublicNetworkInterfaces().List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(wan).To(HaveLen(1))
		Expect(wan[0].Bandwidth).To(Equal(1000000))
		Expect(wan[0].IsMain).To(BeTrue())
	})

})
