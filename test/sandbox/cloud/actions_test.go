// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Actions on a server", func() {
	var b *box
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		b.launch(b.request("node-1"))
	})

	It("should reject while it is being built", func() {
		b.create(b.request("node-2"))
		building, _ := lo.Find(b.Servers(), func(s cloud.Server) bool { return s.Name == "node-2" })
		Expect(b.call(http.MethodPost, servers+"/"+building.ID+"/action", map[string]any{"action": "stop"}).status).To(Equal(409))
	})
	It("should attach firewalls to its ports and take them off, and know which there are", func() {
		firewalls := lo.Map(b.Options().Catalog.Firewalls["HN"], func(f cloud.Firewall, _ int) string { return f.ID })
		port := b.State().NetworkInterfaces[0]
		act := func(name string, ids ...string) int {
			return b.call(http.MethodPost, "/iaas-cloud/api/network-interfaces/"+port.ID+"/action", map[string]any{"action": name, "security_groups": ids}).status
		}
		groups := func() []string { return b.State().NetworkInterfaces[0].SecurityGroups }
		Expect(act("add_firewall", firewalls[1:]...)).To(Equal(200))
		Expect(groups()).To(ConsistOf(firewalls))
		Expect(act("add_firewall", firewalls[1])).To(Equal(200))
		Expect(act("remove_firewall", firewalls[0], firewalls[2])).To(Equal(200))
		Expect(groups()).To(ConsistOf(firewalls[1]))
		for _, name := range []string{"add_firewall", "remove_firewall"} {
			Expect(act(name, "unknown")).To(Equal(400))
			Expect(act(name)).To(Equal(400))
		}
		Expect(groups()).To(ConsistOf(firewalls[1]))
	})
})

var _ = Describe("Editing a server or volume directly", func() {
	var b *box
	var server cloud.Server
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		server = b.AddServer(cloud.ServerSpec{Name: "node-1", Metadata: map[string]string{"gone": "soon"}})
	})
	edit := func(path string, body any) int {
		GinkgoHelper()
		return b.call(http.MethodPatch, "/_sandbox/"+path, body).status
	}
	It("should change every field of a server", func() {
		tiny, _ := lo.Find(b.Options().Catalog.VPCs["HN"], func(v cloud.VPC) bool { return v.Name == "tiny" })
		disk := b.AddVolume(cloud.VolumeSpec{Name: "data"})
		Expect(b.AttachVolume(disk.ID, server.ID)).To(Succeed())
		Expect(edit("servers/"+server.ID, map[string]any{
			"name": "other", "status": "SHUTOFF", "flavor": "p2.4c_8g", "zone": "HN2", "billing_plan": "saving_plan", "network_plan": "free_bandwidth",
			"metadata": map[string]any{"gone": nil, "new": "here"}, "networks": []string{tiny.ID},
			"root_disk": map[string]any{"size": 90, "volume_type": "PREMIUM-HDD1", "billing_plan": "saving_plan"}, "detach_volumes": []string{disk.ID},
		})).To(Equal(204))
		edited := b.Servers()[0]
		Expect(edited).To(And(HaveField("Name", "other"), HaveField("Status", "SHUTOFF"), HaveField("Flavor.Name", "p2.4c_8g"),
			HaveField("AvailabilityZone", "HN2"), HaveField("BillingPlan", "saving_plan"), HaveField("NetworkPlan", "free_bandwidth"),
			HaveField("Metadata", And(HaveKeyWithValue("new", "here"), Not(HaveKey("gone")))),
			HaveField("VolumesAttached", ConsistOf(And(HaveField("Size", 90), HaveField("Type", "HDD"), HaveField("VolumeType", "PREMIUM-HDD1"))))))
		Expect(b.State().NetworkInterfaces).To(ConsistOf(HaveField("NetworkID", tiny.ID)))
		Expect(b.State().Volumes).To(ContainElement(And(HaveField("ID", disk.ID), HaveField("Attachments", BeEmpty()))))
	})
	It("should change nothing where something does not exist", func() {
		before := b.State()
		for body, status := range map[string]int{
			`{"name":"x","flavor":"none"}`: 404, `{"name":"x","networks":["none"]}`: 404, `{"name":"x","detach_volumes":["none"]}`: 404,
			`{"name":"x","root_disk":{"volume_type":"none"}}`: 404, `{"name":"x","nonsense":1}`: 400,
		} {
			Expect(edit("servers/"+server.ID, body)).To(Equal(status), body)
		}
		Expect(edit("servers/none", `{"name":"x"}`)).To(Equal(404))
		Expect(b.State()).To(Equal(before))
	})
})
