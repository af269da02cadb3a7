// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Defects of gobizfly, errors, hosts and bodies", func() {
	DescribeTable("should keep the status, the code, the words and when to come back",
		func(ctx SpecContext, status int, body string, is func(error) bool) {
			s := newStub(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				answer(w, status, body)
			})
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(is(err)).To(BeTrue(), "%v", err)
			Expect(typed(err)).To(And(HaveField("Status", status), HaveField("RetryAfter", time.Hour), HaveField("NotSent", false), HaveField("Ambiguous", false)))
			Expect(typed(err)).To(And(HaveField("Code", "UNKNOWN"), HaveField("Message", "Lỗi: x")))
		},
		Entry("400", 400, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsInvalid),
		Entry("402", 402, `{"code":"UNKNOWN","message":"Lỗi: x"}`, ofClass(bizfly.ClassBalance)),
		Entry("403", 403, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsPermission),
		Entry("409", 409, `{"error":{"code":"UNKNOWN","message":"Lỗi: x"}}`, bizfly.IsConflict),
		Entry("422", 422, `{"code":"UNKNOWN","detail":"Lỗi: x"}`, bizfly.IsInvalid),
		Entry("429", 429, `{"code":"UNKNOWN","error":"Lỗi: x"}`, ofClass(bizfly.ClassThrottled)),
		Entry("503", 503, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsOutage),
	)
	DescribeTable("should not take the words of a gateway that lost the answer for a rejection",
		func(ctx SpecContext, status int, message string) {
			s := newStub(always(status, `{"message":"`+message+`"}`))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue(), "a server may have been ordered: %v", err)
			Expect(bizfly.IsInvalid(err)).To(BeFalse())
		},
		Entry("a broken answer", 502, "An invalid response was received from the upstream server"),
		Entry("no answer", 504, "The upstream server is timing out"),
	)
	Describe("gobizfly takes any 404 for not found", func() {
		It("should not take the page of a gateway for the absence of a server", func(ctx SpecContext) {
			client := clientFor(newStub(page(404)))
			for name, call := range everyCall() {
				if name == "Scope" {
					continue
				}
				err := call(ctx, client)
				Expect(err).To(HaveOccurred(), name)
				Expect(bizfly.IsNotFound(err)).To(BeFalse(), name)
				Expect(bizfly.IsOutage(err)).To(BeTrue(), name)
			}
		})
		DescribeTable("should take a JSON 404 for this id for what it is", func(ctx SpecContext, body string) {
			client := clientFor(newStub(always(404, body)))
			for _, name := range []string{"GetServer", "DeleteServer", "GetTask", "DeleteVolume", "GetCluster"} {
				err := everyCall()[name](ctx, client)
				Expect(bizfly.IsNotFound(err)).To(BeTrue(), name)
				Expect(typed(err).Message).To(Equal("Instance could not be found."))
			}
			Expect(everyCall()["LeaveCluster"](ctx, client)).To(Succeed())
		},
			Entry("an object", `{"message":"Instance could not be found."}`),
			Entry("a text", `"Instance could not be found."`),
		)
		DescribeTable("should take no other 404 for the absence of a server", func(ctx SpecContext, body string) {
			_, err := clientFor(newStub(always(404, body))).GetServer(ctx, "s-1")
			Expect(bizfly.IsOutage(err)).To(BeTrue(), "%v", err)
		},
			Entry("a text without quotes", `404 page not found`),
			Entry("a text that begins with quotes", `"default backend" - 404`),
			Entry("a text of a gateway", `"no Route matched with those values"`),
			Entry("a number", `404`),
			Entry("null", `null`),
			Entry("nothing", ``),
		)
		It("should never take a 404 to a list or a create for an absence", func(ctx SpecContext) {
			client := clientFor(newStub(always(404, `{"message":"Image could not be found."}`)))
			_, err := client.ListServers(ctx)
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			_, err = client.CreateServer(ctx, createRequest())
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
		})
	})
	Describe("gobizfly sends the token to the production host when a service is missing", func() {
		failsClosed := func(ctx context.Context, s *stub, document string, text string) {
			GinkgoHelper()
			s.set(func(s *stub) { s.catalog = always(200, document) })
			client := clientFor(s)
			for name, call := range everyCall() {
				err := call(ctx, client)
				Expect(bizfly.IsNotSent(err)).To(BeTrue(), name)
				Expect(bizfly.IsOutage(err)).To(BeTrue(), name)
				Expect(err).To(MatchError(ContainSubstring(text)))
			}
			Expect(s.seen()).To(BeEmpty())
		}

		It("should fail closed when the region is missing", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			failsClosed(ctx, s, s.services("HCM"), "in region HaNoi, only in HCM")
		})
		It("should fail closed when the service is missing", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			failsClosed(ctx, s, catalogOf("HN", map[string]string{"dns": s.URL + "/api/dns"}), "no ")
		})
		It("should send not one byte to a production host that a foreign catalog names", func(ctx SpecContext) {
			production := "https://manage.bizflycloud.vn"
			failsClosed(ctx, newStub(always(200, `[]`)), catalogOf("HN", map[string]string{
				"cloud_server": production + "/api", "kubernetes_engine": production + "/api/kubernetes-engine", "bizfly_account": production + "/api",
			}), "not accepted: production host")
		})
		It("should send not one byte to another host without TLS", func(ctx SpecContext) {
			var bytes atomic.Int64
			foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { bytes.Add(1) }))
			DeferCleanup(foreign.Close)
			failsClosed(ctx, newStub(always(200, `[]`)), catalogOf("HN", map[string]string{
				"cloud_server": foreign.URL, "kubernetes_engine": foreign.URL, "bizfly_account": foreign.URL,
			}), "without TLS")
			Expect(bytes.Load()).To(BeZero())
		})
		It("should send not one byte to its own host without TLS when the endpoint has it", func(ctx SpecContext) {
			s := newTLSStub(false, always(200, `[]`))
			plain := strings.Replace(s.URL, "https", "http", 1)
			failsClosed(ctx, s, catalogOf("HN", map[string]string{
				"cloud_server": plain, "kubernetes_engine": plain, "bizfly_account": plain,
			}), "without TLS")
		})
		It("should go to another host with TLS that the catalog of the endpoint names", func(ctx SpecContext) {
			other := newTLSStub(false, always(200, `[]`))
			s := newTLSStub(false, nil)
			s.catalog = always(200, catalogOf("HN", map[string]string{"cloud_server": other.URL + "/iaas-cloud/api/"}))
			// Both stubs have the certificate of httptest.
			Expect(clientFor(s).ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(other.seen()).To(HaveLen(1))
			Expect(other.seen()[0].Path).To(Equal("/iaas-cloud/api/servers"))
		})
	})
	Describe("gobizfly does not find services without a region", func() {
		It("should use a service that has no region", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			s.catalog = always(200, s.services(""))
			Expect(clientFor(s).ListServers(ctx)).Error().ToNot(HaveOccurred())
		})
		It("should prefer the one of the region", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			s.catalog = always(200, fmt.Sprintf(`{"services":[null,
				{"canonical_name":"cloud_server","region":"","service_url":"%[1]s/global"},
				{"canonical_name":"cloud_server","region":"Hanoi","service_url":"%[1]s/hanoi"},
				{"canonical_name":"cloud_server","region":"HN","service_url":"%[1]s/second"}]}`, s.URL))
			Expect(clientFor(s).ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.seen()[0].Path).To(Equal("/hanoi/servers"))
		})
	})
	It("should read the service catalog with each login, and use the old one while it cannot", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(always(200, `[]`))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		for range 3 {
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		}
		Expect(s.catalogs.Load()).To(BeEquivalentTo(1))
		s.set(func(s *stub) { s.catalog = page(503) })
		clock.Step(3*time.Hour + 15*time.Minute) // the next login
		Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		Eventually(s.catalogs.Load).Should(BeEquivalentTo(2))
		s.set(func(s *stub) {
			s.catalog = always(200, catalogOf("HN", map[string]string{"cloud_server": s.URL + "/moved"}))
		})
		Eventually(func(g Gomega) {
			clock.Step(3*time.Hour + 15*time.Minute)
			g.Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			g.Expect(lo.LastOrEmpty(s.seen()).Path).To(Equal("/moved/servers"))
		}).Should(Succeed())
	})
	Describe("gobizfly leaves bodies open and reads without a bound", func() {
		It("should reuse its connection after every sort of answer", func(ctx SpecContext) {
			var connections atomic.Int32
			s := &stub{api: inTurn(
				always(200, `{"ready":false,"result":null}`), always(500, `{"message":"x"}`), page(404), always(200, `{"os_images":[]}`),
				always(200, `<html>`), always(302, ``), always(200, `{"ready":true,"result":"text"}`),
			)}
			s.Server = httptest.NewUnstartedServer(s)
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			s.Start()
			DeferCleanup(s.Close)
			client := clientFor(s)
			for range 10 {
				_, _ = client.GetTask(ctx, "t1")
				_, _ = client.ListOSImages(ctx)
			}
			Expect(connections.Load()).To(BeEquivalentTo(1))
		})
		It("should stop reading an answer that has no end", func(ctx SpecContext) {
			s := newStub(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "[")
				chunk := strings.Repeat(" ", 1<<20)
				for range 40 {
					if _, err := io.WriteString(w, chunk); err != nil {
						return
					}
				}
			})
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).To(MatchError(ContainSubstring("larger than 32 MiB")))
			Expect(bizfly.IsOutage(err)).To(BeTrue())
		})
	})
	Describe("gobizfly follows redirects with its secrets", func() {
		It("should not follow one", func(ctx SpecContext) {
			var bytes atomic.Int64
			foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { bytes.Add(1) }))
			DeferCleanup(foreign.Close)
			redirect := func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, foreign.URL+r.URL.Path, http.StatusTemporaryRedirect)
			}
			client := clientFor(newStub(redirect))
			for name, call := range everyCall() {
				if name == "Scope" {
					continue
				}
				err := call(ctx, client)
				Expect(bizfly.IsOutage(err)).To(BeTrue(), name)
				Expect(typed(err).Status).To(Equal(307))
			}
			s := newStub(always(200, `[]`))
			s.token = redirect
			_, err := clientFor(s).ListServers(ctx)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			s = newStub(always(200, `[]`))
			s.catalog = redirect
			_, err = clientFor(s).ListServers(ctx)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bytes.Load()).To(BeZero())
		})
	})
	It("should reject an endpoint at which gobizfly would panic", func(ctx SpecContext) {
		for _, url := range []string{"://", "https://", "/api", "https://x/?a=b", "ftp://x"} {
			_, err := newClient(configFor(newStub(nil), func(c *bizfly.Config) { c.APIURL = url }))
			Expect(err).To(MatchError(ContainSubstring("BIZFLY_CLOUD_API_URL")), url)
		}
	})
	DescribeTable("should accept the endpoint with or without /api and a slash", func(ctx SpecContext, suffix string) {
		s := newStub(always(200, `[]`))
		Expect(clientFor(s, func(c *bizfly.Config) { c.APIURL += suffix }).ListServers(ctx)).Error().ToNot(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
	}, Entry(nil, ""), Entry(nil, "/"), Entry(nil, "/api"), Entry(nil, "/api/"))
})
