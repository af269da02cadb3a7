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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("A server on its way through an action", func() {
	ctx := context.Background()
	var b *box
	var server *gobizfly.Server
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		server = b.launch(b.request("node-1"))
	})
	act := func(body map[string]any) answer {
		GinkgoHelper()
		return b.call(http.MethodPost, servers+"/"+server.ID+"/action", body)
	}
	live := func() cloud.Server {
		GinkgoHelper()
		return b.Servers()[0]
	}
	status := func() string { GinkgoHelper(); return live().Status }

	DescribeTable("should have the documented status until it is over", func(from string, body map[string]any, through, to string) {
		Expect(b.SetServerStatus(server.ID, from)).To(Succeed())
		Expect(act(body).status).To(Equal(http.StatusOK))
		Expect(status()).To(Equal(through))
		Expect(live().TaskState).ToNot(BeNil())
		Expect(act(map[string]any{"action": "hard_reboot"}).status).To(Equal(http.StatusConflict), "one action at a time")
		b.Advance(latency)
		Expect(status()).To(Equal(to))
		Expect(live().TaskState).To(BeNil())
	},
		Entry("start", "SHUTOFF", map[string]any{"action": "start"}, "SHUTOFF", "ACTIVE"),
		Entry("stop", "ACTIVE", map[string]any{"action": "stop"}, "ACTIVE", "SHUTOFF"),
		Entry("stop of a broken one", "ERROR", map[string]any{"action": "stop"}, "ERROR", "SHUTOFF"),
		Entry("soft reboot", "ACTIVE", map[string]any{"action": "soft_reboot"}, "REBOOT", "ACTIVE"),
		Entry("hard reboot", "ACTIVE", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
		Entry("hard reboot of one that is off", "SHUTOFF", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
		Entry("hard reboot of a broken one", "ERROR", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
		Entry("resize", "ACTIVE", map[string]any{"action": "resize", "flavor_name": "p2.4c_8g"}, "RESIZE", "ACTIVE"),
		Entry("resize of one that is off", "SHUTOFF", map[string]any{"action": "resize", "flavor_name": "p2.4c_8g"}, "RESIZE", "SHUTOFF"),
		Entry("another category", "ACTIVE", map[string]any{"action": "change_type", "new_type": "enterprise"}, "MIGRATING", "ACTIVE"),
	)

	DescribeTable("should be rejected where it makes no sense", func(from string, body map[string]any, said string) {
		Expect(b.SetServerStatus(server.ID, from)).To(Succeed())
		a := act(body)
		Expect(a.status).To(BeElementOf(http.StatusConflict, http.StatusBadRequest))
		Expect(a.object()["message"]).To(ContainSubstring(said))
		b.Advance(latency)
		Expect(status()).To(Equal(from))
	},
		Entry("soft reboot of one that is off", "SHUTOFF", map[string]any{"action": "soft_reboot"}, "vm_state stopped"),
		Entry("soft reboot of a broken one", "ERROR", map[string]any{"action": "soft_reboot"}, "vm_state error"),
		Entry("start of one that runs", "ACTIVE", map[string]any{"action": "start"}, "vm_state active"),
		Entry("stop of one that is off", "SHUTOFF", map[string]any{"action": "stop"}, "vm_state stopped"),
		Entry("the flavor that it has", "ACTIVE", map[string]any{"action": "resize", "flavor_name": "p2.2c_4g"}, "must change flavor"),
		Entry("an unknown flavor", "ACTIVE", map[string]any{"action": "resize", "flavor_name": "x"}, "could not be found"),
		Entry("the category that it has", "ACTIVE", map[string]any{"action": "change_type", "new_type": "premium"}, "new_type"),
		Entry("a field of another action", "ACTIVE", map[string]any{"action": "start", "new_name": "x"}, `unknown field "new_name"`),
	)

	It("should be verified before a resize is over, and only then have its flavor", func() {
		task, err := b.client.CloudServer.Resize(ctx, server.ID, "p2.4c_8g")
		Expect(err).ToNot(HaveOccurred())
		Expect(live()).To(And(HaveField("Status", "RESIZE"), HaveField("Flavor.Name", "p2.2c_4g")))
		b.Advance(latency*2/3 + time.Second)
		Expect(live()).To(And(HaveField("Status", "VERIFY_RESIZE"), HaveField("VMState", "resized")))
		b.Advance(latency / 3)
		Expect(live()).To(And(HaveField("Status", "ACTIVE"), HaveField("Flavor.Name", "p2.4c_8g")))
		done, err := b.client.CloudServer.GetTask(ctx, task.TaskID)
		Expect(err).ToNot(HaveOccurred())
		Expect([]any{done.Ready, done.Result.Success, done.Result.ID}).To(Equal([]any{true, true, server.ID}))
	})

	It("should move to the flavor of its size in another category", func() {
		_, err := b.client.CloudServer.ChangeCategory(ctx, server.ID, "basic")
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		Expect(live()).To(And(HaveField("Category", "basic"), HaveField("Flavor.Name", "b2.2c_4g"), HaveField("Metadata", HaveKeyWithValue("category", "basic"))))
	})

	It("should boot another image after a rebuild", func() {
		other := b.workerImage("v1.35.6")
		Expect(act(map[string]any{"action": "rebuild", "image": "unknown"}).status).To(Equal(http.StatusBadRequest))
		Expect(act(map[string]any{"action": "rebuild", "image": other}).object()).To(HaveKey("task_id"))
		Expect(status()).To(Equal("REBUILD"))
		b.Advance(latency)
		Expect(live()).To(And(HaveField("Status", "ACTIVE"), HaveField("Truth.ImageID", other)))
	})

	It("should get public addresses that the project has", func() {
		ip, err := b.client.CloudServer.PublicNetworkInterfaces().Create(ctx, &gobizfly.CreatePublicNetworkInterfacePayload{Name: "spare", AvailabilityZone: "HN1"})
		Expect(err).ToNot(HaveOccurred())
		Expect(b.client.CloudServer.AttachPublicNetworkInterface(ctx, server.ID, []string{ip.ID})).To(Succeed())
		Expect(live().IPAddresses.WANV4).To(HaveExactElements(HaveField("Addr", ip.IPAddress)))
		Expect(act(map[string]any{"action": "attach_wan_ips", "wan_ips": []string{ip.ID}}).status).To(Equal(http.StatusConflict))
		Expect(act(map[string]any{"action": "attach_wan_ips", "wan_ips": []string{"x"}}).status).To(Equal(http.StatusBadRequest))
	})

	It("should boot anew when it is back", func() {
		before := live().Truth.ActiveAt
		Expect(act(map[string]any{"action": "soft_reboot"}).status).To(Equal(http.StatusOK))
		Expect(live().Truth.ActiveAt).To(BeZero(), "the guest is down")
		b.Advance(latency)
		Expect(live().Truth.ActiveAt).To(Equal(before.Add(latency)))
	})

	It("should end where another action puts it meanwhile", func() {
		Expect(act(map[string]any{"action": "stop"}).status).To(Equal(http.StatusOK))
		Expect(b.SetServerStatus(server.ID, "ERROR")).To(Succeed())
		b.Advance(latency)
		Expect(status()).To(Equal("ERROR"))
	})

	DescribeTable("should meet with faults", func(fault cloud.Fault, after time.Duration, want string) {
		fault.Method, fault.Path = http.MethodPost, "/servers/*/action"
		b.AddFaults(1, fault)
		Expect(act(map[string]any{"action": "hard_reboot"}).status).To(Equal(http.StatusOK))
		b.Advance(after)
		Expect(status()).To(Equal(want))
	},
		Entry("that never end it", cloud.Fault{Effect: cloud.EffectStuck}, time.Hour, "HARD_REBOOT"),
		Entry("that make it slow", cloud.Fault{Effect: cloud.EffectSlowTask, Delay: time.Hour}, 59*time.Minute, "HARD_REBOOT"),
		Entry("that break the server", cloud.Fault{Effect: cloud.EffectErrorServer}, latency, "ERROR"),
		Entry("that break the server later", cloud.Fault{Effect: cloud.EffectLateError, Delay: time.Minute}, latency+time.Minute, "ERROR"),
	)
})
