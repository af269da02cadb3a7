// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The Terraform provider", func() {
	var s *session
	BeforeEach(func() { s = login() })

	It("should find that it is allowed to use its region", func() {
		user := s.expect(200, http.MethodGet, "/api/account/user", nil)["data"].(object)
		Expect(user["user_regions"]).To(ContainElement(HaveKeyWithValue("code", "HaNoi")))
	})

	It("should create, change and delete a server", func() {
		id := s.launch(nil)
		read := s.expect(200, http.MethodGet, compute+"/servers/"+id, nil)
		Expect(read).To(And(HaveKeyWithValue("status", "ACTIVE"), HaveKeyWithValue("flavor_name", "2c_4g"), HaveKeyWithValue("locked", false),
			HaveKeyWithValue("zone_name", "HN1")))
		ports := s.list(compute + "/network-interfaces?status=ACTIVE&type=LAN_WAN")
		Expect(ports).To(HaveExactElements(And(HaveKeyWithValue("device_id", id), HaveKeyWithValue("type", "LAN"))))
		firewall := s.Options().Catalog.Firewalls["HN"][1].ID
		s.expect(200, http.MethodPost, compute+"/network-interfaces/"+ports[0].(object)["id"].(string)+"/action",
			object{"action": "add_firewall", "security_groups": []string{firewall}})

		task := s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": "resize", "flavor_name": "4c_8g"})["task_id"].(string)
		Expect(s.server(id).Status).To(Equal("RESIZE"), "one of the states that it waits through")
		s.settle()
		Expect(s.expect(200, http.MethodGet, compute+"/tasks/"+task, nil)).To(HaveKeyWithValue("ready", true))
		Expect(s.server(id)).To(And(HaveField("Status", "ACTIVE"), HaveField("Flavor.Name", "nix.4c_8g")))
		vpc := s.BKE().NetworkID
		s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": "add_vpc", "vpc_network_ids": []string{vpc}})
		s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": "remove_vpc", "vpc_network_ids": []string{vpc}})

		root := s.server(id).VolumesAttached[0].ID
		task = s.expect(200, http.MethodDelete, compute+"/servers/"+id, object{"delete_volume": []string{root}})["task_id"].(string)
		s.settle()
		s.expect(404, http.MethodGet, compute+"/servers/"+id, nil)
		Expect(s.expect(200, http.MethodGet, compute+"/tasks/"+task, nil)).To(HaveKeyWithValue("ready", true))
		Expect(s.State().Volumes).To(BeEmpty())
	})

	It("should create a volume of a medium, extend, attach, detach and delete it", func() {
		server := s.launch(nil)
		made := s.expect(200, http.MethodPost, compute+"/volumes", object{
			"name": "data", "description": "", "size": 20, "volume_type": "SSD", "category": "premium", "availability_zone": "HN1", "billing_plan": "on_demand",
		})
		Expect(made).To(And(HaveKeyWithValue("volume_type", "PREMIUM-SSD1"), HaveKeyWithValue("status", "available")))
		action := compute + "/volumes/" + made["id"].(string) + "/action"
		Expect(s.expect(200, http.MethodPost, action, object{"type": "extend", "new_size": 40})).To(HaveKey("task_id"))
		s.settle()
		Expect(s.expect(200, http.MethodPost, action, object{"type": "attach", "instance_uuid": server})).To(HaveKeyWithValue("message", "Attach successfully"))
		Expect(s.server(server).VolumesAttached).To(ContainElement(And(HaveField("AttachedType", "datadisk"), HaveField("Size", 40))))
		s.expect(200, http.MethodPost, action, object{"type": "detach", "instance_uuid": server})
		s.expect(200, http.MethodPatch, compute+"/volumes/"+made["id"].(string), object{"name": "renamed", "description": "mine"})
		s.expect(204, http.MethodDelete, compute+"/volumes/"+made["id"].(string), nil)
		s.settle()
		Expect(s.State().Volumes).To(HaveLen(1), "the root disk")
	})

	It("should create, change and delete a firewall", func() {
		server := s.launch(nil)
		rule := object{"type": "CUSTOM", "protocol": "tcp", "port_range": "80-90", "cidr": "0.0.0.0/0"}
		id := s.expect(200, http.MethodPost, compute+"/firewalls",
			object{"name": "web", "inbound": []object{rule}, "outbound": []object{rule}, "targets": []string{server}})["id"].(string)
		read := s.expect(200, http.MethodGet, compute+"/firewalls/"+id, nil)
		Expect(read["inbound"]).To(HaveExactElements(And(HaveKeyWithValue("cidr", "0.0.0.0/0"), HaveKeyWithValue("port_range", "80-90"),
			HaveKeyWithValue("protocol", "tcp"))))
		Expect(read).To(And(HaveKeyWithValue("servers_count", 1.0), HaveKeyWithValue("rules_count", 2.0), HaveKeyWithValue("network_interface_count", 1.0)))
		changed := s.expect(200, http.MethodPatch, compute+"/firewalls/"+id, object{"name": "web", "inbound": []object{}, "network_interfaces": []string{}})
		Expect(changed).To(And(HaveKeyWithValue("rules_count", 1.0), HaveKeyWithValue("network_interface_count", 0.0)))
		Expect(s.expect(200, http.MethodDelete, compute+"/firewalls/"+id, nil)).To(HaveKey("message"))
	})
	It("should find the IPv6 address that a server got later among the public addresses", func() {
		server := s.launch(nil)
		s.expect(200, http.MethodPost, compute+"/servers/"+server+"/action", object{"action": "enable_ipv6"})
		Expect(s.list(compute + "/wanips")).To(ContainElement(And(HaveKeyWithValue("ip_version", 6.0), HaveKeyWithValue("billing_type", "free"))))
	})

	It("should create networks, ports and addresses, and take them away", func() {
		server := s.launch(nil)
		vpc := s.expect(200, http.MethodPost, compute+"/vpc-networks", object{"name": "net", "cidr": "10.60.0.0/24", "description": "mine"})["id"].(string)
		s.expect(200, http.MethodPut, compute+"/vpc-networks/"+vpc, object{"name": "net", "description": "yours", "cidr": "10.60.0.0/24"})
		port := s.expect(200, http.MethodPost, compute+"/vpc-networks/"+vpc+"/network-interfaces", object{"name": "port", "fixed_ip": "10.60.0.77"})
		Expect(port).To(And(HaveKeyWithValue("ip_address", "10.60.0.77"), HaveKeyWithValue("attached_server", BeEmpty())))
		portPath := compute + "/network-interfaces/" + port["id"].(string)
		s.expect(200, http.MethodPost, portPath+"/action", object{"action": "attach_server", "server_id": server})
		s.expect(200, http.MethodPut, portPath, object{"name": "renamed"})
		s.expect(200, http.MethodPost, portPath+"/action", object{"action": "detach_server"})
		ip := s.expect(200, http.MethodPost, compute+"/wanips", object{"name": "ip", "attached_server": "", "availability_zone": "HN1"})
		s.expect(200, http.MethodPost, compute+"/servers/"+server+"/action", object{"action": "attach_wan_ips", "wan_ips": []any{ip["id"]}})
		s.expect(200, http.MethodPost, compute+"/wanips/"+ip["id"].(string)+"/action", object{"action": "detach_server"})

		s.expect(204, http.MethodDelete, portPath, nil)
		s.expect(204, http.MethodDelete, compute+"/wanips/"+ip["id"].(string), nil)
		s.expect(204, http.MethodDelete, compute+"/vpc-networks/"+vpc, nil)
	})

	It("should keep a key and a snapshot", func() {
		key := s.expect(200, http.MethodPost, compute+"/keypairs",
			object{"name": "tf", "public_key": "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY= tf"})
		Expect(key["fingerprint"]).To(MatchRegexp(`^([0-9a-f]{2}:){15}[0-9a-f]{2}$`))
		Expect(s.list(compute + "/keypairs")).To(ContainElement(HaveKeyWithValue("keypair", HaveKeyWithValue("name", "tf"))))
		disk := s.server(s.launch(nil)).VolumesAttached[0].ID
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "snap", "volume_id": disk, "force": true})["id"].(string)
		Expect(s.expect(200, http.MethodGet, compute+"/snapshots/"+snapshot, nil)).To(And(HaveKeyWithValue("updated_at", Not(BeEmpty())),
			HaveKeyWithValue("type", "HDD"), HaveKeyWithValue("volume", HaveKeyWithValue("id", disk))))
		s.expect(204, http.MethodDelete, compute+"/snapshots/"+snapshot, nil)
		s.expect(200, http.MethodDelete, compute+"/keypairs/tf", nil)
	})

	It("should read what a cluster is made of, and keep a worker pool", func() {
		Expect(s.expect(200, http.MethodGet, engine+"/k8s_versions", nil)["controller_versions"]).NotTo(BeEmpty())
		Expect(s.expect(200, http.MethodGet, engine+"/package/?specify=standard", nil)["packages"]).To(HaveLen(2))
		uid := s.BKE().ClusterUID
		pools := s.expect(200, http.MethodPost, engine+"/_/"+uid, object{"worker_pools": []object{{
			"name": "pool", "flavor": "nix.2c_4g", "profile_type": "premium", "volume_type": "PREMIUM-HDD1", "volume_size": 40, "availability_zone": "HN1",
			"desired_size": 1, "enable_autoscaling": true, "min_size": 1, "max_size": 3, "network_plan": "free_datatransfer", "billing_plan": "on_demand",
		}}})["worker_pools"].([]any)
		pool := engine + "/_/" + uid + "/" + pools[0].(object)["id"].(string)
		s.settle()
		Expect(s.expect(200, http.MethodGet, pool, nil)).To(And(HaveKeyWithValue("provision_status", "PROVISIONED"), HaveKeyWithValue("nodes", HaveLen(1))))
		s.expect(200, http.MethodPatch, pool, object{"desired_size": 2, "enable_autoscaling": true, "min_size": 1, "max_size": 3})
		s.settle()
		Expect(s.Servers()).To(HaveLen(2))
		status, config := s.send(http.MethodGet, engine+"/_/"+uid+"/kubeconfig", nil)
		Expect(status).To(Equal(200))
		Expect(string(config)).To(ContainSubstring("kind: Config"))
		s.expect(204, http.MethodDelete, pool, nil)
		s.settle()
		Expect(s.State().Volumes).To(BeEmpty())
	})
})

