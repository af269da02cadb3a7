// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Stock", func() {
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	post := func(changes map[string]any) answer { return b.call(http.MethodPost, servers, b.raw(changes)) }

	It("should run out and come back with a delete", func() {
		b.SetStock("p2.2c_4g", "HN1", "on_demand", 1)
		server := b.launch(b.request("node-1"))
		rejected := post(nil)
		Expect(rejected.status).To(Equal(409))
		Expect(rejected.object()["message"]).To(Equal("No valid host was found. There are not enough hosts available."))
		Expect(post(map[string]any{"availability_zone": "HN2"}).status).To(Equal(200))
		Expect(post(map[string]any{"billing_plan": "saving_plan"}).status).To(Equal(200))
		_, err := b.client.CloudServer.Delete(context.Background(), server.ID, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(post(nil).status).To(Equal(409))
		b.Advance(latency)
		Expect(post(nil).status).To(Equal(200))
	})
	It("should be pooled by wildcards, of which the most specific counts", func() {
		b.SetStock("*", "HN1", "", 1)
		Expect(post(nil).status).To(Equal(200))
		Expect(post(map[string]any{"flavor": "p2.4c_8g"}).status).To(Equal(409))
		b.SetStock("p2.4c_8g", "HN1", "*", -1)
		Expect(post(map[string]any{"flavor": "p2.4c_8g"}).status).To(Equal(200))
		b.SetStock("*", "HN1", "*", 5)
		Expect(post(nil).status).To(Equal(200))
	})
	It("should fail in the task where configured, giving nothing back that it did not take", func() {
		b := newBox(cloud.Options{AsyncRejections: true})
		b.SetStock("*", "*", "*", 0)
		task := b.create(b.request("node-1"))
		b.Advance(latency)
		Expect(b.get(tasks + task).object()["result"]).To(And(HaveKeyWithValue("success", false), HaveKeyWithValue("status", "ERROR"),
			HaveKeyWithValue("message", ContainSubstring("No valid host"))))
		_, err := b.client.CloudServer.Delete(context.Background(), b.State().Servers[0].ID, nil)
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		second := b.create(b.request("node-2"))
		b.Advance(latency)
		Expect(b.get(tasks + second).object()["result"]).To(HaveKeyWithValue("success", false))
	})
})

var _ = Describe("Offerings", func() {
	It("should be the listed flavors by zone and plan, with prices and what requests have met", func() {
		prices := cloud.Prices{Compute: map[string]cloud.ComputePrice{"": {VCPU: 4800, GiB: 1200}}, GPU: map[string]float64{"": 48_000}}
		b := newBox(cloud.Options{Prices: prices})
		offering := func(flavor, zone, plan string) *cloud.Offering {
			for _, o := range b.Offerings(plan) {
				if o.Flavor == flavor && o.Zone == zone {
					return &o
				}
			}
			return nil
		}
		Expect(offering("p2.2c_4g", "HN1", "on_demand")).To(HaveValue(Equal(
			cloud.Offering{Flavor: "p2.2c_4g", Zone: "HN1", VCPUs: 2, VNDPerHour: 1.5 * (2*4800 + 4*1200) / 720})))
		Expect(offering("p2.8c_32g_1xa30", "HN1", "on_demand").VNDPerHour).To(BeNumerically("~", 1.5*(8*4800+32*1200+48_000)/720))
		Expect(offering("p2.8c_32g_1xa30", "HN2", "on_demand")).NotTo(BeNil(), "no list says that only HN1 has GPUs")
		Expect(offering("d2.64c_256g", "HN1", "on_demand")).To(BeNil(), "it is for saving plans only")
		Expect(offering("1c_1g_vps", "HN1", "on_demand")).To(BeNil(), "it is another product")
		Expect(offering("d2.64c_256g", "HN1", "saving_plan")).NotTo(BeNil())

		b.SetStock("p2.2c_4g", "HN1", "*", 0)
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(409))
		Expect(offering("p2.2c_4g", "HN1", "on_demand")).To(HaveValue(HaveField("Rejected", 1)))
		Expect(offering("p2.2c_4g", "HN2", "on_demand")).To(HaveValue(HaveField("Rejected", 0)))
	})
})

