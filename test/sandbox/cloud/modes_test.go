// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"net/http"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Modes", func() {
	mode := func(names ...string) *box {
		GinkgoHelper()
		return newBox(cloud.Options{Modes: names})
	}

	It("should be documented, each with what it does", func() {
		page, err := os.ReadFile("../../../docs/contribute/sandbox.md")
		Expect(err).ToNot(HaveOccurred())
		for _, m := range cloud.Modes {
			Expect(string(page)).To(ContainSubstring("| `" + m.Name + "` | " + m.What + " |"))
		}
	})
	It("should be known by name", func() {
		Expect(func() { cloud.New(cloud.Options{Modes: []string{"volume-type-by-type", "none"}}) }).To(PanicWith(`there is no mode "none"`))
	})

	DescribeTable("should take the type of a disk in one form, and reject the others",
		func(modes []string, accepted map[string]string) {
			b := mode(modes...)
			for form, disk := range map[string]map[string]any{
				"name":           {"size": 40, "volume_type": "PREMIUM-SSD1"},
				"type":           {"size": 40, "volume_type": "PREMIUM SSD"},
				"medium":         {"size": 40, "type": "SSD"},
				"medium as name": {"size": 40, "volume_type": "SSD"},
			} {
				for _, field := range []string{"rootdisk", "datadisks"} {
					change := map[string]any{field: disk}
					if field == "datadisks" {
						change = map[string]any{field: []any{disk}, "rootdisk": map[string]any{"size": 40}}
					}
					got := b.call(http.MethodPost, servers, b.raw(change))
					if form == accepted["form"] {
						Expect(got.status).To(Equal(http.StatusOK), "%s: %s", form, got.body)
					} else {
						Expect(got.status).To(Equal(http.StatusBadRequest), "%s: %s", form, got.body)
						Expect(string(got.body)).To(MatchRegexp("(?i)volume|ổ đĩa"))
					}
				}
			}
			if accepted["listed"] != "" {
				Expect(string(b.get("/iaas-cloud/api/volume-types?category=premium").body)).To(ContainSubstring(accepted["listed"]))
			}
		},
		Entry("by name, in the plain sandbox", nil, map[string]string{"form": "name", "listed": `"name":"PREMIUM-SSD1","category":"premium","type":"PREMIUM SSD"`}),
		Entry("by type", []string{"volume-type-by-type"},
			map[string]string{"form": "type", "listed": `"name":"PREMIUM-SSD1","category":"premium","type":"PREMIUM SSD"`}),
		Entry("by type, swapped", []string{"volume-types-swapped"},
			map[string]string{"form": "name", "listed": `"name":"SSD","category":"premium","type":"PREMIUM-SSD1"`}),
		Entry("by name, swapped", []string{"volume-types-swapped-by-name"}, map[string]string{"form": "medium as name", "listed": `"name":"SSD"`}),
		Entry("by medium", []string{"volume-type-by-medium"}, map[string]string{"form": "medium"}),
		Entry("by medium, swapped", []string{"volume-types-swapped-by-medium"}, map[string]string{"form": "medium", "listed": `"name":"SSD"`}),
	)

	DescribeTable("should take one name of an old flavor",
		func(modes []string, name string, status int, message string) {
			b := mode(modes...)
			got := b.call(http.MethodPost, servers, b.raw(map[string]any{"flavor": name}))
			Expect(got.status).To(Equal(status), "%s", got.body)
			Expect(string(got.body)).To(ContainSubstring(message))
		},
		Entry("the full one, in the plain sandbox", nil, "nix.2c_4g", http.StatusOK, ""),
		Entry("and not the short one", nil, "2c_4g", http.StatusBadRequest, "Flavor 2c_4g could not be found."),
		Entry("the short one", []string{"short-flavor-names"}, "2c_4g", http.StatusOK, ""),
		Entry("and not the full one", []string{"short-flavor-names"}, "nix.2c_4g", http.StatusBadRequest, "Flavor nix.2c_4g could not be found."),
		Entry("in Vietnamese", []string{"short-flavor-names", "vietnamese"}, "nix.2c_4g", http.StatusBadRequest, "Không tìm thấy cấu hình nix.2c_4g"),
		Entry("without a reason", []string{"short-flavor-names", "silent-flavors"}, "nix.2c_4g", http.StatusBadRequest, `"Dữ liệu không hợp lệ"`),
		Entry("and of a new one its own", []string{"short-flavor-names"}, "p2.2c_4g", http.StatusOK, ""),
		Entry("unless old ones are closed", []string{"old-flavors-closed"}, "nix.2c_4g", http.StatusBadRequest, "Gói nix.2c_4g đã ngừng cung cấp"),
		Entry("which leaves new ones", []string{"old-flavors-closed"}, "p2.2c_4g", http.StatusOK, ""),
	)

	It("should reject the type of a disk without naming it", func() {
		b := mode("silent-volume-types")
		for _, field := range []string{"rootdisk", "datadisks"} {
			disk := map[string]any{"size": 40, "volume_type": "PREMIUM SSD"}
			change := map[string]any{"rootdisk": disk}
			if field == "datadisks" {
				change = map[string]any{field: []any{disk}, "rootdisk": map[string]any{"size": 40}}
			}
			got := b.call(http.MethodPost, servers, b.raw(change))
			Expect(got.status).To(Equal(http.StatusBadRequest))
			Expect(string(got.body)).To(And(ContainSubstring("Dữ liệu không hợp lệ"), Not(MatchRegexp("(?i)volume|ổ đĩa"))))
		}
		Expect(b.call(http.MethodPost, servers, b.raw(map[string]any{})).status).To(Equal(http.StatusOK))
	})
	It("should reject late in the task", func() {
		b := mode("late-rejections")
		request := b.request("late")
		request.FlavorName = "2c_4g"
		task := b.create(request)
		b.Advance(latency)
		Expect(b.get(tasks + task).json()).To(Equal(map[string]any{"ready": true, "result": map[string]any{
			"action": "create_server", "progress": 100.0, "success": false, "message": "Flavor 2c_4g could not be found."}}))
		Expect(b.State().Servers).To(BeEmpty())
	})
	It("should leave success out of a task that has succeeded, and only of that", func() {
		b := mode("task-without-success", "late-rejections")
		task := b.create(b.request("good"))
		bad := b.request("bad")
		bad.RootDisk.VolumeType = ptr.To("X")
		failed := b.create(bad)
		b.Advance(latency)
		Expect(b.get(tasks + task).object()["result"]).To(And(HaveKey("id"), Not(HaveKey("success"))))
		Expect(b.get(tasks + failed).object()["result"]).To(HaveKeyWithValue("success", false))
	})
	It("should log in without a project", func() {
		b := mode("token-without-project")
		c := b.Credentials()
		Expect(b.call(http.MethodPost, "/api/token", map[string]any{"auth_method": "password", "username": c.Email, "password": c.Password}).object()).
			To(And(HaveKey("token"), HaveKey("expires_at"), HaveLen(2)))
		Expect(b.get("/api/account/user").object()["data"]).To(HaveKeyWithValue("tenant_id", c.ProjectID))
	})
	It("should leave services out, and regions", func() {
		b := mode("no-account-service", "services-without-region")
		entries := b.get("/api/auth/service").object()["services"].([]any)
		names := lo.Map(entries, func(e any, _ int) any { return e.(map[string]any)["canonical_name"] })
		Expect(names).To(And(ContainElement("cloud_server"), Not(ContainElement("bizfly_account")), Not(ContainElement("auto_scaling")),
			HaveLen(len(lo.Uniq(names)))))
		Expect(entries).To(HaveEach(HaveKeyWithValue("region", "")))
	})
	It("should answer 503 for the regions", func() {
		const regions = "/api/account/regions"
		Expect(mode().get(regions).status).To(Equal(http.StatusOK))
		Expect(mode("regions-down").get(regions).status).To(Equal(http.StatusServiceUnavailable))
	})
	It("should list interfaces without their type", func() {
		for names, typed := range map[string]bool{"": true, "interfaces-without-type": false} {
			b := mode(lo.Compact([]string{names})...)
			b.AddServer(cloud.ServerSpec{Name: "public", Wan: true})
			for _, list := range []string{"network-interfaces?detailed=true&type=LAN_WAN", "wanips"} {
				body := string(b.get("/iaas-cloud/api/" + list).body)
				Expect(body).To(ContainSubstring(`"fixed_ips"`))
				Expect(strings.Contains(body, `"type"`)).To(Equal(typed))
			}
		}
	})
	Context("of worker pools", func() {
		pool := func(b *box) (server cloud.Server, launchMetadata map[string]any) {
			GinkgoHelper()
			made := b.AddPool("workers")
			for _, s := range b.State().Servers {
				if s.ID == made.ID {
					server = s
				}
			}
			wire := b.get("/api/kubernetes-engine/_/" + b.BKE().ClusterUID).object()["worker_pools"].([]any)[0].(map[string]any)
			configuration := b.get("/api/auto-scaling/launch_configs/" + wire["launch_config_id"].(string))
			Expect(configuration.status).To(Equal(http.StatusOK))
			Expect(configuration.object()).To(HaveKeyWithValue("id", wire["launch_config_id"]))
			return server, configuration.object()["metadata"].(map[string]any)
		}
		joining := And(HaveKey("bke_cluster_id"), HaveKey("bke_cluster_token"), HaveKey("bke_join_endpoint"))

		It("should be private and like any server in the plain sandbox, with what nodes join with", func() {
			b := mode()
			server, metadata := pool(b)
			Expect(server.IPAddresses.WANV4).To(BeEmpty())
			Expect(server.IPAddresses.LAN).To(HaveLen(1))
			Expect(server.Name).To(MatchRegexp("-node-[0-9A-Za-z]{8}$"))
			Expect(server.Metadata).To(joining)
			Expect(metadata).To(joining)
			other := b.AddServer(cloud.ServerSpec{Name: "other"})
			Expect(b.ReachesPools(other.ID)).To(BeTrue())
			Expect(b.get("/api/auto-scaling/launch_configs/none").status).To(Equal(http.StatusNotFound))
		})
		It("should have a firewall of their own", func() {
			b := mode("pool-firewall")
			server, _ := pool(b)
			Expect(b.ReachesPools(server.ID)).To(BeTrue())
			Expect(b.ReachesPools(b.AddServer(cloud.ServerSpec{Name: "other"}).ID)).To(BeFalse())
		})
		It("should have a public address", func() {
			server, _ := pool(mode("public-pools"))
			Expect(server.IPAddresses.WANV4).To(HaveLen(1))
		})
		It("should be behind the control plane", func() {
			b := mode("pools-behind")
			server, metadata := pool(b)
			Expect(server.Truth.ImageID).To(Equal(cloud.StableID("worker-image", "v1.35.4")))
			Expect(metadata).To(HaveKeyWithValue("kubernetes_version", "v1.35.4"))
			cluster := b.get("/api/kubernetes-engine/_/" + b.BKE().ClusterUID).object()
			Expect(cluster["version"]).To(HaveKeyWithValue("kubernetes_version", "v1.36.0"))
		})
		It("should be in a project of others", func() {
			b := mode("pool-servers-elsewhere")
			server, metadata := pool(b)
			Expect(b.get(servers + "/" + server.ID).status).To(Equal(http.StatusNotFound))
			Expect(metadata).To(joining)
		})
		It("should lack what the mode leaves out of metadata", func() {
			server, metadata := pool(mode("pool-metadata-without-token"))
			Expect(server.Metadata).To(And(HaveKey("bke_cluster_id"), Not(HaveKey("bke_cluster_token"))))
			Expect(metadata).To(joining)
			server, metadata = pool(mode("pool-metadata-without-endpoint"))
			for _, of := range []any{server.Metadata, metadata} {
				Expect(of).To(And(HaveKey("bke_cluster_token"), Not(HaveKey("bke_join_endpoint"))))
			}
		})
	})
	It("should have NVMe disks where SSD are gone", func() {
		b := mode("nvme")
		Expect(string(b.get("/iaas-cloud/api/volume-types?category=premium&availability_zone=HN2").body)).
			To(And(ContainSubstring(`"name":"PREMIUM-NVME1","category":"premium","type":"PREMIUM NVME"`), Not(ContainSubstring("SSD"))))
	})
})