var _ = Describe("The command line", func() {
	var s *session
	BeforeEach(func() { s = login() })

	It("should exchange its token for one of a project", func() {
		answer := s.expect(200, http.MethodPost, "/api/token", object{"auth_method": "token", "token": s.token, "project_id": s.Credentials().ProjectID})
		Expect(answer["token"]).NotTo(Equal(s.token))
	})
	It("should stop, start and reboot a server, and see each take its time", func() {
		id := s.launch(nil)
		action := func(name string) object {
			return s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": name})
		}
		Expect(action("stop")).To(HaveKeyWithValue("OS-EXT-STS:task_state", "powering-off"))
		s.settle()
		s.expect(409, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": "soft_reboot"})
		action("start")
		s.settle()
		Expect(action("soft_reboot")).To(HaveKeyWithValue("message", "Soft reboot server thành công"))
		Expect(s.server(id).Status).To(Equal("REBOOT"))
		s.settle()
		Expect(action("hard_reboot")).To(HaveKeyWithValue("message", "Hard reboot server thành công"))
		Expect(s.server(id).Status).To(Equal("HARD_REBOOT"))
		s.settle()
		Expect(s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", object{"action": "get_vnc", "type": "novnc"})).To(HaveKey("console"))
	})
	It("should delete one rule of a firewall by the rule's id, at the path of firewalls", func() {
		rule := object{"type": "CUSTOM", "protocol": "tcp", "port_range": "22", "cidr": "0.0.0.0/0"}
		made := s.expect(200, http.MethodPost, compute+"/firewalls", object{"name": "web", "inbound": []object{rule, rule}, "outbound": []object{rule}})
		path := compute + "/firewalls/" + made["id"].(string)
		rules := made["inbound"].([]any)
		id := rules[0].(object)["id"].(string)
		Expect(s.expect(200, http.MethodDelete, compute+"/firewalls/"+id, nil)).To(HaveKeyWithValue("message", "Deleted Firewall Rule"))
		Expect(s.expect(200, http.MethodGet, path, nil)).To(And(HaveKeyWithValue("rules_count", 2.0),
			HaveKeyWithValue("inbound", HaveExactElements(HaveKeyWithValue("id", rules[1].(object)["id"]))), HaveKeyWithValue("outbound", HaveLen(1))))
		s.expect(404, http.MethodDelete, compute+"/firewalls/"+id, nil)
	})
	It("should read one image with a URL, and the list with paths", func() {
		listed := s.expect(200, http.MethodGet, compute+"/user/images", nil)["images"].([]any)[0].(object)
		Expect(listed["file"]).To(HavePrefix("/v2/images/"))
		one := s.expect(200, http.MethodGet, compute+"/user/image/"+listed["id"].(string), nil)["image"]
		Expect(one).To(HaveKeyWithValue("file", s.URL+listed["file"].(string)))
	})
	It("should create an empty firewall and take servers off one", func() {
		id := s.launch(nil)
		Expect(s.expect(200, http.MethodPost, compute+"/firewalls", object{"name": "empty"})).To(HaveKeyWithValue("rules_count", 0.0))
		firewall := s.Options().Catalog.Firewalls["HN"][0].ID
		left := s.expect(200, http.MethodDelete, compute+"/firewalls/"+firewall+"/servers", object{"servers": []string{id}})
		Expect(left["servers"]).To(BeEmpty())
	})
	It("should restore a volume", func() {
		disk := s.AddVolume(cloud.VolumeSpec{Name: "data"})
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "s", "volume_id": disk.ID, "force": false})["id"]
		Expect(s.expect(200, http.MethodPost, compute+"/volumes/"+disk.ID+"/action", object{"type": "restore_volume", "snapshot_id": snapshot})).
			To(HaveKey("task_id"))
	})
	It("should rename a server, change its plans, and leave its root disk where it is told to", func() {
		id := s.launch(nil)
		for _, action := range []object{
			{"action": "rename", "new_name": "renamed"}, {"action": "change_network_plan", "new_network_plan": "free_bandwidth"},
			{"action": "switch_billing_plan", "billing_plan": "saving_plan"},
		} {
			s.expect(200, http.MethodPost, compute+"/servers/"+id+"/action", action)
		}
		Expect(s.server(id)).To(And(HaveField("Name", "renamed"), HaveField("NetworkPlan", "free_bandwidth"), HaveField("BillingPlan", "saving_plan")))
		s.expect(200, http.MethodDelete, compute+"/servers/"+id, object{"delete_volume": []string{}})
		s.settle()
		Expect(s.State().Volumes).To(HaveExactElements(HaveField("Status", "available")))
	})
	It("should launch a server by medium, from a snapshot or a volume, and elsewhere", func() {
		s.launch(object{"rootdisk": object{"size": 20, "type": "HDD"}, "is_created_wan": true})
		disk := s.server(s.launch(nil)).VolumesAttached[0].ID
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "s", "volume_id": disk, "force": true})["id"]
		s.launch(object{"name": "from-snapshot", "os": object{"id": snapshot, "type": "snapshot"}})
		volume := s.AddVolume(cloud.VolumeSpec{Name: "root", Bootable: true})
		s.launch(object{"name": "from-volume", "os": object{"id": volume.ID, "type": "volume"}})
		answer := s.expect(200, http.MethodPost, "/hcm"+compute+"/servers", []object{s.create(object{"availability_zone": "HCM1",
			"os": object{"id": s.Options().Catalog.Images["HCM"][0].Versions[1].ID, "type": "image"}})})
		s.settle()
		Expect(s.expect(200, http.MethodGet, "/hcm"+compute+"/tasks/"+answer["task_id"].([]any)[0].(string), nil)).To(HaveKeyWithValue("ready", true))
		Expect(s.Servers()).To(HaveLen(5))
	})
	It("should recycle and delete a node of a pool, and delete an image and a paid address", func() {
		uid := s.BKE().ClusterUID
		pool := s.AddWorkerPool(cloud.PoolSpec{Name: "pool", Servers: []string{s.launch(object{"name": "pool-0"}), s.launch(object{"name": "pool-1"})}})
		path := engine + "/_/" + uid + "/" + pool
		nodes := func() []any { return s.expect(200, http.MethodGet, path, nil)["nodes"].([]any) }
		s.expect(200, http.MethodPut, path+"/"+nodes()[0].(object)["id"].(string), nil)
		s.settle()
		Expect(nodes()).To(HaveLen(2))
		s.expect(204, http.MethodDelete, path+"/"+nodes()[0].(object)["id"].(string), nil)
		s.settle()
		Expect(nodes()).To(HaveLen(1))
		Expect(s.expect(200, http.MethodGet, engine+"/_", nil)["clusters"]).To(HaveLen(1))

		image := s.expect(200, http.MethodGet, compute+"/user/images", nil)["images"].([]any)[0].(object)["id"].(string)
		s.expect(204, http.MethodDelete, compute+"/user/image/"+image, nil)
		ip := s.expect(200, http.MethodPost, compute+"/wanips", object{"name": "ip", "availability_zone": "HN1"})["id"].(string)
		Expect(s.expect(200, http.MethodPost, compute+"/wanips/"+ip+"/action", object{"action": "convert_to_paid"})).To(HaveKeyWithValue("billing_type", "paid"))
	})
	It("should create an address for a server, take it off, and give it to another", func() {
		first, second := s.launch(nil), s.launch(object{"name": "other"})
		ip := s.expect(200, http.MethodPost, compute+"/wanips", object{"name": "ip", "attached_server": first, "availability_zone": "HN1"})["id"].(string)
		Expect(s.server(first).IPAddresses.WANV4).To(HaveLen(1))
		s.expect(200, http.MethodPost, compute+"/wanips/"+ip+"/action", object{"action": "detach_server"})
		Expect(s.server(first).IPAddresses.WANV4).To(BeEmpty())
		s.expect(200, http.MethodPost, compute+"/wanips/"+ip+"/action", object{"action": "attach_server", "server_id": second})
		Expect(s.server(second).IPAddresses.WANV4).To(HaveLen(1))
	})
	It("should keep the description of a network that a change leaves out", func() {
		vpc := s.expect(200, http.MethodPost, compute+"/vpc-networks", object{"name": "net", "cidr": "10.60.0.0/24", "description": "mine"})["id"].(string)
		s.expect(200, http.MethodPut, compute+"/vpc-networks/"+vpc, object{"name": "net"})
		Expect(s.expect(200, http.MethodGet, compute+"/vpc-networks/"+vpc, nil)).To(HaveKeyWithValue("description", "mine"))
	})
	It("should get the answer that the sandbox has no load balancers", func() {
		Expect(s.expect(404, http.MethodGet, "/api/loadbalancers/loadbalancers", nil)).To(HaveKeyWithValue("message", "The sandbox has no load_balancer"))
	})
})