var _ = Describe("Quotas", func() {
	DescribeTable("should be worded as the compute service does",
		func(quota cloud.Quota, text string) {
			b := newBox(cloud.Options{})
			b.SetQuota(quota)
			Expect(b.call(http.MethodPost, servers, b.raw(map[string]any{"is_created_wan": true})).status).To(Equal(200))
			rejected := b.call(http.MethodPost, servers, b.raw(map[string]any{"is_created_wan": true}))
			Expect(rejected.status).To(Equal(403))
			Expect(rejected.object()["message"]).To(Equal(text))
		},
		Entry("instances", cloud.Quota{Instances: ptr.To(1)}, "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"),
		Entry("cores", cloud.Quota{VCPUs: ptr.To(3)}, "Quota exceeded for cores: Requested 2, but already used 2 of 3 cores"),
		Entry("memory", cloud.Quota{RAM: ptr.To(4096)}, "Quota exceeded for ram: Requested 4096, but already used 4096 of 4096 ram"),
		Entry("volumes", cloud.Quota{Volumes: ptr.To(1)}, "Quota exceeded for volumes: Requested 1, but already used 1 of 1 volumes"),
		Entry("gigabytes", cloud.Quota{Gigabytes: ptr.To(79)}, "Quota exceeded for gigabytes: Requested 40, but already used 40 of 79 gigabytes"),
		Entry("addresses", cloud.Quota{WanIPs: ptr.To(1)}, "Quota exceeded for floating_ips: Requested 1, but already used 1 of 1 floating_ips"),
		Entry("two at once", cloud.Quota{VCPUs: ptr.To(2), Instances: ptr.To(1)},
			"Quota exceeded for cores, instances: Requested 2, 1, but already used 2, 1 of 2, 1 cores, instances"),
	)
	It("should stop all servers of a suspended account, and let none start before it is paid", func() {
		b := newBox(cloud.Options{})
		ids := []string{b.launch(b.request("node-1")).ID, b.launch(b.request("node-2")).ID}
		act := func(id, action string) int {
			return b.call(http.MethodPost, servers+"/"+id+"/action", map[string]any{"action": action}).status
		}
		b.SetQuota(cloud.Quota{Suspended: true})
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(403))
		for _, id := range ids {
			Expect(b.call(http.MethodGet, servers+"/"+id, nil).object()["status"]).To(Equal("SHUTOFF"))
			for _, action := range []string{"start", "hard_reboot"} {
				Expect(act(id, action)).To(Equal(403), action)
			}
		}
		b.SetQuota(cloud.Quota{})
		Expect(b.call(http.MethodGet, servers+"/"+ids[0], nil).object()["status"]).To(Equal("SHUTOFF"))
		Expect(act(ids[0], "start")).To(Equal(200))
	})
	It("should count servers in ERROR, and none where it is nothing", func() {
		b := newBox(cloud.Options{Vietnamese: true})
		server := b.launch(b.request("node-1"))
		Expect(b.SetServerStatus(server.ID, "ERROR")).To(Succeed())
		b.SetQuota(cloud.Quota{Instances: ptr.To(1)})
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).object()["message"]).To(ContainSubstring("Vượt quá hạn mức"))
		b.SetQuota(cloud.Quota{})
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(200))
		b.SetQuota(cloud.Quota{Instances: ptr.To(0)})
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(403))
	})
})

var _ = Describe("Addresses", func() {
	It("should run out in a small network and come back", func() {
		b := newBox(cloud.Options{})
		tiny, _ := lo.Find(b.Options().Catalog.VPCs["HN"], func(v cloud.VPC) bool { return v.Name == "tiny" })
		post := func() answer {
			return b.call(http.MethodPost, servers, b.raw(map[string]any{"vpc_network_ids": []string{tiny.ID}}))
		}
		for range 3 {
			Expect(post().status).To(Equal(200))
		}
		rejected := post()
		Expect(rejected.status).To(Equal(409))
		Expect(rejected.object()["message"]).To(ContainSubstring("No more IP addresses available on network " + tiny.ID))
		b.Advance(latency)
		Expect(b.RemoveServer(b.State().Servers[0].ID)).To(Succeed())
		Expect(post().status).To(Equal(200))
	})
})

