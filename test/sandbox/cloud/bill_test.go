// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The bill", func() {
	var b *box
	var server *gobizfly.Server
	// Monthly prices that make the sums short: 2 vCPU and 4 GiB are 7,200 a month, 10 an hour; 40 GiB of SSD 7,200, too.
	prices := cloud.Prices{
		Compute: map[string]cloud.ComputePrice{"premium": {VCPU: 1600, GiB: 1000}, "": {VCPU: 16000, GiB: 10000}},
		GPU:     map[string]float64{"": 720_000, "T4": 72_000}, DiskGiB: map[string]float64{"SSD": 180, "HDD": 90},
	}
	BeforeEach(func() {
		b = newBox(cloud.Options{Prices: prices, Latency: time.Nanosecond})
		server = b.launch(b.request("node-1"))
	})
	// cost is what an hour from now costs.
	cost := func() float64 {
		GinkgoHelper()
		before := b.Bill().VND
		b.Advance(time.Hour)
		return b.Bill().VND - before
	}
	act := func(body map[string]any) {
		GinkgoHelper()
		Expect(b.call(http.MethodPost, servers+"/"+server.ID+"/action", body).status).To(Equal(http.StatusOK))
		b.Advance(time.Second)
	}

	It("should charge a running server and its disk by the published formula", func() {
		Expect(cost()).To(BeNumerically("~", 10*1.5+10*1.3))
		Expect(b.Bill().Hours).To(HaveKeyWithValue("running", BeNumerically("~", 1, 0.001)))
		Expect(b.Bill().VNDPerHour).To(BeNumerically("~", 28))
	})
	It("should charge a stopped server 0.3 times the subscription, and its disk as before", func() {
		act(map[string]any{"action": "stop"})
		Expect(cost()).To(BeNumerically("~", 10*0.3+10*1.3))
		act(map[string]any{"action": "start"})
		Expect(cost()).To(BeNumerically("~", 28))
	})
	It("should charge a subscription by the hours that it exists, running or not", func() {
		Expect(b.ApplyServerEdit(server.ID, cloud.ServerEdit{BillingPlan: ptr.To(cloud.PlanSaving)})).To(Succeed())
		Expect(cost()).To(BeNumerically("~", 10+13))
		act(map[string]any{"action": "stop"})
		Expect(cost()).To(BeNumerically("~", 10+13))
	})
	It("should charge another flavor from the moment of the change", func() {
		Expect(b.ApplyServerEdit(server.ID, cloud.ServerEdit{Flavor: ptr.To("p2.4c_8g")})).To(Succeed())
		Expect(cost()).To(BeNumerically("~", 20*1.5+13))
	})
	It("should charge a broken server as a running one", func() {
		Expect(b.SetServerStatus(server.ID, "ERROR")).To(Succeed())
		Expect(cost()).To(BeNumerically("~", 28))
	})
	It("should end with the server, and go on for a disk that is left", func() {
		Expect(b.RemoveServer(server.ID)).To(Succeed())
		Expect(cost()).To(BeNumerically("~", 13), "the dashboard keeps disks")
		for _, v := range b.State().Volumes {
			Expect(b.call(http.MethodDelete, "/iaas-cloud/api/volumes/"+v.ID, nil).status).To(Equal(http.StatusNoContent))
		}
		b.Advance(time.Second)
		Expect(cost()).To(BeZero())
		Expect(b.Bill().VNDPerHour).To(BeZero())
	})
	It("should have what was changed from outside", func() {
		Expect(b.EditServer(server.ID, func(s *cloud.Server) { s.Category = "unheard-of" })).To(BeTrue())
		Expect(cost()).To(BeNumerically("~", 100*1.5+13), "a category without a price has the highest")
	})
	It("should leave out what another project has", func() {
		b.AddServer(cloud.ServerSpec{Name: "theirs", Project: "another"})
		Expect(cost()).To(BeNumerically("~", 28))
	})
	It("should list each time in which nothing changed, at /_sandbox/bill", func() {
		b.Advance(30 * time.Minute)
		act(map[string]any{"action": "stop"})
		b.Advance(30 * time.Minute)
		var bill cloud.Bill
		Expect(json.Unmarshal(b.get("/_sandbox/bill").body, &bill)).To(Succeed())
		Expect(bill.Lines).To(HaveExactElements(
			And(HaveField("Name", "node-1"), HaveField("State", "running"), HaveField("Open", false), HaveField("VND", BeNumerically("~", 7.5, 0.01))),
			And(HaveField("State", "disk"), HaveField("Open", true), HaveField("VND", BeNumerically("~", 13, 0.01))),
			And(HaveField("Name", "node-1"), HaveField("State", "stopped"), HaveField("Open", true), HaveField("VND", BeNumerically("~", 1.5, 0.01))),
		))
	})
	It("should fit the one published price by default", func() {
		Expect(b.RemoveServer(server.ID)).To(Succeed())
		b = newBox(cloud.Options{})
		b.AddServer(cloud.ServerSpec{Name: "small", Flavor: "p2.2c_4g"})
		// 5,775 VND per hour buy 6 vCPU and 24 GiB, which is as much as 14 vCPU where a GiB costs a third of one.
		Expect(b.Bill().Lines).To(ContainElement(And(HaveField("VCPUs", 2), HaveField("VNDPerHour", BeNumerically("~", 5775*(2+4.0/3)/14)))))
	})
})
