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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const api = "/iaas-cloud/api"

var _ = Describe("What a request contains", func() {
	ctx := context.Background()
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	rejected := func(method, path string, body any, status int, said string) {
		GinkgoHelper()
		a := b.call(method, api+path, body)
		Expect(a.status).To(Equal(status), "%s", a.body)
		Expect(a.object()["message"]).To(ContainSubstring(said))
	}

	Describe("of a port", func() {
		It("should be its address, unless the network does not have it or another has taken it", func() {
			network := b.BKE().NetworkID
			made, err := b.client.CloudServer.NetworkInterfaces().Create(ctx, network, &gobizfly.CreateNetworkInterfacePayload{Name: "fixed", FixedIP: "10.20.3.9"})
			Expect(err).ToNot(HaveOccurred())
			Expect(made.FixedIps).To(ConsistOf(And(HaveField("IPAddress", "10.20.3.9"), HaveField("IPVersion", 4))))
			path := "/vpc-networks/" + network + "/network-interfaces"
			rejected(http.MethodPost, path, map[string]any{"name": "x", "fixed_ip": "10.20.3.9"}, 409, "already allocated")
			rejected(http.MethodPost, path, map[string]any{"name": "x", "fixed_ip": "10.21.0.9"}, 400, "not a valid IP for any of the subnets")
			rejected(http.MethodPost, path, map[string]any{"name": "x", "fixed_ip": "10.20.63.255"}, 400, "not a valid IP for any of the subnets")
			rejected(http.MethodPost, path, map[string]any{"name": "x", "fixed_ip": "nine"}, 400, "not a valid IP address")
			Expect(b.client.CloudServer.NetworkInterfaces().Delete(ctx, made.ID)).To(Succeed())
			Expect(b.call(http.MethodPost, api+path, map[string]any{"name": "x", "fixed_ip": "10.20.3.9"}).status).To(Equal(200), "it is free again")
		})
		It("should give it the default firewall, a name that can change, and a switch", func() {
			made, err := b.client.CloudServer.NetworkInterfaces().Create(ctx, b.BKE().NetworkID, &gobizfly.CreateNetworkInterfacePayload{Name: "a"})
			Expect(err).ToNot(HaveOccurred())
			Expect(made.SecurityGroups).To(HaveExactElements(b.Options().Catalog.Firewalls["HN"][0].ID))
			renamed, err := b.client.CloudServer.NetworkInterfaces().Update(ctx, made.ID, &gobizfly.UpdateNetworkInterfacePayload{Name: "b"})
			Expect(err).ToNot(HaveOccurred())
			Expect(renamed.Name).To(Equal("b"))
			server := b.launch(b.request("node-1"))
			port := b.State().NetworkInterfaces[1]
			Expect(port.AttachedServer.ID).To(Equal(server.ID))
			Expect(port.Status).To(Equal("ACTIVE"))
			disabled, err := b.client.CloudServer.NetworkInterfaces().Action(ctx, port.ID, &gobizfly.ActionNetworkInterfacePayload{Action: "disable"})
			Expect(err).ToNot(HaveOccurred())
			Expect([]any{disabled.Status, disabled.AdminStateUp}).To(Equal([]any{"DOWN", false}))
			enabled, err := b.client.CloudServer.NetworkInterfaces().Action(ctx, port.ID, &gobizfly.ActionNetworkInterfacePayload{Action: "enable"})
			Expect(err).ToNot(HaveOccurred())
			Expect([]any{enabled.Status, enabled.AdminStateUp}).To(Equal([]any{"ACTIVE", true}))
		})
		It("should give a server an IPv6 address with a port of its own, which is deleted with it", func() {
			request := b.request("node-1")
			request.IPv6 = true
			born := b.launch(request)
			Expect(born.IPAddresses.WanV6Addresses).To(HaveLen(1))
			later := b.launch(b.request("node-2"))
			Expect(later.IPAddresses.WanV6Addresses).To(BeEmpty())
			Expect(b.client.CloudServer.EnableIPv6(ctx, later.ID)).To(Succeed())
			rejected(http.MethodPost, "/servers/"+later.ID+"/action", map[string]any{"action": "enable_ipv6"}, 409, "already")
			ports, err := b.client.CloudServer.NetworkInterfaces().List(ctx, &gobizfly.ListNetworkInterfaceOptions{Type: "WAN"})
			Expect(err).ToNot(HaveOccurred())
			Expect(ports).To(HaveLen(2))
			Expect(ports).To(HaveEach(And(HaveField("IPVersion", 6), HaveField("IPAddress", ContainSubstring(":")),
				HaveField("FixedIps", HaveEach(HaveField("IPVersion", 6))))))
			Expect(lo.Map(ports, func(p *gobizfly.NetworkInterface, _ int) string { return p.DeviceID })).To(ConsistOf(born.ID, later.ID))
			_, err = b.client.CloudServer.Delete(ctx, born.ID, nil)
			Expect(err).ToNot(HaveOccurred())
			b.Advance(latency)
			Expect(b.State().WanIPs).To(HaveExactElements(HaveField("DeviceID", later.ID)))
		})
	})

	Describe("of a network", func() {
		It("should leave one default", func() {
			made, err := b.client.CloudServer.VPCNetworks().Create(ctx, &gobizfly.CreateVPCPayload{Name: "mine", IsDefault: true})
			Expect(err).ToNot(HaveOccurred())
			isDefault := func() []string {
				all, err := b.client.CloudServer.VPCNetworks().List(ctx)
				Expect(err).ToNot(HaveOccurred())
				return lo.FilterMap(all, func(v *gobizfly.VPCNetwork, _ int) (string, bool) { return v.Name, v.IsDefault })
			}
			Expect(isDefault()).To(Equal([]string{"mine"}))
			_, err = b.client.CloudServer.VPCNetworks().Update(ctx, b.BKE().NetworkID, &gobizfly.UpdateVPCPayload{IsDefault: true})
			Expect(err).ToNot(HaveOccurred())
			Expect(isDefault()).To(Equal([]string{"kubernetes"}))
			Expect(b.client.CloudServer.VPCNetworks().Delete(ctx, made.ID)).To(Succeed())
		})
		It("should change it", func() {
			made, err := b.client.CloudServer.VPCNetworks().Create(ctx, &gobizfly.CreateVPCPayload{Name: "a", CIDR: "10.50.0.0/24", Description: "one"})
			Expect(err).ToNot(HaveOccurred())
			changed, err := b.client.CloudServer.VPCNetworks().Update(ctx, made.ID, &gobizfly.UpdateVPCPayload{Name: "b", CIDR: "10.51.0.0/24"})
			Expect(err).ToNot(HaveOccurred())
			Expect([]string{changed.Name, changed.Description, changed.Subnets[0].CIDR, changed.Subnets[0].NetworkID}).
				To(Equal([]string{"b", "one", "10.51.0.0/24", made.ID}))
			port := b.call(http.MethodPost, api+"/vpc-networks/"+made.ID+"/network-interfaces", map[string]any{"name": "p"}).object()
			Expect(port["ip_address"]).To(HavePrefix("10.51.0."))
			rejected(http.MethodPut, "/vpc-networks/"+made.ID, map[string]any{"cidr": "10.52.0.0/24"}, 409, "still in use")
			rejected(http.MethodPut, "/vpc-networks/"+made.ID, map[string]any{"mtu": 9000}, 400, `unknown field "mtu"`)
			rejected(http.MethodPut, "/vpc-networks/unknown", map[string]any{"name": "x"}, 404, "could not be found")
		})
	})

	Describe("of a firewall", func() {
		It("should be its rules, with ranges of ports and families of addresses", func() {
			made, err := b.client.CloudServer.Firewalls().Create(ctx, &gobizfly.FirewallRequestPayload{Name: "nodes",
				InBound: []gobizfly.FirewallRuleCreateRequest{
					{Type: "CUSTOM", Protocol: "TCP", PortRange: "80-90", CIDR: "10.0.0.0/8"}, {Type: "SSH", Protocol: "tcp", PortRange: "22", CIDR: "2001:db8::/32"},
				},
				OutBound: []gobizfly.FirewallRuleCreateRequest{{Type: "CUSTOM", CIDR: "::/0"}},
			})
			Expect(err).ToNot(HaveOccurred())
			Expect(made.Description).To(MatchRegexp(`^nodes created \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$`))
			Expect(made.InBound).To(HaveExactElements(
				And(HaveField("EtherType", "IPv4"), HaveField("Protocol", "tcp"), HaveField("PortRange", "80-90"), HaveField("PortRangeMin", 80),
					HaveField("PortRangeMax", 90), HaveField("CIDR", "10.0.0.0/8")),
				And(HaveField("EtherType", "IPv6"), HaveField("Type", "SSH"), HaveField("PortRange", "22"), HaveField("PortRangeMin", 22),
					HaveField("RemoteIPPrefix", "2001:db8::/32"))))
			Expect(made.OutBound).To(HaveExactElements(And(HaveField("EtherType", "IPv6"), HaveField("Protocol", ""), HaveField("PortRange", ""))))
			for said, rule := range map[string]map[string]any{
				"not a valid cidr":          {"cidr": "everywhere"},
				"protocol sctp":             {"cidr": "0.0.0.0/0", "protocol": "sctp"},
				"Invalid port_range: 90-80": {"cidr": "0.0.0.0/0", "protocol": "tcp", "port_range": "90-80"},
				"Invalid port_range: 0":     {"cidr": "0.0.0.0/0", "protocol": "udp", "port_range": "0"},
				"needs the protocol tcp":    {"cidr": "0.0.0.0/0", "port_range": "80"},
				`unknown field "direction"`: {"cidr": "0.0.0.0/0", "direction": "ingress"},
			} {
				rejected(http.MethodPost, "/firewalls", map[string]any{"name": "x", "inbound": []any{rule}}, 400, said)
			}
		})
		It("should put it on ports and on servers, and take it off", func() {
			one, two := b.launch(b.request("node-1")), b.launch(b.request("node-2"))
			ports := b.State().NetworkInterfaces
			made, err := b.client.CloudServer.Firewalls().Create(ctx, &gobizfly.FirewallRequestPayload{Name: "nodes", Targets: []string{one.ID}})
			Expect(err).ToNot(HaveOccurred())
			has := func() []string {
				return lo.FilterMap(b.State().NetworkInterfaces, func(p cloud.NetworkInterface, _ int) (string, bool) {
					return p.AttachedServer.Name, lo.Contains(p.SecurityGroups, made.ID)
				})
			}
			Expect(has()).To(Equal([]string{"node-1"}))
			changed, err := b.client.CloudServer.Firewalls().Update(ctx, made.ID,
				&gobizfly.FirewallRequestPayload{Name: "renamed", NetworkInterfaces: []string{ports[0].ID, ports[1].ID}})
			Expect(err).ToNot(HaveOccurred())
			Expect(changed.BaseFirewall).To(And(HaveField("Name", "renamed"), HaveField("ServersCount", 2), HaveField("NetworkInterfaceCount", 2)))
			Expect(has()).To(Equal([]string{"node-1", "node-2"}))
			_, err = b.client.CloudServer.Firewalls().Update(ctx, made.ID,
				&gobizfly.FirewallRequestPayload{Name: "renamed", InBound: []gobizfly.FirewallRuleCreateRequest{{Type: "CUSTOM", CIDR: "0.0.0.0/0"}}})
			Expect(err).ToNot(HaveOccurred())
			Expect(has()).To(HaveLen(2), "what is absent stays")
			left, err := b.client.CloudServer.Firewalls().RemoveServer(ctx, made.ID, &gobizfly.FirewallRemoveServerRequest{Servers: []string{two.ID}})
			Expect(err).ToNot(HaveOccurred())
			Expect(left.Servers).To(Equal([]string{one.ID}))
			Expect(left.RulesCount).To(Equal(1))
			Expect(has()).To(Equal([]string{"node-1"}))
			rejected(http.MethodDelete, "/firewalls/"+made.ID+"/servers", map[string]any{"servers": []string{"x"}}, 400, "could not be found")
			rejected(http.MethodPost, "/firewalls", map[string]any{"name": "x", "network_interfaces": []string{"x"}}, 400, "Port x")
			rejected(http.MethodPatch, "/firewalls/unknown", map[string]any{"name": "x"}, 404, "not found")
		})
	})

	Describe("of a key", func() {
		DescribeTable("should be any kind of key, with its fingerprint in one form", func(publicKey string) {
			made, err := b.client.CloudServer.SSHKeys().Create(ctx, &gobizfly.SSHKeyCreateRequest{Name: "laptop", PublicKey: publicKey})
			Expect(err).ToNot(HaveOccurred())
			Expect(made.FingerPrint).To(MatchRegexp(`^([0-9a-f]{2}:){15}[0-9a-f]{2}$`))
		},
			Entry("ed25519", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsOpsO me"),
			Entry("ecdsa", "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY= me"),
			Entry("of a hardware token", "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t me"),
		)
		It("should not be nonsense", func() {
			for _, key := range []string{"AAAA", "ssh-rsa", "ssh-rsa !!", "pgp AAAA"} {
				rejected(http.MethodPost, "/keypairs", map[string]any{"name": "x", "public_key": key}, 400, "Keypair data is invalid")
			}
			Expect(b.Options().Catalog.SSHKeys).To(HaveEach(HaveField("Fingerprint", MatchRegexp(`^([0-9a-f]{2}:){15}[0-9a-f]{2}$`))))
		})
	})

	Describe("of a volume", func() {
		volume := func(change map[string]any) answer {
			GinkgoHelper()
			body := map[string]any{"name": "v", "description": "", "size": 50, "volume_type": "PREMIUM-SSD1", "category": "premium", "availability_zone": "HN1"}
			return b.call(http.MethodPost, api+"/volumes", lo.Assign(body, change))
		}
		DescribeTable("should be its type, also by the medium alone", func(kind, name string) {
			Expect(volume(map[string]any{"volume_type": kind}).object()).To(And(HaveKeyWithValue("volume_type", name), HaveKeyWithValue("status", "available")))
		},
			Entry("SSD", "SSD", "PREMIUM-SSD1"), Entry("HDD", "HDD", "PREMIUM-HDD1"), Entry("text", "PREMIUM HDD", "PREMIUM-HDD1"),
			Entry("name", "PREMIUM-HDD1", "PREMIUM-HDD1"))
		It("should be the snapshot that it is made from", func() {
			snapshot := b.Options().Catalog.Snapshots["HN"][0]
			made := volume(map[string]any{"snapshot_id": snapshot.ID}).object()
			Expect(made).To(And(HaveKeyWithValue("snapshot_id", snapshot.ID), HaveKeyWithValue("bootable", true)))
			Expect(volume(nil).object()).To(HaveKeyWithValue("snapshot_id", BeNil()))
			Expect(volume(map[string]any{"snapshot_id": "unknown"}).status).To(Equal(404))
			small := volume(map[string]any{"snapshot_id": snapshot.ID, "size": 10})
			Expect(small.status).To(Equal(400))
			Expect(small.object()["message"]).To(ContainSubstring("cannot be smaller than the snapshot size 20GB"))
			Expect(volume(map[string]any{"billing_plan": "spot_instance"}).status).To(Equal(400))
			Expect(b.call(http.MethodPost, servers, b.raw(map[string]any{"os": map[string]any{"id": snapshot.ID, "type": "snapshot"}})).status).To(Equal(200))
			root, _ := lo.Find(b.State().Volumes, func(v cloud.Volume) bool { return v.AttachedType == "rootdisk" })
			Expect(root.SnapshotID).To(HaveValue(Equal(snapshot.ID)))
		})
		It("should keep it from being deleted while it has snapshots, also with its server", func() {
			server := b.launch(b.request("node-1"))
			root := server.AttachedVolumes[0].ID
			snapshot, err := b.client.CloudServer.Snapshots().Create(ctx, &gobizfly.SnapshotCreateRequest{Name: "s", VolumeID: root, Force: true})
			Expect(err).ToNot(HaveOccurred())
			_, err = b.client.CloudServer.Delete(ctx, server.ID, []string{root})
			Expect(err).ToNot(HaveOccurred())
			b.Advance(latency)
			Expect(b.Servers()).To(BeEmpty())
			Expect(b.State().Volumes).To(HaveExactElements(And(HaveField("ID", root), HaveField("Status", "available"))))
			rejected(http.MethodDelete, "/volumes/"+root, nil, 400, "still has 1 dependent snapshots")
			Expect(b.client.CloudServer.Snapshots().Delete(ctx, snapshot.ID)).To(Succeed())
			Expect(b.client.CloudServer.Volumes().Delete(ctx, root)).To(Succeed())
			b.Advance(latency)
			Expect(b.State().Volumes).To(BeEmpty())
		})
		It("should change its name and description", func() {
			disk := b.AddVolume(cloud.VolumeSpec{Name: "a"})
			Expect(b.call(http.MethodPatch, api+"/volumes/"+disk.ID, map[string]any{"name": "b", "description": "mine"}).object()).To(
				And(HaveKeyWithValue("name", "b"), HaveKeyWithValue("description", "mine")))
			rejected(http.MethodPatch, "/volumes/"+disk.ID, map[string]any{"size": 100}, 400, `unknown field "size"`)
		})
		It("should restore it from a snapshot of its own", func() {
			disk, other := b.AddVolume(cloud.VolumeSpec{Name: "a"}), b.AddVolume(cloud.VolumeSpec{Name: "b"})
			snapshot, err := b.client.CloudServer.Snapshots().Create(ctx, &gobizfly.SnapshotCreateRequest{Name: "s", VolumeID: disk.ID})
			Expect(err).ToNot(HaveOccurred())
			task, err := b.client.CloudServer.Volumes().Restore(ctx, disk.ID, snapshot.ID)
			Expect(err).ToNot(HaveOccurred())
			Expect(b.State().Volumes[0].Status).To(Equal("restoring-backup"))
			b.Advance(latency)
			Expect(b.get("/iaas-cloud/api/tasks/" + task.TaskID).object()).To(HaveKeyWithValue("ready", true))
			Expect(b.State().Volumes[0]).To(And(HaveField("Status", "available"), HaveField("SnapshotID", HaveValue(Equal(snapshot.ID)))))
			rejected(http.MethodPost, "/volumes/"+other.ID+"/action", map[string]any{"type": "restore_volume", "snapshot_id": snapshot.ID}, 400, "is not one of volume")
			rejected(http.MethodPost, "/volumes/"+disk.ID+"/action", map[string]any{"type": "restore_volume", "snapshot_id": "x"}, 404, "could not be found")
			rejected(http.MethodPost, "/volumes/"+disk.ID+"/action", map[string]any{"type": "restore_volume", "new_size": 50}, 400, `unknown field "new_size"`)
		})
	})
})

var _ = Describe("What only the real cloud can answer", func() {
	It("should be an option: no default network and no default firewall", func() {
		b := newBox(cloud.Options{NoDefaultNetwork: true, NoDefaultFirewall: true})
		request := b.request("node-1")
		request.VPCNetworkIDs = nil
		b.launch(request)
		Expect(b.State().NetworkInterfaces).To(BeEmpty())
		b.launch(b.request("node-2"))
		Expect(b.State().NetworkInterfaces).To(HaveExactElements(HaveField("SecurityGroups", BeEmpty())))
	})
	It("should be an option: the plan of a volume that names none", func() {
		body := map[string]any{"name": "v", "size": 20, "volume_type": "SSD", "category": "premium", "availability_zone": "HN1"}
		Expect(newBox(cloud.Options{}).call(http.MethodPost, api+"/volumes", body).object()).To(HaveKeyWithValue("billing_plan", "on_demand"))
		b := newBox(cloud.Options{VolumePlan: "saving_plan"})
		Expect(b.call(http.MethodPost, api+"/volumes", body).object()).To(HaveKeyWithValue("billing_plan", "saving_plan"))
	})
	It("should be an option: how volumes write their type", func() {
		b := newBox(cloud.Options{VolumeTypeText: true})
		server := b.launch(b.request("node-1"))
		Expect(b.State().Volumes[0].VolumeType).To(Equal("PREMIUM SSD"))
		Expect(b.get(servers + "/" + server.ID).object()["os-extended-volumes:volumes_attached"]).
			To(HaveExactElements(HaveKeyWithValue("volume_type", "PREMIUM SSD")))
	})
	It("should be an option: how an application credential logs in", func() {
		b := newBox(cloud.Options{AppCredLogin: "app_credential", AppCredFields: [2]string{"application_credential_id", "application_credential_secret"}})
		c := b.Credentials()
		Expect(b.call(http.MethodPost, "/api/token", map[string]any{
			"auth_method": "app_credential", "application_credential_id": c.AppCredID, "application_credential_secret": c.AppCredSecret,
		}).status).To(Equal(200))
		Expect(b.call(http.MethodPost, "/api/token", map[string]any{
			"auth_method": "application_credential", "credential_id": c.AppCredID, "credential_secret": c.AppCredSecret,
		}).status).To(Equal(400))
	})
})