var _ = Describe("The cloud controller manager", func() {
	var s *session
	BeforeEach(func() { s = login() })

	It("should find a server by its name in the complete list, and where it is", func() {
		id := s.launch(object{"name": "node-1"})
		found, _ := lo.Find(s.list(compute+"/servers"), func(server any) bool { return server.(object)["name"] == "node-1" })
		Expect(found).To(And(HaveKeyWithValue("id", id), HaveKeyWithValue("OS-EXT-AZ:availability_zone", "HN1"),
			HaveKeyWithValue("flavor", HaveKeyWithValue("name", "nix.2c_4g")),
			HaveKeyWithValue("ip_addresses", HaveKeyWithValue("LAN", HaveLen(1)))))
	})
	It("should find that a server is gone, also among the nodes that are elsewhere", func() {
		s.expect(404, http.MethodGet, compute+"/servers/366d5fa3-49d2-4c0d-bde5-f542bddb212a", nil)
		Expect(s.expect(404, http.MethodGet, engine+"/_/node_everywhere/366d5fa3-49d2-4c0d-bde5-f542bddb212a", nil)).To(HaveKey("message"))
	})
})

var _ = Describe("The CSI driver", func() {
	var s *session
	BeforeEach(func() { s = login() })
	request := func(change object) object {
		return lo.Assign(object{
			"name": "pvc-1", "description": "default/data by csi-bizflycloud", "size": 20, "volume_type": "SSD", "category": "premium", "availability_zone": "HN1",
		}, change)
	}

	It("should create a volume once, attach it, find its device, detach and delete it", func() {
		Expect(s.list(compute + "/volumes?name=pvc-1")).To(BeEmpty())
		id := s.expect(200, http.MethodPost, compute+"/volumes", request(object{"billing_plan": "on_demand"}))["id"].(string)
		Expect(s.list(compute + "/volumes?name=pvc-1")).To(HaveLen(1))
		node := s.launch(nil)
		s.expect(200, http.MethodPost, compute+"/volumes/"+id+"/action", object{"type": "attach", "instance_uuid": node})
		Expect(s.expect(200, http.MethodGet, compute+"/volumes/"+id, nil)["attachments"]).
			To(HaveExactElements(And(HaveKeyWithValue("server_id", node), HaveKeyWithValue("device", "/dev/vdb"))))
		s.expect(400, http.MethodDelete, compute+"/volumes/"+id, nil)
		s.expect(200, http.MethodPost, compute+"/volumes/"+id+"/action", object{"type": "detach", "instance_uuid": node})
		s.expect(204, http.MethodDelete, compute+"/volumes/"+id, nil)
		s.settle()
		s.expect(404, http.MethodGet, compute+"/volumes/"+id, nil)
	})
	It("should attach a volume without a billing plan to servers on demand alone", func() {
		node := s.launch(nil)
		volume := s.expect(200, http.MethodPost, compute+"/volumes", request(nil))
		Expect(volume).To(HaveKeyWithValue("billing_plan", "on_demand"))
		s.expect(200, http.MethodPost, compute+"/volumes/"+volume["id"].(string)+"/action", object{"type": "attach", "instance_uuid": node})
		volume = s.expect(200, http.MethodPost, compute+"/volumes", request(object{"billing_plan": "saving_plan"}))
		rejected := s.expect(400, http.MethodPost, compute+"/volumes/"+volume["id"].(string)+"/action", object{"type": "attach", "instance_uuid": node})
		Expect(rejected["message"]).To(ContainSubstring("gói cước"))
	})
	It("should take a snapshot of a volume in use and make a volume of it", func() {
		node := s.server(s.launch(nil))
		snapshot := s.expect(200, http.MethodPost, compute+"/snapshots", object{"name": "snapshot-1", "volume_id": node.VolumesAttached[0].ID, "force": true})
		Expect(s.list(compute + "/snapshots?volume_id=" + node.VolumesAttached[0].ID)).To(HaveLen(1))
		s.expect(400, http.MethodPost, compute+"/volumes", request(object{"snapshot_id": snapshot["id"], "size": 20}))
		made := s.expect(200, http.MethodPost, compute+"/volumes", request(object{"snapshot_id": snapshot["id"], "size": 40}))
		Expect(made).To(HaveKeyWithValue("snapshot_id", snapshot["id"]))
	})
})