var _ = Describe("The ground truth", func() {
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	It("should log requests by route, without bodies, and not itself", func() {
		b.ResetRequests()
		b.get(servers + "/some-id")
		b.get("/nowhere")
		list, isList := b.get("/_sandbox/requests").json().([]any)
		Expect(isList).To(BeTrue())
		Expect(list).To(HaveLen(2))
		Expect(list[0]).To(And(HaveKeyWithValue("method", "GET"), HaveKeyWithValue("path", servers+"/some-id"), HaveKeyWithValue("status", 404.0),
			HaveKeyWithValue("route", servers+"/{id}"), HaveKeyWithValue("time", "2026-03-04T05:06:07Z")))
		Expect(list[0]).ToNot(Or(HaveKey("Body"), HaveKey("body"), HaveKey("Header")))
		Expect(b.get("/_sandbox/requests?summary=1").object()).To(Equal(map[string]any{"GET " + servers + "/{id}": 1.0, "GET unknown": 1.0}))
	})
	DescribeTable("should be changed over HTTP",
		func(method, path, body string, status int, check func()) {
			Expect(b.call(method, "/_sandbox/"+path, body).status).To(Equal(status))
			if check != nil {
				check()
			}
		},
		Entry("stock", "PUT", "stock", `{"flavor":"*","zone":"HN1","plan":"on_demand","available":0}`, 204, func() {
			Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(409))
		}),
		Entry("stock without a number", "PUT", "stock", `{"zone":"HN1"}`, 400, nil),
		Entry("quota", "PUT", "quota", `{"instances":0}`, 204, func() {
			Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(403))
		}),
		Entry("quota of something unknown", "PUT", "quota", `{"cores":0}`, 400, nil),
		Entry("faults", "POST", "faults", `{"seed":3,"rules":[{"method":"GET","path":"/servers","effect":"throttle","retry_after":"1500ms","count":1}]}`, 204,
			func() {
				Expect(b.get(servers).header.Get("Retry-After")).To(Equal("2"))
				Expect(b.get(servers).status).To(Equal(200))
			}),
		Entry("faults with seconds as a number", "POST", "faults", `{"rules":[{"path":"/servers","effect":"throttle","retry_after":4}]}`, 204, func() {
			Expect(b.get(servers).header.Get("Retry-After")).To(Equal("4"))
			Expect(b.call(http.MethodDelete, "/_sandbox/faults", nil).status).To(Equal(204))
			Expect(b.get(servers).status).To(Equal(200))
		}),
		Entry("unknown effects", "POST", "faults", `{"rules":[{"effect":"nonsense"}]}`, 400, nil),
		Entry("no effect", "POST", "faults", `{"rules":[{"method":"GET"}]}`, 400, nil),
		Entry("unknown fields", "POST", "faults", `{"rules":[{"effect":"reset","chance":1}]}`, 400, nil),
		Entry("tokens", "POST", "tokens/expire", ``, 204, func() { Expect(b.get(servers).status).To(Equal(401)) }),
	)
	DescribeTable("should reject to add",
		func(path, body string, status int) {
			Expect(b.call(http.MethodPost, "/_sandbox/"+path, body).status).To(Equal(status))
		},
		Entry("a server of an unknown flavor", "servers", `{"name":"x","flavor":"huge"}`, 400),
		Entry("a server with something unknown", "servers", `{"name":"x","colour":"red"}`, 400),
		Entry("a volume to a server that is not there", "volumes/x/attach", `{"server_id":"y"}`, 404),
	)
	It("should count what was meant for another host", func() {
		proxy, err := url.Parse(b.URL)
		Expect(err).ToNot(HaveOccurred())
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
		for _, target := range []string{"http://manage.invalid/api/servers", "https://manage.invalid/api/servers"} {
			request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, http.NoBody)
			Expect(err).ToNot(HaveOccurred())
			if response, err := client.Do(request); err == nil {
				Expect(response.StatusCode).To(Equal(403))
				Expect(response.Body.Close()).To(Succeed())
			}
		}
		Expect(b.State().ForeignRequests).To(Equal(2))
	})
})

var _ = Describe("Seeding", func() {
	It("should make the same ids of the same seed", func() {
		ids := func(seed int64) []string {
			b := newBox(cloud.Options{Seed: seed})
			b.create(b.request("node-1"))
			return []string{b.State().Servers[0].ID, b.State().Tasks[0].ID}
		}
		Expect(ids(5)).To(Equal(ids(5)))
		Expect(ids(5)).ToNot(Equal(ids(6)))
	})
})
