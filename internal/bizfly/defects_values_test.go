// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Defects of gobizfly, values and ids", func() {
	Describe("gobizfly loses a list to one number in its metadata", func() {
		It("should make strings of what metadata holds", func(ctx SpecContext) {
			s := newStub(always(200,
				`[{"id":"a","metadata":{"n":1,"f":1.50,"big":12345678901234567890,"b":true,"z":null,"o":{"x":[1]},"s":"text"}},`+
					`{"id":"b","metadata":{}},{"id":"c","metadata":null}]`))
			servers := lo.Must(clientFor(s).ListServers(ctx))
			Expect(servers).To(HaveLen(3))
			Expect(servers[0].Metadata).To(Equal(map[string]string{
				"n": "1", "f": "1.50", "big": "12345678901234567890", "b": "true", "z": "", "o": `{"x":[1]}`, "s": "text",
			}))
			Expect(servers[1].Metadata).To(BeEmpty())
		})
		It("should do so for volumes and the servers in them", func(ctx SpecContext) {
			s := newStub(always(200,
				`[{"id":"v","metadata":{"size":20},"volume_image_metadata":{"min_disk":10},"attachments":[{"server":{"id":"a","metadata":{"n":1}}}]}]`))
			volumes := lo.Must(clientFor(s).ListVolumes(ctx))
			Expect(volumes[0].Metadata).To(HaveKeyWithValue("size", "20"))
			Expect(volumes[0].ImageMetadata.MinDisk).To(Equal("10"))
			Expect(volumes[0].Attachments[0].Server.Metadata).To(HaveKeyWithValue("n", "1"))
		})
		It("should keep the join token that the API echoes out of memory", func(ctx SpecContext) {
			s := newStub(always(200, `[{"id":"a","metadata":{"bke_cluster_token":"`+clusterToken+`","bke_cluster_id":"kept"}}]`))
			servers := lo.Must(clientFor(s).ListServers(ctx))
			Expect(servers[0].Metadata).To(Equal(map[string]string{"bke_cluster_token": "[REDACTED]", "bke_cluster_id": "kept"}))
		})
	})
	DescribeTable("should reject an id that would change the path, since gobizfly escapes nothing", func(ctx SpecContext, id string) {
		s := newStub(always(200, `[]`))
		client := clientFor(s)
		for name, call := range map[string]func() error{
			"GetServer":    func() error { _, err := client.GetServer(ctx, id); return err },
			"DeleteServer": func() error { return client.DeleteServer(ctx, id, nil) },
			"GetTask":      func() error { _, err := client.GetTask(ctx, id); return err },
			"DeleteVolume": func() error { return client.DeleteVolume(ctx, id) },
			"GetCluster":   func() error { _, err := client.GetCluster(ctx, id); return err },
			"LeaveCluster": func() error { return client.LeaveCluster(ctx, id, clusterToken, "node") },
		} {
			err := call()
			Expect(bizfly.IsInvalid(err)).To(BeTrue(), name)
			Expect(bizfly.IsNotSent(err)).To(BeTrue(), name)
			Expect(typed(err).Operation).ToNot(BeEmpty(), name)
		}
		Expect(s.seen()).To(BeEmpty())
		Expect(s.logins.Load()).To(BeZero())
	},
		Entry("empty", ""), Entry("slash", "a/b"), Entry("parent", ".."), Entry("hidden parent", "a..b"), Entry("query", "a?b"), Entry("escape", "a%2fb"),
		Entry("provider id", "bizflycloud://"+serverID), Entry("space", "a b"), Entry("newline", "a\n"), Entry("too long", strings.Repeat("a", 129)),
	)
	It("should not send the empty authorization of gobizfly, and name itself", func(ctx SpecContext) {
		s := newStub(always(200, `[]`))
		Expect(clientFor(s).ListServers(ctx)).Error().ToNot(HaveOccurred())
		Expect(s.seen()[0].Header).ToNot(HaveKey("Authorization"))
		Expect(s.seen()[0].Header.Get("User-Agent")).To(Equal("karpenter-provider-bizflycloud/v1.2.3"))
	})
	Describe("gobizfly takes an accepted deletion without a body for a failure", func() {
		DescribeTable("should take it for accepted", func(ctx SpecContext, status int, body string) {
			s := newStub(always(status, body))
			client := clientFor(s)
			Expect(client.DeleteServer(ctx, serverID, nil)).To(Succeed())
			Expect(client.DeleteVolume(ctx, "v1")).To(Succeed())
			Expect(client.LeaveCluster(ctx, "uid", clusterToken, "node")).To(Succeed())
			Expect(s.seen()[0].Body).To(MatchJSON(`{"delete_volume":[]}`))
		},
			Entry("204", 204, ""), Entry("empty 200", 200, ""), Entry("202", 202, "{}"), Entry("null", 200, "null"),
			Entry("a task", 200, `{"task_id":"t-1"}`),
		)
		DescribeTable("should not know the outcome of a create that is answered like that", func(ctx SpecContext, status int, body string) {
			s := newStub(always(status, body))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			Expect(bizfly.IsOutage(err)).To(BeFalse())
			Expect(s.seen()).To(HaveLen(1))
		},
			Entry("204", 204, ""), Entry("empty 200", 200, ""), Entry("null", 200, "null"), Entry("no task", 200, `{"task_id":[]}`), Entry("no field", 200, `{}`),
			Entry("a string where an array belongs", 200, `{"task_id":"t-1"}`), Entry("two tasks", 200, `{"task_id":["a","b"]}`),
			Entry("an id that is none", 200, `{"task_id":["a/b"]}`), Entry("truncated", 200, `{"task_id":["a`), Entry("a page", 200, `<html>`),
			Entry("trailing", 200, `{"task_id":["a"]} x`),
		)
	})
})
