// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Answers that make no sense", func() {
	DescribeTable("should be typed errors to every read",
		func(ctx SpecContext, body string) {
			client := clientFor(newStub(always(200, body)))
			for name, call := range everyCall() {
				if !strings.HasPrefix(name, "List") && !strings.HasPrefix(name, "Get") {
					continue
				}
				if name == "ListRegions" && body == `{}` {
					continue
				}
				err := call(ctx, client)
				Expect(err).To(HaveOccurred(), name)
				Expect(bizfly.IsOutage(err)).To(BeTrue(), "%s: %v", name, err)
				Expect(typed(err)).To(And(HaveField("Operation", name), HaveField("Status", 200), HaveField("Ambiguous", false)))
			}
		},
		Entry("empty", ""), Entry("null", "null"), Entry("a string", `"x"`), Entry("a number", "1"), Entry("truncated array", `[{"id":"a"`),
		Entry("truncated object", `{"ready":tr`), Entry("a page", "<html></html>"), Entry("plain text", "ok"), Entry("trailing garbage", `[] x`),
		Entry("an object", `{}`),
		Entry("null elements", `[null]`), Entry("elements that are strings", `["a"]`), Entry("elements of the wrong type", `[{"id":1}]`),
		Entry("null in its fields", `{"server_types":null,"volume_types":null,"os_images":null,"images":null,"controller_versions":null,"HN":null}`),
		Entry("null elements in its fields", `{"server_types":[null],"volume_types":[null],"os_images":[null],"images":[null],"controller_versions":[null],"HN":1}`),
		Entry("strings where arrays belong", `{"server_types":"","volume_types":"","os_images":"","images":"","controller_versions":"","HN":""}`),
		Entry("deep nesting", strings.Repeat("[", 20000)),
	)
	DescribeTable("should be one line of at most 512 characters in what is reported of them", func(ctx SpecContext, said, reported string) {
		body := lo.Must(json.Marshal(map[string]string{"message": said}))
		_, err := clientFor(newStub(always(400, string(body)))).GetServer(ctx, serverID)
		Expect(typed(err).Message).To(Equal(reported))
	},
		Entry("of several lines", "quá tải\n\tthử\rlại ", "quá tải thử lại"),
		Entry("as long as that", strings.Repeat("ồ ", 255)+"ồ.", strings.Repeat("ồ ", 255)+"ồ."),
		Entry("longer", strings.Repeat("ồ ", 255)+"ồ..", strings.Repeat("ồ ", 255)+"ồ…"),
	)
	It("should not take a server for another one", func(ctx SpecContext) {
		_, err := clientFor(newStub(always(200, `{"id":"another"}`))).GetServer(ctx, serverID)
		Expect(bizfly.IsOutage(err)).To(BeTrue())
		_, err = clientFor(newStub(always(200, `{"uid":"another"}`))).GetCluster(ctx, "uid")
		Expect(bizfly.IsOutage(err)).To(BeTrue())
	})
	It("should not take a list with a nameless element for whole", func(ctx SpecContext) {
		_, err := clientFor(newStub(always(200, `[{"id":"a"},{"name":"b"}]`))).ListServers(ctx)
		Expect(err).To(MatchError(ContainSubstring("element 1 has no id")))
	})
	It("should return empty lists that are not nil", func(ctx SpecContext) {
		servers := lo.Must(clientFor(newStub(always(200, ` [] `))).ListServers(ctx))
		Expect(servers).ToNot(BeNil())
		Expect(servers).To(BeEmpty())
	})
	It("should keep regions that gobizfly does not know", func(ctx SpecContext) {
		s := newStub(always(200,
			`{"VC-HN":{"active":true,"order":3,"region_name":"VC-HaNoi"},"HN":{"order":1,"short_name":"HN","zones":[{"short_name":"HN1","active":true}]}}`))
		Expect(clientFor(s).ListRegions(ctx)).To(ConsistOf(HaveField("ShortName", "HN"), HaveField("ShortName", "VC-HN")))
	})
})

var _ = Describe("GetTask", func() {
	DescribeTable("should survive whatever the result is",
		func(ctx SpecContext, body string, ready bool, failure, serverID string) {
			task := lo.Must(clientFor(newStub(always(200, body))).GetTask(ctx, "t1"))
			Expect(task.Ready).To(Equal(ready))
			Expect(task.Failure).To(lo.Ternary(failure == "", Succeed(), MatchError("bizfly cloud: "+failure)))
			Expect(lo.FromPtr(task.Server).ID).To(Equal(serverID))
		},
		Entry("running", `{"ready":false,"result":{"action":"create_server","progress":40}}`, false, "", ""),
		Entry("succeeded", `{"ready":true,"result":{"id":"s-1","metadata":{"n":1},"success":true,"progress":0}}`, true, "", "s-1"),
		Entry("ready, with a server and without success", `{"ready":true,"result":{"id":"s-1","action":"create_server"}}`, true, "", "s-1"),
		Entry("ready, with neither", `{"ready":true,"result":{"action":"create_server"}}`, true, "create_server: Unknown: task t1 failed without a reason", ""),
		Entry("failed with a message", `{"ready":true,"result":{"action":"create_server","progress":100,"success":false,"message":"No valid host was found."}}`,
			true, "create_server: Capacity: No valid host was found.", ""),
		Entry("failed with a server in ERROR", `{"ready":true,"result":{"id":"s-1","status":"ERROR","success":false,"fault":{"code":500,"message":"No valid host"}}}`,
			true, "task: Capacity: No valid host", "s-1"),
		Entry("failed with data", `{"ready":true,"result":{"success":false,"data":"quota"}}`, true, "task: Quota: quota", ""),
		Entry("failed with an error", `{"ready":true,"result":{"success":false,"error":"hết hàng"}}`, true, "task: Capacity: hết hàng", ""),
		Entry("a string", `{"ready":true,"result":"No valid host was found."}`, true, "task: Capacity: No valid host was found.", ""),
		Entry("null", `{"ready":true,"result":null}`, true, "task: Unknown: task t1 failed without a reason", ""),
		Entry("nothing", `{"ready":true}`, true, "task: Unknown: task t1 failed without a reason", ""),
		Entry("a message beside it", `{"ready":true,"result":null,"message":"lỗi"}`, true, "task: Unknown: lỗi", ""),
		Entry("a progress that is none", `{"ready":false,"result":{"progress":1e9}}`, false, "", ""),
		Entry("an action that is none", `{"ready":true,"result":{"action":"`+strings.Repeat("x", 100)+`"}}`, true,
			strings.Repeat("x", 63)+"…: Unknown: task t1 failed without a reason", ""),
	)
})
