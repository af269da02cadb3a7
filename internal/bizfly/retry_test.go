// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Retries", func() {
	throttled := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "2")
		answer(w, 429, `{"message":"slow down"}`)
	}

	DescribeTable("should repeat a read that may go better",
		func(ctx SpecContext, first http.HandlerFunc) {
			s := newStub(inTurn(first, always(200, `[]`)))
			Expect(clientFor(s).ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.seen()).To(HaveLen(2))
		},
		Entry("502", page(502)), Entry("503", always(503, `{}`)), Entry("504", page(504)), Entry("429", http.HandlerFunc(throttled)),
		Entry("connection closed", http.HandlerFunc(hangUp)),
		Entry("answer cut off", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("[{"))
		})),
	)
	DescribeTable("should not repeat a read that cannot go better",
		func(ctx SpecContext, first http.HandlerFunc) {
			s := newStub(inTurn(first, always(200, `[]`)))
			Expect(clientFor(s).ListServers(ctx)).Error().To(HaveOccurred())
			// A 403 is followed by the question whether the account is paid.
			Expect(lo.Reject(s.seen(), func(r recorded, _ int) bool { return r.Path == "/api/account/user" })).To(HaveLen(1))
		},
		Entry("400", always(400, `{}`)), Entry("403", always(403, `{}`)), Entry("404", always(404, `{}`)), Entry("500", always(500, `{}`)),
		Entry("nonsense", always(200, `{`)), Entry("a 503 that says why", always(503, `{"message":"Vượt quá hạn mức"}`)),
	)
	It("should give up after four attempts, each later than the one before", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(page(503))
		_, err := clientFor(s, func(c *bizfly.Config) { c.Clock = clock }).ListServers(ctx)
		Expect(bizfly.IsOutage(err)).To(BeTrue())
		Expect(s.seen()).To(HaveLen(4))
		waits := clock.Waits()
		Expect(waits).To(HaveLen(3))
		for i, ceiling := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
			Expect(waits[i]).To(And(BeNumerically(">=", ceiling/2), BeNumerically("<=", ceiling)))
		}
	})
	It("should wait as long as it is asked to", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(inTurn(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(503)
		}, always(200, `[]`)))
		Expect(clientFor(s, func(c *bizfly.Config) { c.Clock = clock }).ListServers(ctx)).Error().ToNot(HaveOccurred())
		Expect(clock.Waits()).To(HaveExactElements(3 * time.Second))
	})
	It("should not wait beyond its deadline, but say when to come back", func(ctx SpecContext) {
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		})
		_, err := clientFor(s).ListServers(ctx)
		Expect(typed(err).RetryAfter).To(BeNumerically("~", time.Hour, time.Minute))
		Expect(s.seen()).To(HaveLen(1))
	})
	DescribeTable("should never repeat a create",
		func(ctx SpecContext, first http.HandlerFunc, ambiguous bool) {
			s := newStub(inTurn(first, always(200, `{"task_id":["t"]}`)))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(err).To(HaveOccurred())
			Expect(bizfly.IsAmbiguous(err)).To(Equal(ambiguous))
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			Expect(s.seen()).To(HaveLen(1))
		},
		Entry("500", always(500, `{}`), true), Entry("502", page(502), true), Entry("503", page(503), true), Entry("504", page(504), true),
		Entry("connection closed", http.HandlerFunc(hangUp), true), Entry("429", http.HandlerFunc(throttled), false),
		Entry("503 that says when to come back", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(503)
		}), false),
		Entry("500 that says why", always(500, `{"message":"No valid host was found."}`), false),
		Entry("500 that says that it is under way", always(500, `{"message":"Yêu cầu đang được xử lý"}`), true),
		Entry("500 of a database", always(500, `{"message":"Lỗi cơ sở dữ liệu"}`), true),
		Entry("500 that says to come back", always(500, `{"message":"Có lỗi xảy ra, vui lòng thử lại sau ít phút"}`), true),
		Entry("500 of an invalid answer behind it", always(500, `{"message":"Phản hồi không hợp lệ từ máy chủ"}`), true),
		Entry("500 that names what is invalid", always(500, `{"message":"Volume_type SSD không hợp lệ"}`), false),
		Entry("500 that ran out of time", always(500, `{"message":"Vượt quá thời gian chờ phản hồi"}`), true),
		Entry("500 page that seems to say why", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte("No valid host was found."))
		}), true),
	)
	Describe("of deletes", func() {
		deletes := func(ctx context.Context, client *bizfly.Client) map[string]func() error {
			return map[string]func() error{
				"DeleteServer": func() error { return client.DeleteServer(ctx, serverID, nil) },
				"DeleteVolume": func() error { return client.DeleteVolume(ctx, "v1") },
			}
		}
		It("should say not found after an attempt that may have deleted, or was rejected", func(ctx SpecContext) {
			for name := range deletes(ctx, nil) {
				for _, first := range []http.HandlerFunc{hangUp, page(502), page(504), throttled} {
					s := newStub(inTurn(first, always(404, `{"message":"not found"}`)))
					Expect(bizfly.IsNotFound(deletes(ctx, clientFor(s))[name]())).To(BeTrue(), name)
					Expect(methods(s.seen())).To(Equal("DELETE DELETE"))
				}
			}
		})
		It("should not repeat one that the state of the object forbids, whatever the status", func(ctx SpecContext) {
			for name := range deletes(ctx, nil) {
				s := newStub(always(500, `{"message":"Cannot 'delete' it while it is in task_state deleting"}`))
				Expect(bizfly.IsConflict(deletes(ctx, clientFor(s))[name]())).To(BeTrue(), name)
				Expect(s.seen()).To(HaveLen(1))
			}
		})
		It("should not take the page of a gateway for success", func(ctx SpecContext) {
			for name := range deletes(ctx, nil) {
				s := newStub(inTurn(hangUp, page(404)))
				Expect(bizfly.IsOutage(deletes(ctx, clientFor(s))[name]())).To(BeTrue(), name)
			}
		})
		It("should repeat leaving the cluster too", func(ctx SpecContext) {
			s := newStub(inTurn(hangUp, always(404, `{"message":"unknown node"}`)))
			Expect(clientFor(s).LeaveCluster(ctx, "uid", clusterToken, "node")).To(Succeed())
			Expect(s.seen()).To(HaveLen(2))
			Expect(s.seen()[1].Header.Get("X-Cluster-Token")).To(Equal(clusterToken))
			Expect(s.seen()[1].Body).To(MatchJSON(`{"node_name":"node"}`))
		})
	})
	It("should end with the same text each time that a connection breaks", func(ctx SpecContext) {
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			connection, _ := lo.Must2(http.NewResponseController(w).Hijack())
			// With a reset instead of an end, which an error of package net describes with the addresses of both sides.
			Expect(connection.(*net.TCPConn).SetLinger(0)).To(Succeed())
			Expect(connection.Close()).To(Succeed())
		})
		client := clientFor(s)
		_, first := client.CreateServer(ctx, createRequest())
		Expect(first).To(MatchError(ContainSubstring("connection reset by peer")))
		_, second := client.CreateServer(ctx, createRequest())
		Expect(second).To(MatchError(first.Error()))
	})
	Describe("and what was sent", func() {
		It("should say that a create was not sent when nothing listens", func(ctx SpecContext) {
			gone := newStub(always(200, `{}`))
			gone.Close()
			s := newStub(nil)
			s.catalog = always(200, gone.services("HN"))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
			Expect(bizfly.IsOutage(err)).To(BeTrue())
		})
		It("should say that a create was not sent when TLS fails", func(ctx SpecContext) {
			s := newTLSStub(false, always(200, `{}`))
			client := clientFor(s, func(c *bizfly.Config) { c.CABundle = nil })
			_, err := client.CreateServer(ctx, createRequest())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(err).To(MatchError(ContainSubstring("certificate")))
			Expect(s.logins.Load()).To(BeZero())
		})
		It("should say that a create was not sent when another host's TLS fails", func(ctx SpecContext) {
			// A listener that is no TLS server behind an https URL of the catalog.
			plain := newStub(always(200, `{"task_id":["t"]}`))
			s := newStub(nil)
			s.catalog = always(200, catalogOf("HN", map[string]string{"cloud_server": strings.Replace(plain.URL, "http:", "https:", 1)}))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
			Expect(plain.seen()).To(BeEmpty())
		})
	})
	DescribeTable("should be worth the same create request again", func(ctx SpecContext, answers http.HandlerFunc, retryable bool) {
		_, err := clientFor(newStub(answers)).CreateServer(ctx, createRequest())
		Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
		Expect(bizfly.IsRetryable(err)).To(Equal(retryable))
	},
		Entry("after a 503 that says when to come back", comeBack(503, `{}`), true),
		Entry("after a page with 503 that says when to come back", comeBack(503, `<html>Service Temporarily Unavailable</html>`), true),
		Entry("after a 429 that says when to come back", comeBack(429, `{}`), true),
		Entry("after a 429", always(429, `{}`), true),
		Entry("not after a 503 that says why", comeBack(503, `{"message":"Vượt quá hạn mức"}`), false),
		Entry("not after a 503 that lacks capacity", comeBack(503, `{"message":"No valid host was found"}`), false),
		Entry("not after a 413 that says when to come back", comeBack(413, `{}`), false),
	)
})

// comeBack answers with the status and says to come back in a second.
func comeBack(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		answer(w, status, body)
	}
}