var _ = Describe("The cluster-autoscaler", func() {
	It("should change the size of a pool alone, and keep all that it leaves out", func() {
		s := login()
		pool := s.AddWorkerPool(cloud.PoolSpec{Name: "pool", Servers: []string{s.launch(nil)}, MinSize: 1, MaxSize: 3})
		path := engine + "/_/" + s.BKE().ClusterUID + "/" + pool
		s.expect(200, http.MethodPatch, path, object{"desired_size": 2})
		s.settle()
		Expect(s.expect(200, http.MethodGet, path, nil)).To(And(HaveKeyWithValue("nodes", HaveLen(2)), HaveKeyWithValue("enable_autoscaling", true),
			HaveKeyWithValue("min_size", 1.0), HaveKeyWithValue("max_size", 3.0)))
	})
})

var _ = Describe("The older Karpenter provider", func() {
	var s *session
	BeforeEach(func() { s = login() })

	It("should launch a server by the medium of its disk, and leave that behind", func() {
		id := s.launch(object{"rootdisk": object{"size": 40, "type": "HDD"}, "password": true, "is_created_wan": true, "vpc_network_ids": []string{s.BKE().NetworkID},
			"user_data": "#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh",
			"metadata":  object{"karpenter-managed": "true", "bizfly_cloud_service": "kubernetes_engine"}})
		Expect(s.server(id)).To(And(HaveField("Metadata", HaveKeyWithValue("karpenter-managed", "true")), HaveField("IPAddresses.WANV4", HaveLen(1))))
		s.expect(200, http.MethodDelete, compute+"/servers/"+id, object{"delete_volume": nil})
		s.settle()
		Expect(s.State().Volumes).To(HaveExactElements(And(HaveField("Name", "terraform_rootdisk"), HaveField("Status", "available"))))
	})
	It("should meet with a page of the gateway where it asks for a provider id", func() {
		status, page := s.send(http.MethodGet, compute+"/servers/bizflycloud://x", nil)
		Expect(status).To(Equal(404))
		Expect(string(page)).To(ContainSubstring("<svg"))
	})
})
