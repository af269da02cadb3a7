/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package bizfly_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// One spec or more for each defect of gobizfly v1.1.32 that our calls can reach. The numbers are those of the list in
// docs/architecture.md.
var _ = Describe("Defects of gobizfly", func() {
	var ctx context.Context
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		DeferCleanup(cancel)
	})

	Describe("2.1 contexts are ignored", func() {
		for name, call := range everyCall() {
			It("should return at once from "+name+" when its context is cancelled", func() {
				arrived, release := make(chan struct{}, 64), make(chan struct{})
				s := newStub(func(_ http.ResponseWriter, r *http.Request) {
					arrived <- struct{}{}
					<-release
				})
				if name == "Scope" {
					s.set(func(s *stub) { s.token = s.api })
				}
				DeferCleanup(func() { close(release) })
				client := clientFor(s)
				cancelled, cancel := context.WithCancel(ctx)
				result := make(chan error, 1)
				go func() { result <- call(cancelled, client) }()
				Eventually(arrived).WithTimeout(5 * time.Second).Should(Receive())
				cancel()
				var err error
				Eventually(result).WithTimeout(2 * time.Second).Should(Receive(&err))
				Expect(err).To(MatchError(context.Canceled))
				Expect(typed(err).Operation).To(Equal(name))
				Expect(bizfly.IsOutage(err)).To(BeFalse())
			})
		}

		It("should send nothing for a context that has ended already", func() {
			s := newStub(always(200, `[]`))
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			_, err := clientFor(s).ListServers(cancelled)
			Expect(err).To(MatchError(context.Canceled))
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(s.seen()).To(BeEmpty())
			Expect(s.logins.Load()).To(BeZero())
		})
	})

	Describe("2.2 there is no timeout", func() {
		hung := func() *stub {
			release := make(chan struct{})
			s := newStub(func(_ http.ResponseWriter, r *http.Request) {
				<-release
			})
			DeferCleanup(func() { close(release) })
			return s
		}
		short := func(c *bizfly.Config) {
			c.Timeouts.Read, c.Timeouts.Create, c.Timeouts.Delete = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
		}

		It("should meet its own deadline when a server hangs", func() {
			_, err := clientFor(hung(), short).ListServers(context.Background())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
		})

		It("should not know the outcome of a create or delete that hangs", func() {
			client := clientFor(hung(), short)
			_, err := client.CreateServer(context.Background(), createRequest())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			_, err = client.DeleteServer(context.Background(), serverID, nil)
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
		})

		It("should meet the deadline when a body drips for ever", func() {
			release := make(chan struct{})
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "[")
				w.(http.Flusher).Flush()
				<-release
			})
			DeferCleanup(func() { close(release) })
			_, err := clientFor(s, short).ListServers(context.Background())
			Expect(err).To(MatchError(context.DeadlineExceeded))
		})

		It("should meet the deadline when the login hangs", func() {
			release := make(chan struct{})
			s := newStub(always(200, `[]`))
			s.token = func(http.ResponseWriter, *http.Request) { <-release }
			DeferCleanup(func() { close(release) })
			_, err := clientFor(s, func(c *bizfly.Config) {
				c.Timeouts.Login = 100 * time.Millisecond
				c.Timeouts.Read = 300 * time.Millisecond
			}).ListServers(ctx)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			Expect(s.seen()).To(BeEmpty())
		})
	})

	Describe("2.3 to 2.5 a 401 panics, loses the body or recurses", func() {
		replays := func(s *stub, proto string) {
			s.set(func(s *stub) {
				s.api = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Auth-Token") == "MARKED-token-1" {
						// A new connection for the replay, where gobizfly would send an empty body.
						w.Header().Set("Connection", "close")
						answer(w, 401, `{"message":"token expired"}`)
						return
					}
					answer(w, 200, `{"task_id":["71b9caeb-1"]}`)
				}
			})
			Expect(clientFor(s).CreateServer(ctx, createRequest())).To(Equal("71b9caeb-1"))
			seen := s.seen()
			Expect(seen).To(HaveLen(2))
			for _, request := range seen {
				Expect(request.Proto).To(Equal(proto))
				Expect(request.Body).To(And(ContainSubstring(`"quantity":1`), ContainSubstring(`"user_data"`), HaveSuffix("]\n")))
			}
			Expect(seen[0].Body).To(Equal(seen[1].Body))
			Expect(s.logins.Load()).To(BeEquivalentTo(2))
		}
		It("should replay once with the whole body over HTTP/1.1", func() { replays(newStub(nil), "HTTP/1.1") })
		It("should replay once with the whole body over HTTP/2", func() { replays(newTLSStub(true, nil), "HTTP/2.0") })

		It("should log in once for a storm of 401", func() {
			const callers = 40
			var waiting sync.WaitGroup
			waiting.Add(callers)
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Auth-Token") == "MARKED-token-1" {
					// All requests get their 401 together.
					waiting.Done()
					waiting.Wait()
					answer(w, 401, `{"message":"expired"}`)
					return
				}
				answer(w, 200, `[]`)
			})
			client := clientFor(s)
			_, err := client.Scope(ctx)
			Expect(err).ToNot(HaveOccurred())
			var failed atomic.Int32
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					if _, err := client.ListServers(ctx); err != nil {
						failed.Add(1)
					}
				})
			}
			done.Wait()
			Expect(failed.Load()).To(BeZero())
			Expect(s.logins.Load()).To(BeEquivalentTo(2))
			Expect(s.seen()).To(HaveLen(2 * callers))
		})

		It("should give up with a typed error when a fresh token is refused too, and not log in for each call", func() {
			s := newStub(always(401, `{"message":"no"}`))
			client := clientFor(s)
			for range 5 {
				_, err := client.ListServers(ctx)
				Expect(bizfly.IsAuth(err)).To(BeTrue())
				Expect(typed(err).Status).To(Equal(401))
			}
			// The first call: a login, a 401, a login, a 401. The others: one 401 each.
			Expect(s.logins.Load()).To(BeEquivalentTo(2))
			Expect(s.seen()).To(HaveLen(6))
		})

		It("should not recurse when the login is refused for ever", func() {
			s := newStub(always(200, `[]`))
			s.token = always(401, `{"message":"Email hoặc mật khẩu không đúng"}`)
			client := clientFor(s)
			for range 5 {
				_, err := client.ListServers(ctx)
				Expect(bizfly.IsAuth(err)).To(BeTrue())
				Expect(bizfly.IsNotSent(err)).To(BeTrue())
				Expect(err).To(MatchError(ContainSubstring("mật khẩu không đúng")))
			}
			Expect(s.logins.Load()).To(BeEquivalentTo(1))
			Expect(s.seen()).To(BeEmpty())
		})
	})

	It("2.6 should not recurse when the catalog is refused", func() {
		s := newStub(always(200, `[]`))
		s.catalog = always(401, `{"message":"no"}`)
		client := clientFor(s)
		for range 5 {
			_, err := client.ListServers(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(err).To(MatchError(ContainSubstring("service catalog")))
		}
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
		Expect(s.catalogs.Load()).To(BeEquivalentTo(1))
	})

	It("2.7 should use tokens for application credentials too, also after a 401", func() {
		var logins []string
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			answer(w, lo.Ternary(r.Header.Get("X-Auth-Token") == "t-1", 401, 200), `[]`)
		})
		s.token = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			logins = append(logins, string(body))
			answer(w, 200, fmt.Sprintf(`{"token":"t-%d","project_id":"%s"}`, len(logins), project))
		}
		_, err := clientFor(s, func(c *bizfly.Config) {
			c.AuthMethod, c.Email, c.Password = bizfly.AuthMethodAppCredential, "", ""
			c.AppCredID, c.AppCredSecret = "cred-id", "cred-secret"
		}).ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(logins).To(HaveLen(2))
		for _, body := range logins {
			Expect(body).To(MatchJSON(`{"auth_method":"application_credential","credential_id":"cred-id","credential_secret":"cred-secret"}`))
		}
		for _, request := range s.seen() {
			Expect(request.Header).To(HaveKeyWithValue("X-Auth-Type", []string{"token"}))
			Expect(request.Header).To(HaveKeyWithValue("X-Project-Id", []string{project}))
			Expect(request.Header).ToNot(HaveKey("X-App-Credential-Secret"))
		}
	})

	Describe("2.8 the project is lost", func() {
		It("should send the project of the token's reply with every request", func() {
			s := newStub(always(200, `[]`))
			client := clientFor(s)
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(s.seen()[0].Header.Get("X-Project-ID")).To(Equal(project))
			Expect(client.Scope(ctx)).To(Equal(bizfly.Scope{Host: strings.TrimPrefix(s.URL, "http://"), Region: "HaNoi", ProjectID: project}))
		})

		It("should refuse a token of another project than the configured one", func() {
			s := newStub(always(404, `{"message":"not found"}`))
			client := clientFor(s, func(c *bizfly.Config) { c.ProjectID = "another" })
			_, err := client.GetServer(ctx, serverID)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("another"), ContainSubstring(project), ContainSubstring("BIZFLY_CLOUD_PROJECT_ID"))))
			_, err = client.Scope(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(s.seen()).To(BeEmpty())
		})

		It("should refuse a token whose project is not told", func() {
			s := newStub(always(200, `[]`))
			s.token = always(200, `{"token":"t"}`)
			_, err := clientFor(s).ListServers(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(s.seen()).To(BeEmpty())
		})

		It("should refuse a credential whose project changes under way", func() {
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				answer(w, lo.Ternary(r.Header.Get("X-Auth-Token") == "t-1", 401, 404), `{"message":"?"}`)
			})
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, fmt.Sprintf(`{"token":"t-%d","project_id":"project-%d"}`, s.logins.Load(), s.logins.Load()))
			}
			client := clientFor(s)
			Expect(client.Scope(ctx)).To(HaveField("ProjectID", "project-1"))
			_, err := client.GetServer(ctx, serverID)
			Expect(bizfly.IsNotFound(err)).To(BeFalse())
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("project-1"), ContainSubstring("project-2"))))
			Expect(s.seen()).To(HaveLen(1))
		})
	})

	It("2.9 should be free of races", func() {
		var turn atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			// Now and then a token is refused.
			answer(w, lo.Ternary(turn.Add(1)%7 == 0, 401, 200), lo.Ternary(r.Method == "GET" && !strings.Contains(r.URL.Path, "/servers/"), `[]`, `{}`))
		})
		client := clientFor(s)
		var done sync.WaitGroup
		for range 8 {
			for name, call := range everyCall() {
				done.Go(func() {
					if err := call(ctx, client); err != nil {
						defer GinkgoRecover()
						Expect(typed(err).Operation).To(Equal(name))
					}
				})
			}
			done.Go(func() { _ = client.Health() })
			done.Go(func() {
				defer GinkgoRecover()
				Expect(client.Reconfigure(configFor(s))).To(Succeed())
			})
		}
		done.Wait()
	})

	DescribeTable("2.10 should keep the status, the code, the words and when to come back",
		func(status int, body string, is func(error) bool) {
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
		Entry("402", 402, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsBalance),
		Entry("403", 403, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsPermission),
		Entry("409", 409, `{"error":{"code":"UNKNOWN","message":"Lỗi: x"}}`, bizfly.IsConflict),
		Entry("422", 422, `{"code":"UNKNOWN","detail":"Lỗi: x"}`, bizfly.IsInvalid),
		Entry("429", 429, `{"code":"UNKNOWN","error":"Lỗi: x"}`, bizfly.IsThrottled),
		Entry("503", 503, `{"code":"UNKNOWN","message":"Lỗi: x"}`, bizfly.IsOutage),
	)

	Describe("2.11 any 404 is not found", func() {
		It("should not take the page of a gateway for the absence of a server", func() {
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

		It("should take a JSON 404 for this id for what it is", func() {
			client := clientFor(newStub(always(404, `{"message":"Instance could not be found."}`)))
			for _, name := range []string{"GetServer", "DeleteServer", "GetTask", "DeleteVolume", "GetCluster"} {
				Expect(bizfly.IsNotFound(everyCall()[name](ctx, client))).To(BeTrue(), name)
			}
			Expect(everyCall()["LeaveCluster"](ctx, client)).To(Succeed())
		})

		It("should never take a 404 to a list or a create for an absence", func() {
			client := clientFor(newStub(always(404, `{"message":"Image could not be found."}`)))
			_, err := client.ListServers(ctx)
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			_, err = client.CreateServer(ctx, createRequest())
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
		})
	})

	Describe("2.12 a missing service falls back to production with the token", func() {
		failsClosed := func(s *stub, document string, text string) {
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

		It("should fail closed when the region is missing", func() {
			s := newStub(always(200, `[]`))
			failsClosed(s, s.services("HCM"), "in region HaNoi, only in HCM")
		})
		It("should fail closed when the service is missing", func() {
			s := newStub(always(200, `[]`))
			failsClosed(s, catalogOf("HN", map[string]string{"dns": s.URL + "/api/dns"}), "no ")
		})
		It("should send not one byte to a production host that a foreign catalog names", func() {
			production := "https://manage.bizflycloud.vn"
			failsClosed(newStub(always(200, `[]`)), catalogOf("HN", map[string]string{
				"cloud_server": production + "/api", "kubernetes_engine": production + "/api/kubernetes-engine", "bizfly_account": production + "/api",
			}), "not accepted: production host")
		})
		It("should send not one byte to another host without TLS", func() {
			var bytes atomic.Int64
			foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { bytes.Add(1) }))
			DeferCleanup(foreign.Close)
			failsClosed(newStub(always(200, `[]`)), catalogOf("HN", map[string]string{
				"cloud_server": foreign.URL, "kubernetes_engine": foreign.URL, "bizfly_account": foreign.URL,
			}), "without TLS")
			Expect(bytes.Load()).To(BeZero())
		})
		It("should send not one byte to its own host without TLS when the endpoint has it", func() {
			s := newTLSStub(false, always(200, `[]`))
			plain := strings.Replace(s.URL, "https", "http", 1)
			failsClosed(s, catalogOf("HN", map[string]string{
				"cloud_server": plain, "kubernetes_engine": plain, "bizfly_account": plain,
			}), "without TLS")
		})
		It("should go to another host with TLS that the catalog of the endpoint names", func() {
			other := newTLSStub(false, always(200, `[]`))
			s := newTLSStub(false, nil)
			s.catalog = always(200, catalogOf("HN", map[string]string{"cloud_server": other.URL + "/iaas-cloud/api/"}))
			// Both stubs have the certificate of httptest.
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(other.seen()).To(HaveLen(1))
			Expect(other.seen()[0].Path).To(Equal("/iaas-cloud/api/servers"))
		})
	})

	Describe("2.13 services without a region are not found", func() {
		It("should use a service that has no region", func() {
			s := newStub(always(200, `[]`))
			s.catalog = always(200, s.services(""))
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
		})
		It("should prefer the one of the region", func() {
			s := newStub(always(200, `[]`))
			s.catalog = always(200, fmt.Sprintf(`{"services":[null,
				{"canonical_name":"cloud_server","region":"","service_url":"%[1]s/global"},
				{"canonical_name":"cloud_server","region":"Hanoi","service_url":"%[1]s/hanoi"},
				{"canonical_name":"cloud_server","region":"HN","service_url":"%[1]s/second"}]}`, s.URL))
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(s.seen()[0].Path).To(Equal("/hanoi/servers"))
		})
	})

	It("2.15 should read the catalog again, and use the old one while it cannot be read", func() {
		clock := &skipping{}
		s := newStub(always(200, `[]`))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock, c.CatalogTTL = clock, 10*time.Minute })
		for range 3 {
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
		}
		Expect(s.catalogs.Load()).To(BeEquivalentTo(1))
		s.set(func(s *stub) { s.catalog = page(503) })
		clock.Step(11 * time.Minute)
		_, err := client.ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Eventually(s.catalogs.Load).Should(BeEquivalentTo(2))
		s.set(func(s *stub) {
			s.catalog = always(200, catalogOf("HN", map[string]string{"cloud_server": s.URL + "/moved"}))
		})
		Eventually(func(g Gomega) {
			clock.Step(10 * time.Minute)
			_, err := client.ListServers(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(lo.LastOrEmpty(s.seen()).Path).To(Equal("/moved/servers"))
		}).WithTimeout(5 * time.Second).Should(Succeed())
	})

	Describe("2.16 bodies are not closed and not bounded", func() {
		It("should reuse its connection after every sort of answer", func() {
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

		It("should stop reading an answer that has no end", func() {
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

	Describe("2.17 redirects are followed with secrets", func() {
		It("should not follow one", func() {
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

	It("2.19 should refuse an endpoint that gobizfly would stumble over", func() {
		for _, url := range []string{"://", "https://", "/api", "https://x/?a=b", "ftp://x"} {
			_, err := bizfly.NewClient(configFor(newStub(nil), func(c *bizfly.Config) { c.APIURL = url }))
			Expect(err).To(MatchError(ContainSubstring("BIZFLY_CLOUD_API_URL")), url)
		}
	})

	DescribeTable("should accept the endpoint with or without /api and a slash", func(suffix string) {
		s := newStub(always(200, `[]`))
		_, err := clientFor(s, func(c *bizfly.Config) { c.APIURL += suffix }).ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
	}, Entry(nil, ""), Entry(nil, "/"), Entry(nil, "/api"), Entry(nil, "/api/"))

	Describe("2.22 one number in a metadata map breaks every list", func() {
		It("should make strings of what metadata holds", func() {
			s := newStub(always(200, `[{"id":"a","metadata":{"n":1,"f":1.50,"big":12345678901234567890,"b":true,"z":null,"o":{"x":[1]},"s":"text"}},{"id":"b","metadata":[]},{"id":"c","metadata":null}]`))
			servers, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(servers).To(HaveLen(3))
			Expect(servers[0].Metadata).To(Equal(map[string]string{
				"n": "1", "f": "1.50", "big": "12345678901234567890", "b": "true", "z": "", "o": `{"x":[1]}`, "s": "text",
			}))
			Expect(servers[1].Metadata).To(BeEmpty())
		})
		It("should do so for volumes and the servers in them", func() {
			s := newStub(always(200, `[{"id":"v","metadata":{"size":20},"volume_image_metadata":{"min_disk":10},"attachments":[{"server":{"id":"a","metadata":{"n":1}}}]}]`))
			volumes, err := clientFor(s).ListVolumes(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(volumes[0].Metadata).To(HaveKeyWithValue("size", "20"))
			Expect(volumes[0].ImageMetadata.MinDisk).To(Equal("10"))
			Expect(volumes[0].Attachments[0].Server.Metadata).To(HaveKeyWithValue("n", "1"))
		})
		It("should keep the join token that the API echoes out of memory", func() {
			s := newStub(always(200, `[{"id":"a","metadata":{"bke_cluster_token":"`+clusterToken+`","bke_cluster_id":"kept"}}]`))
			servers, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(servers[0].Metadata).To(Equal(map[string]string{"bke_cluster_token": "[REDACTED]", "bke_cluster_id": "kept"}))
		})
	})

	DescribeTable("2.26 should refuse an id that would change the path", func(id string) {
		s := newStub(always(200, `[]`))
		client := clientFor(s)
		for name, call := range map[string]func() error{
			"GetServer":    func() error { _, err := client.GetServer(ctx, id); return err },
			"DeleteServer": func() error { _, err := client.DeleteServer(ctx, id, nil); return err },
			"a volume":     func() error { _, err := client.DeleteServer(ctx, serverID, []string{id}); return err },
			"GetTask":      func() error { _, err := client.GetTask(ctx, id); return err },
			"DeleteVolume": func() error { return client.DeleteVolume(ctx, id) },
			"GetCluster":   func() error { _, err := client.GetCluster(ctx, id); return err },
			"LeaveCluster": func() error { return client.LeaveCluster(ctx, id, clusterToken, "node") },
			"a node":       func() error { return client.LeaveCluster(ctx, "uid", clusterToken, id) },
			"an image": func() error {
				request := createRequest()
				request.OS.ID = id
				_, err := client.CreateServer(ctx, request)
				return err
			},
		} {
			err := call()
			Expect(bizfly.IsInvalid(err)).To(BeTrue(), name)
			Expect(bizfly.IsNotSent(err)).To(BeTrue(), name)
		}
		Expect(s.seen()).To(BeEmpty())
		Expect(s.logins.Load()).To(BeZero())
	},
		Entry("empty", ""), Entry("slash", "a/b"), Entry("parent", ".."), Entry("hidden parent", "a..b"), Entry("query", "a?b"), Entry("escape", "a%2fb"),
		Entry("provider id", "bizflycloud://"+serverID), Entry("space", "a b"), Entry("newline", "a\n"), Entry("too long", strings.Repeat("a", 129)),
	)

	It("2.28 should not send an empty authorization, and name itself", func() {
		s := newStub(always(200, `[]`))
		_, err := clientFor(s).ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(s.seen()[0].Header).ToNot(HaveKey("Authorization"))
		Expect(s.seen()[0].Header.Get("User-Agent")).To(Equal("karpenter-provider-bizflycloud/v1.2.3"))
	})

	Describe("2.29 an accepted delete without a body is an error", func() {
		DescribeTable("should take it for accepted", func(status int, body, task string) {
			s := newStub(always(status, body))
			client := clientFor(s)
			Expect(client.DeleteServer(ctx, serverID, nil)).To(Equal(task))
			Expect(client.DeleteVolume(ctx, "v1")).To(Succeed())
			Expect(client.LeaveCluster(ctx, "uid", clusterToken, "node")).To(Succeed())
			Expect(s.seen()[0].Body).To(MatchJSON(`{"delete_volume":[]}`))
		},
			Entry("204", 204, "", ""), Entry("empty 200", 200, "", ""), Entry("202", 202, "{}", ""), Entry("null", 200, "null", ""),
			Entry("a task", 200, `{"task_id":"t-1"}`, "t-1"),
		)

		DescribeTable("should not know the outcome of a create that is answered like that", func(status int, body string) {
			s := newStub(always(status, body))
			_, err := clientFor(s).CreateServer(ctx, createRequest())
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			Expect(bizfly.IsOutage(err)).To(BeFalse())
			Expect(s.seen()).To(HaveLen(1))
		},
			Entry("204", 204, ""), Entry("empty 200", 200, ""), Entry("null", 200, "null"), Entry("no task", 200, `{"task_id":[]}`), Entry("no field", 200, `{}`),
			Entry("a string where an array belongs", 200, `{"task_id":"t-1"}`), Entry("two tasks", 200, `{"task_id":["a","b"]}`),
			Entry("an id that is none", 200, `{"task_id":["a/b"]}`), Entry("truncated", 200, `{"task_id":["a`), Entry("a page", 200, `<html>`), Entry("trailing", 200, `{"task_id":["a"]} x`),
		)
	})
})

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
				Expect(typed(err)).To(And(HaveField("Operation", name), HaveField("Ambiguous", false)))
			}
		},
		Entry("empty", ""), Entry("null", "null"), Entry("a string", `"x"`), Entry("a number", "1"), Entry("truncated array", `[{"id":"a"`),
		Entry("truncated object", `{"ready":tr`), Entry("a page", "<html></html>"), Entry("plain text", "ok"), Entry("trailing garbage", `[] x`), Entry("an object", `{}`),
		Entry("null elements", `[null]`), Entry("elements that are strings", `["a"]`), Entry("elements of the wrong type", `[{"id":1}]`),
		Entry("null in its fields", `{"server_types":null,"volume_types":null,"os_images":null,"images":null,"controller_versions":null,"HN":null}`),
		Entry("null elements in its fields", `{"server_types":[null],"volume_types":[null],"os_images":[null],"images":[null],"controller_versions":[null],"HN":1}`),
		Entry("strings where arrays belong", `{"server_types":"","volume_types":"","os_images":"","images":"","controller_versions":"","HN":""}`),
		Entry("deep nesting", strings.Repeat("[", 20000)),
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
		servers, err := clientFor(newStub(always(200, ` [] `))).ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(servers).ToNot(BeNil())
		Expect(servers).To(BeEmpty())
	})

	It("should keep regions that gobizfly does not know", func(ctx SpecContext) {
		s := newStub(always(200, `{"VC-HN":{"active":true,"order":3,"region_name":"VC-HaNoi"},"HN":{"order":1,"short_name":"HN","zones":[{"short_name":"HN1","active":true}]}}`))
		regions, err := clientFor(s).ListRegions(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(regions).To(HaveExactElements(HaveField("ShortName", "HN"), HaveField("ShortName", "VC-HN")))
	})
})

var _ = Describe("GetTask", func() {
	DescribeTable("should survive whatever the result is",
		func(ctx SpecContext, body string, wanted bizfly.Task, serverID string) {
			task, err := clientFor(newStub(always(200, body))).GetTask(ctx, "t1")
			Expect(err).ToNot(HaveOccurred())
			Expect(lo.FromPtr(task)).To(And(
				HaveField("ID", "t1"), HaveField("Ready", wanted.Ready), HaveField("Succeeded", wanted.Succeeded),
				HaveField("Action", wanted.Action), HaveField("Progress", wanted.Progress), HaveField("Message", wanted.Message),
			))
			if serverID == "" {
				Expect(task.Server).To(BeNil())
			} else {
				Expect(task.Server.ID).To(Equal(serverID))
			}
		},
		Entry("running", `{"ready":false,"result":{"action":"create_server","progress":40}}`, bizfly.Task{Action: "create_server", Progress: 40}, ""),
		Entry("succeeded", `{"ready":true,"result":{"id":"s-1","metadata":{"n":1},"success":true,"progress":0}}`, bizfly.Task{Ready: true, Succeeded: true}, "s-1"),
		Entry("failed with a message", `{"ready":true,"result":{"action":"create_server","progress":100,"success":false,"message":"No valid host was found."}}`,
			bizfly.Task{Ready: true, Action: "create_server", Progress: 100, Message: "No valid host was found."}, ""),
		Entry("failed with a server in ERROR", `{"ready":true,"result":{"id":"s-1","status":"ERROR","success":false,"fault":{"code":500,"message":"No valid host"}}}`,
			bizfly.Task{Ready: true, Message: "No valid host"}, "s-1"),
		Entry("failed with data", `{"ready":true,"result":{"success":false,"data":"quota"}}`, bizfly.Task{Ready: true, Message: "quota"}, ""),
		Entry("failed with an error", `{"ready":true,"result":{"success":false,"error":"hết hàng"}}`, bizfly.Task{Ready: true, Message: "hết hàng"}, ""),
		Entry("a string", `{"ready":true,"result":"No valid host was found."}`, bizfly.Task{Ready: true, Message: "No valid host was found."}, ""),
		Entry("null", `{"ready":true,"result":null}`, bizfly.Task{Ready: true}, ""),
		Entry("nothing", `{"ready":true}`, bizfly.Task{Ready: true}, ""),
		Entry("a message beside it", `{"ready":true,"result":null,"message":"lỗi"}`, bizfly.Task{Ready: true, Message: "lỗi"}, ""),
		Entry("a progress that is none", `{"ready":false,"result":{"progress":1e9}}`, bizfly.Task{Progress: 100}, ""),
	)

	It("should classify a failed task with the configured patterns too", func(ctx SpecContext) {
		s := newStub(always(200, `{"ready":true,"result":{"success":false,"message":"cụm đầy"}}`))
		task, err := clientFor(s, func(c *bizfly.Config) {
			c.ErrorPatterns = []bizfly.ErrorPattern{{Class: bizfly.ClassCapacity, Pattern: "cụm đầy"}}
		}).GetTask(ctx, "t1")
		Expect(err).ToNot(HaveOccurred())
		Expect(bizfly.IsCapacity(task.Failure())).To(BeTrue())
	})
})
