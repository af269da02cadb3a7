// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Creating a server", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	DescribeTable("should reject what cannot be built",
		func(changes map[string]any, text string) {
			a := b.call(http.MethodPost, servers, b.raw(changes))
			Expect(a.status).To(Equal(400))
			Expect(a.object()).To(HaveKeyWithValue("code", "UNKNOWN"))
			Expect(a.object()).To(HaveKeyWithValue("message", ContainSubstring(text)))
			Expect(b.State().Servers).To(BeEmpty())
		},
		Entry("an unknown field", map[string]any{"subnet": "x"}, `unknown field "subnet"`),
		Entry("no name", map[string]any{"name": nil}, "Tên máy chủ"),
		Entry("no flavor", map[string]any{"flavor": nil}, "flavor is required"),
		Entry("no type", map[string]any{"type": nil}, "type is required"),
		Entry("no zone", map[string]any{"availability_zone": nil}, "availability_zone is required"),
		Entry("no os", map[string]any{"os": nil}, "os is required"),
		Entry("no root disk", map[string]any{"rootdisk": nil}, "rootdisk is required"),
		Entry("an unknown flavor", map[string]any{"flavor": "x9.1c_1g"}, "could not be found"),
		Entry("a category that is not the flavor's", map[string]any{"type": "enterprise"}, "does not belong to type"),
		Entry("an unknown category", map[string]any{"type": "golden"}, "type không hợp lệ"),
		Entry("a category with a capital", map[string]any{"type": "Premium"}, "type không hợp lệ"),
		Entry("a VPS flavor", map[string]any{"flavor": "2c_2g_vps"}, "không được hỗ trợ tại HN1"),
		Entry("a zone of another region", map[string]any{"availability_zone": "HCM1"}, "availability zone"),
		Entry("a zone without the flavor", map[string]any{"flavor": "p4a.2c_4g", "availability_zone": "HN2"}, "không được hỗ trợ tại HN2"),
		Entry("an unknown plan", map[string]any{"billing_plan": "prepaid"}, "billing_plan không hợp lệ"),
		Entry("the plan of spot instances, which need a bid", map[string]any{"billing_plan": "spot_instance"}, "needs a bid"),
		Entry("a plan that the flavor does not have", map[string]any{"flavor": "d2.64c_256g", "type": "dedicated"}, "does not support billing plan on_demand"),
		Entry("an unknown network plan", map[string]any{"network_plan": "free"}, "network_plan không hợp lệ"),
		Entry("an unknown image", map[string]any{"os": map[string]any{"id": "x", "type": "image"}}, "Image x could not be found"),
		Entry("an unknown kind of source", map[string]any{"os": map[string]any{"id": "x", "type": "iso"}}, "os.type không hợp lệ"),
		Entry("an unknown snapshot", map[string]any{"os": map[string]any{"id": "x", "type": "snapshot"}}, "Snapshot x"),
		Entry("an unknown network", map[string]any{"vpc_network_ids": []string{"x"}}, "Network x could not be found"),
		Entry("an unknown port", map[string]any{"network_interfaces": []string{"x"}}, "Port x could not be found"),
		Entry("an unknown firewall", map[string]any{"firewalls": []string{"x"}}, "Security group x not found"),
		Entry("an unknown key", map[string]any{"sshkey": "unknown"}, "Invalid key_name"),
		Entry("an unknown volume type", map[string]any{"rootdisk": map[string]any{"size": 40, "volume_type": "X"}}, "Volume type with name X"),
		Entry("another category's volume type", map[string]any{"rootdisk": map[string]any{"size": 40, "volume_type": "BASIC_SSD1"}}, "không được hỗ trợ cho premium"),
		Entry("a root disk that is too small", map[string]any{"rootdisk": map[string]any{"size": 10}}, "rootdisk không hợp lệ"),
		Entry("a root disk between two steps", map[string]any{"rootdisk": map[string]any{"size": 45}}, "rootdisk không hợp lệ"),
		Entry("metadata that is not text", map[string]any{"metadata": map[string]any{"n": 1}}, "Dữ liệu không hợp lệ"),
		Entry("a metadata key with a slash", map[string]any{"metadata": map[string]any{"a/b": "c"}}, "Invalid metadata key"),
		Entry("a metadata value of 256 characters", map[string]any{"metadata": map[string]any{"k": strings.Repeat("x", 256)}}, "255 characters"),
		Entry("too much user data", map[string]any{"user_data": strings.Repeat("x", 50000)}, "User data too large"),
		Entry("several at once, which no client asks for", map[string]any{"quantity": 2}, "quantity"),
	)
	It("should reject anything but an array of one", func() {
		one := b.raw(nil)[0]
		for _, body := range []any{one, []any{}, []any{one, one}, "[", `[{"name":"a"}] x`} {
			Expect(b.call(http.MethodPost, servers, body).status).To(Equal(400), "%v", body)
		}
	})
	It("should reject a network that does not reach the zone", func() {
		oneZone, _ := lo.Find(b.Options().Catalog.VPCs["HN"], func(v cloud.VPC) bool { return v.Name == "one-zone" })
		changes := map[string]any{"vpc_network_ids": []string{oneZone.ID}, "availability_zone": "HN2"}
		Expect(b.call(http.MethodPost, servers, b.raw(changes)).status).To(Equal(400))
		changes["availability_zone"] = "HN1"
		Expect(b.call(http.MethodPost, servers, b.raw(changes)).status).To(Equal(200))
	})
	It("should answer with the fields of the real API", func() {
		server := b.launch(b.request("node-1"))
		fields := b.get(servers + "/" + server.ID).object()
		for _, name := range []string{
			"id", "name", "status", "tenant_id", "user_id", "metadata", "hostID", "flavor", "flavor_name", "created", "updated", "key_name",
			"addresses", "accessIPv4", "accessIPv6", "OS-DCF:diskConfig", "progress", "config_drive", "OS-EXT-AZ:availability_zone",
			"OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at", "security_groups", "OS-EXT-STS:task_state", "OS-EXT-STS:vm_state",
			"OS-EXT-STS:power_state", "os-extended-volumes:volumes_attached", "category", "ip_addresses", "zone_name", "region_name",
			"autoscale_service", "ipv6", "network_plan", "billing_plan", "locked", "is_available", "is_created_wan",
		} {
			Expect(fields).To(HaveKey(name))
		}
		Expect(fields).ToNot(Or(HaveKey("_sandbox"), HaveKey("user_data")))
		Expect(fields["key_name"]).To(BeNil())
		Expect(fields["region_name"]).To(Equal("HaNoi"))
		Expect(fields["flavor"]).To(And(HaveKeyWithValue("vcpus", 2.0), HaveKeyWithValue("ram", 4096.0), HaveKeyWithValue("name", "p2.2c_4g"),
			HaveKeyWithValue("os-flavor-access:is_public", true), HaveKeyWithValue("OS-FLV-EXT-DATA:ephemeral", 0.0)))
		Expect(fields["metadata"]).To(Equal(map[string]any{
			"owner": "me", "category": "premium", "os_type": "bke-worker-v1.35.4", "network_plan": "free_datatransfer", "billing_plan": "on_demand",
		}))
		disks, isList := fields["os-extended-volumes:volumes_attached"].([]any)
		Expect(isList).To(BeTrue())
		Expect(disks).To(HaveLen(1))
		Expect(disks[0]).To(And(HaveKeyWithValue("bootable", "true"), HaveKeyWithValue("attached_type", "rootdisk"),
			HaveKeyWithValue("name", "node-1_rootdisk"), HaveKeyWithValue("size", 40.0), HaveKeyWithValue("status", "in-use"),
			HaveKeyWithValue("volume_type", "PREMIUM-SSD1"), HaveKeyWithValue("type", "SSD"), HaveKeyWithValue("description", BeNil())))
		Expect(fields["ip_addresses"]).To(And(HaveKeyWithValue("LAN", HaveLen(1)), HaveKeyWithValue("WAN_V4", BeEmpty()), HaveKeyWithValue("WAN_V6", BeEmpty())))
		Expect(fields["security_groups"]).To(Equal([]any{map[string]any{"name": "default"}}))
		Expect(server.IPAddresses.LanAddresses[0].Address).To(HavePrefix("10.20."))
		Expect(fields["created"]).To(Equal("2026-03-04T05:06:07Z"))
		Expect(fields["OS-SRV-USG:launched_at"]).To(Equal("2026-03-04T05:06:37.000000"))
	})
	DescribeTable("should take the short form of an old flavor's name and show the full one",
		func(asked, category, name, short string) {
			b = newBox(cloud.Options{Modes: []string{"any-form"}})
			request := b.request("old")
			request.FlavorName, request.Type, request.RootDisk.VolumeType = asked, category, nil
			server := b.launch(request)
			Expect(server.Flavor.Name).To(Equal(name))
			Expect(server.FlavorName).To(Equal(short))
		},
		Entry("premium", "2c_2g", "premium", "nix.2c_2g", "2c_2g"),
		Entry("premium in full", "nix.2c_2g", "premium", "nix.2c_2g", "2c_2g"),
		Entry("basic", "2c_4g", "basic", "2c_4g_basic", "2c_4g"),
		Entry("dedicated", "4c_8g", "dedicated", "4c_8g_dedicated", "4c_8g"),
	)
	It("should allow two servers of one name", func() {
		b.create(b.request("same-name"))
		b.create(b.request("same-name"))
		Expect(b.State().Servers).To(HaveLen(2))
	})
	It("should give a public address, the saving plan and the default network by default", func() {
		a := b.call(http.MethodPost, servers, b.raw(map[string]any{"is_created_wan": nil, "billing_plan": nil, "vpc_network_ids": nil, "network_plan": nil}))
		Expect(a.status).To(Equal(200))
		state := b.State()
		Expect(state.WanIPs).To(HaveLen(1))
		Expect(state.WanIPs[0].BillingType).To(Equal("free"))
		Expect(state.Servers[0].IsCreatedWan).To(BeTrue())
		Expect(state.Servers[0].BillingPlan).To(Equal("saving_plan"))
		Expect(state.Servers[0].SecurityGroups).To(HaveLen(2), "one per port")
		Expect(state.Servers[0].IPAddresses.LAN[0].Addr).To(HavePrefix("10.108."))
	})
	It("should hide a server in BUILD where configured", func() {
		b := newBox(cloud.Options{HideBuilding: true})
		task := b.create(b.request("hidden"))
		list, err := b.client.CloudServer.List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(list).To(BeEmpty())
		id := b.State().Servers[0].ID
		_, err = b.client.CloudServer.Get(ctx, id)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
		b.Advance(latency)
		_, err = b.client.CloudServer.Get(ctx, id)
		Expect(err).ToNot(HaveOccurred())
		done, err := b.client.CloudServer.GetTask(ctx, task)
		Expect(err).ToNot(HaveOccurred())
		Expect(done.Result.ID).To(Equal(id))
	})
	It("should forget a task after an hour", func() {
		task := b.create(b.request("node-1"))
		b.Advance(latency)
		Expect(b.get(tasks + task).status).To(Equal(200))
		b.Advance(61 * 60 * 1e9)
		Expect(b.get(tasks + task).status).To(Equal(404))
		Expect(b.get(tasks + "unknown").object()).To(HaveKey("message"))
	})
})
