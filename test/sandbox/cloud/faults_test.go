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

var _ = Describe("Faults of the transport", func() {
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	It("should answer with a status, a message and a time to wait, without doing anything", func() {
		b.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectStatus, Status: 503, Code: "BUSY", Message: "later",
			RetryAfter: 2500 * time.Millisecond})
		a := b.call(http.MethodPost, servers, b.raw(nil))
		Expect(a.status).To(Equal(503))
		Expect(a.header.Get("Retry-After")).To(Equal("3"))
		Expect(a.object()).To(Equal(map[string]any{"code": "BUSY", "message": "later"}))
		Expect(b.State().Servers).To(BeEmpty())
	})
	DescribeTable("should give other answers",
		func(fault cloud.Fault, status int, contentType, body string) {
			fault.Path = "/servers"
			b.AddFaults(1, fault)
			a := b.get(servers)
			Expect(a.status).To(Equal(status))
			Expect(a.header.Get("Content-Type")).To(HavePrefix(contentType))
			Expect(string(a.body)).To(ContainSubstring(body))
		},
		Entry("401", cloud.Fault{Effect: cloud.EffectUnauthorized}, 401, "application/json", "authentication"),
		Entry("429", cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: time.Second}, 429, "application/json", "Too many"),
		Entry("a page", cloud.Fault{Effect: cloud.EffectHTML}, 200, "text/html", "<svg"),
		Entry("a page with a status", cloud.Fault{Effect: cloud.EffectHTML, Status: 502}, 502, "text/html", "<svg"),
		Entry("plain text", cloud.Fault{Effect: cloud.EffectStatus, Status: 500, Body: "oops"}, 500, "", "oops"),
		Entry("nothing", cloud.Fault{Effect: cloud.EffectEmpty}, 200, "", ""),
		Entry("a body of its own", cloud.Fault{Effect: cloud.EffectBody, Body: `{"x":1}`}, 200, "application/json", `{"x":1}`),
	)
	It("should lose the answer after the work is done, or before it is begun", func() {
		b.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectLostResponse, Count: 1})
		_, err := b.send(http.MethodPost, servers, b.raw(nil))
		Expect(err).To(HaveOccurred())
		Expect(b.State().Servers).To(HaveLen(1))
		b.ClearFaults()
		b.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectReset, Count: 1})
		_, err = b.send(http.MethodPost, servers, b.raw(nil))
		Expect(err).To(HaveOccurred())
		Expect(b.State().Servers).To(HaveLen(1))
		Expect(lo.LastOrEmpty(b.Requests()).Status).To(BeZero())
	})
	It("should do the work and then answer with an error, with commit", func() {
		b.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectStatus, Status: 504, Commit: true})
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(504))
		Expect(b.State().Servers).To(HaveLen(1))
	})
	It("should cut JSON in the middle", func() {
		b.AddFaults(1, cloud.Fault{Path: "/flavors", Effect: cloud.EffectTruncated})
		_, err := b.client.CloudServer.Flavors().List(context.Background())
		Expect(err).To(MatchError(ContainSubstring("unexpected EOF")))
	})
	It("should put a number into metadata, which the real client cannot read", func() {
		b.launch(b.request("node-1"))
		b.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectNumericMetadata})
		_, err := b.client.CloudServer.List(context.Background(), nil)
		Expect(err).To(MatchError(ContainSubstring("cannot unmarshal number")))
	})
	It("should be slow by the clock, and stop when the client does", func() {
		b.AddFaults(1, cloud.Fault{Path: "/servers", Effect: cloud.EffectDelay, Delay: time.Minute})
		done := make(chan int)
		go func() {
			defer GinkgoRecover()
			done <- b.get(servers).status
		}()
		Eventually(b.clock.HasWaiters).Should(BeTrue())
		Expect(done).ToNot(Receive())
		b.clock.Step(time.Minute)
		Eventually(done).Should(Receive(Equal(200)))
	})
	It("should show lists as they were", func() {
		gone, kept := b.launch(b.request("gone")), b.launch(b.request("kept"))
		_, err := b.client.CloudServer.Delete(context.Background(), gone.ID, nil)
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		b.Advance(2 * time.Second)
		b.launch(b.request("new"))
		names := func() []string {
			list, err := b.client.CloudServer.List(context.Background(), nil)
			Expect(err).ToNot(HaveOccurred())
			return lo.Map(list, func(s *gobizfly.Server, _ int) string { return s.Name + " " + s.Status })
		}
		Expect(names()).To(Equal([]string{"kept ACTIVE", "new ACTIVE"}))
		b.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers*", Effect: cloud.EffectStale, Delay: latency + 3*time.Second})
		Expect(names()).To(Equal([]string{"gone ACTIVE", "kept ACTIVE"}))
		b.ClearFaults()
		b.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers/*", Effect: cloud.EffectStale, Delay: latency + 3*time.Second})
		Expect(b.get(servers + "/" + gone.ID).status).To(Equal(200))
		Expect(b.get(servers + "/" + kept.ID).status).To(Equal(200))
		b.ClearFaults()
		b.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectStale, Delay: latency / 2})
		Expect(names()).To(Equal([]string{"kept ACTIVE", "new BUILD"}))
	})
	It("should fire count times, after skip requests, at the path", func() {
		b.AddFaults(1, cloud.Fault{Path: "/servers", Effect: cloud.EffectUnauthorized, Count: 2, Skip: 1})
		statuses := func(path string) (got []int) {
			for range 4 {
				got = append(got, b.get(path).status)
			}
			return got
		}
		Expect(statuses("/iaas-cloud/api/flavors")).To(Equal([]int{200, 200, 200, 200}))
		Expect(statuses(servers)).To(Equal([]int{200, 401, 401, 200}))
		Expect(b.FaultsFired()).To(Equal([]int{2}))
		b.ClearFaults()
		Expect(statuses(servers)).To(HaveEach(200))
	})
	It("should meet only requests with the text in their body", func() {
		b.AddFaults(1, cloud.Fault{Method: "POST", Contains: `"HN2"`, Effect: cloud.EffectStatus, Status: 500})
		Expect(b.call(http.MethodPost, servers, b.raw(map[string]any{"availability_zone": "HN2"})).status).To(Equal(500))
		Expect(b.call(http.MethodPost, servers, b.raw(nil)).status).To(Equal(200))
	})
	It("should leave chance to the seed alone", func() {
		fates := func(seed int64) (got []int) {
			b.ClearFaults()
			b.AddFaults(seed, cloud.Fault{Path: "/servers", Effect: cloud.EffectUnauthorized, Probability: 0.5})
			for range 64 {
				got = append(got, b.get(servers).status)
			}
			return got
		}
		first := fates(7)
		Expect(fates(7)).To(Equal(first))
		Expect(fates(8)).ToNot(Equal(first))
		Expect(lo.Count(first, 401)).To(BeNumerically("~", 32, 16))
	})
	It("should reject rules that make no sense", func() {
		Expect(func() { b.AddFaults(1, cloud.Fault{Effect: "nonsense"}) }).To(Panic())
		Expect(func() { b.AddFaults(1, cloud.Fault{Effect: cloud.EffectReset, Probability: 2}) }).To(Panic())
	})
})

var _ = Describe("Faults of a build", func() {
	var b *box
	ctx := context.Background()
	BeforeEach(func() { b = newBox(cloud.Options{}) })

	// build launches a server under the fault and lets its time pass.
	build := func(fault cloud.Fault) (answer, cloud.State) {
		GinkgoHelper()
		fault.Method, fault.Path = "POST", "/servers"
		b.AddFaults(1, fault)
		task := b.create(b.request("node-1"))
		b.Advance(latency)
		return b.get(tasks + task), b.State()
	}

	It("should leave a server in ERROR and a task without success", func() {
		task, state := build(cloud.Fault{Effect: cloud.EffectErrorServer, Message: "No valid host was found."})
		result := task.object()["result"]
		Expect(task.object()).To(HaveKeyWithValue("ready", true))
		Expect(result).To(And(HaveKeyWithValue("success", false), HaveKeyWithValue("message", "No valid host was found."),
			HaveKeyWithValue("status", "ERROR"), HaveKeyWithValue("id", state.Servers[0].ID), HaveKeyWithValue("action", "create_server")))
		Expect(state.Servers[0].Fault.Message).To(Equal("No valid host was found."))
		Expect(state.Volumes).To(HaveLen(1))
		_, err := b.client.CloudServer.Delete(ctx, state.Servers[0].ID, []string{state.Volumes[0].ID})
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		Expect(b.State().Volumes).To(BeEmpty())
	})
	It("should fail without a server", func() {
		task, state := build(cloud.Fault{Effect: cloud.EffectTaskFailed, Message: "no"})
		Expect(task.object()["result"]).To(Equal(map[string]any{"action": "create_server", "progress": 100.0, "success": false, "message": "no"}))
		Expect(state.Servers).To(BeEmpty())
		Expect(state.Volumes).To(BeEmpty())
		Expect(state.NetworkInterfaces).To(BeEmpty())
	})
	It("should fail without a server and leave its root disk", func() {
		_, state := build(cloud.Fault{Effect: cloud.EffectTaskFailed, Orphan: true})
		Expect(state.Servers).To(BeEmpty())
		Expect(state.Volumes).To(HaveLen(1))
		Expect(state.Volumes[0].Name).To(Equal("node-1_rootdisk"))
		Expect(state.Volumes[0].Status).To(Equal("available"))
	})
	It("should succeed and break later", func() {
		task, state := build(cloud.Fault{Effect: cloud.EffectLateError, Delay: time.Minute})
		Expect(task.object()["result"]).To(HaveKeyWithValue("success", true))
		Expect(state.Servers[0].Status).To(Equal("ACTIVE"))
		b.Advance(time.Minute)
		Expect(b.State().Servers[0].Status).To(Equal("ERROR"))
	})
	It("should never end", func() {
		task, _ := build(cloud.Fault{Effect: cloud.EffectStuck})
		Expect(task.object()).To(HaveKeyWithValue("ready", false))
		b.Advance(time.Hour)
		Expect(b.State().Servers[0].Status).To(Equal("BUILD"))
	})
	It("should take longer", func() {
		task, _ := build(cloud.Fault{Effect: cloud.EffectSlowTask, Delay: 2 * latency})
		Expect(task.object()["result"]).To(HaveKeyWithValue("progress", 50.0))
		b.Advance(latency)
		Expect(b.State().Servers[0].Status).To(Equal("ACTIVE"))
	})
	It("should hide the task though the server is made", func() {
		task, state := build(cloud.Fault{Effect: cloud.EffectTask404})
		Expect(task.status).To(Equal(404))
		Expect(state.Servers[0].Status).To(Equal("ACTIVE"))
	})
	It("should make the result text, or null, neither of which the real client reads", func() {
		text, _ := build(cloud.Fault{Effect: cloud.EffectTaskString, Count: 1})
		Expect(text.object()["result"]).To(BeAssignableToTypeOf(""))
		_, err := b.client.CloudServer.GetTask(ctx, b.State().Tasks[0].ID)
		Expect(err).To(MatchError(ContainSubstring("cannot unmarshal string")))
		b.ClearFaults()
		null, _ := build(cloud.Fault{Effect: cloud.EffectTaskNull})
		Expect(null.object()).To(Equal(map[string]any{"ready": true, "result": nil}))
		done, err := b.client.CloudServer.GetTask(ctx, b.State().Tasks[1].ID)
		Expect(err).ToNot(HaveOccurred())
		Expect(done.Result.Success).To(BeFalse())
	})
	It("should distort tasks by their own route as well", func() {
		task := b.create(b.request("node-1"))
		b.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectTask404, Count: 1})
		Expect(b.get(tasks + task).status).To(Equal(404))
		Expect(b.get(tasks + task).status).To(Equal(200))
	})
	It("should answer with no task id though the server is made", func() {
		b.AddFaults(1, cloud.Fault{Effect: cloud.EffectEmptyTask})
		created, err := b.client.CloudServer.Create(ctx, b.request("node-1"))
		Expect(err).ToNot(HaveOccurred())
		Expect(created.Task).To(BeEmpty())
		Expect(b.State().Servers).To(HaveLen(1))
	})
	It("should keep the guest from joining", func() {
		_, state := build(cloud.Fault{Effect: cloud.EffectNoJoin})
		Expect(state.Servers[0].Truth.NoJoin).To(BeTrue())
	})
	It("should fail to delete and leave the server in ERROR", func() {
		server := b.launch(b.request("node-1"))
		b.AddFaults(1, cloud.Fault{Method: "DELETE", Path: "/servers/*", Effect: cloud.EffectTaskFailed, Count: 1})
		for range 2 {
			_, err := b.client.CloudServer.Delete(ctx, server.ID, nil)
			Expect(err).ToNot(HaveOccurred())
			b.Advance(latency)
		}
		Expect(b.State().Servers).To(BeEmpty())
		Expect(lo.Map(b.State().Tasks, func(t cloud.Task, _ int) bool { return t.Success })).To(Equal([]bool{true, false, true}))
	})
	DescribeTable("should reject an incomplete rule",
		func(effect cloud.Effect, status int, english, vietnamese string) {
			b.AddFaults(1, cloud.Fault{Effect: effect, Path: "/servers"})
			a := b.call(http.MethodPost, servers, b.raw(nil))
			Expect(a.status).To(Equal(status))
			Expect(a.object()["message"]).To(ContainSubstring(english))
			Expect(b.State().Servers).To(BeEmpty())
			local := newBox(cloud.Options{Vietnamese: true})
			local.AddFaults(1, cloud.Fault{Effect: effect, Path: "/servers", Async: true})
			task := local.create(local.request("node-1"))
			local.Advance(latency)
			Expect(local.get(tasks + task).object()["result"]).To(And(HaveKeyWithValue("success", false), HaveKeyWithValue("message", ContainSubstring(vietnamese))))
			Expect(local.State().Servers[0].Status).To(Equal("ERROR"))
		},
		Entry("capacity", cloud.EffectNoCapacity, 409, "No valid host was found", "Không đủ tài nguyên"),
		Entry("addresses", cloud.EffectNoAddress, 409, "No more IP addresses", "Không đủ địa chỉ IP"),
		Entry("quota", cloud.EffectQuota, 403, "Quota exceeded", "Vượt quá hạn mức"),
		Entry("money", cloud.EffectBalance, 402, "balance", "Số dư tài khoản"),
	)
})
