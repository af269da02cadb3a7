// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("A server on its way through an action", func() {
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
		Entry("hard reboot", "ACTIVE", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
		Entry("hard reboot of one that is off", "SHUTOFF", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
		Entry("hard reboot of a broken one", "ERROR", map[string]any{"action": "hard_reboot"}, "HARD_REBOOT", "ACTIVE"),
	)
	DescribeTable("should be rejected where it makes no sense", func(from string, body map[string]any, said string) {
		Expect(b.SetServerStatus(server.ID, from)).To(Succeed())
		a := act(body)
		Expect(a.status).To(BeElementOf(http.StatusConflict, http.StatusBadRequest))
		Expect(a.object()["message"]).To(ContainSubstring(said))
		b.Advance(latency)
		Expect(status()).To(Equal(from))
	},
		Entry("start of one that runs", "ACTIVE", map[string]any{"action": "start"}, "vm_state active"),
		Entry("stop of one that is off", "SHUTOFF", map[string]any{"action": "stop"}, "vm_state stopped"),
		Entry("a field of another action", "ACTIVE", map[string]any{"action": "start", "new_name": "x"}, `unknown field "new_name"`),
	)
	It("should boot anew when it is back", func() {
		before := live().Truth.ActiveAt
		Expect(act(map[string]any{"action": "hard_reboot"}).object()).To(HaveKeyWithValue("message", "Hard reboot server thành công"))
		Expect(live().Truth.ActiveAt).To(BeZero(), "the guest is down")
		b.Advance(latency)
		Expect(live().Truth.ActiveAt).To(Equal(before.Add(latency)))
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
