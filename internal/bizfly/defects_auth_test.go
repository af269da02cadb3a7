// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// One spec or more for each defect of gobizfly v1.1.32 that our calls can reach.
var _ = Describe("Defects of gobizfly, calls and logins", func() {
	Describe("gobizfly ignores the context of a call", func() {
		for name, call := range everyCall() {
			It("should return at once from "+name+" when its context is cancelled", func(ctx SpecContext) {
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
				Eventually(arrived).Should(Receive())
				cancel()
				var err error
				Eventually(result).Should(Receive(&err))
				Expect(err).To(MatchError(context.Canceled))
				Expect(typed(err).Operation).To(Equal(name))
				Expect(bizfly.IsOutage(err)).To(BeFalse())
			})
		}

		It("should send nothing for a context that has ended already", func(ctx SpecContext) {
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
	Describe("gobizfly has no timeout", func() {
		hung := func() *stub {
			release := make(chan struct{})
			s := newStub(func(_ http.ResponseWriter, r *http.Request) { <-release })
			DeferCleanup(func() { close(release) })
			return s
		}
		short := func(c *bizfly.Config) {
			c.Timeouts.Read, c.Timeouts.Create, c.Timeouts.Delete = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
		}

		It("should meet its own deadline when a server hangs", func(ctx SpecContext) {
			_, err := clientFor(hung(), short).ListServers(context.Background())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
		})
		It("should not know the outcome of a create or delete that hangs", func(ctx SpecContext) {
			client := clientFor(hung(), short)
			_, err := client.CreateServer(context.Background(), createRequest())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			Expect(bizfly.IsAmbiguous(client.DeleteServer(context.Background(), serverID, nil))).To(BeTrue())
		})
		It("should meet the deadline when a body never ends", func(ctx SpecContext) {
			release := make(chan struct{})
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "[")
				w.(http.Flusher).Flush()
				<-release
			})
			DeferCleanup(func() { close(release) })
			Expect(clientFor(s, short).ListServers(context.Background())).Error().To(MatchError(context.DeadlineExceeded))
		})
		It("should meet the deadline when the account is not told", func(ctx SpecContext) {
			client := clientFor(hung(), func(c *bizfly.Config) { c.Timeouts.Login = 200 * time.Millisecond })
			_, err := client.Account(context.Background())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(bizfly.IsOutage(err)).To(BeTrue())
		})
		It("should meet the deadline when the login hangs", func(ctx SpecContext) {
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
	Describe("gobizfly panics at a 401, replays it without its body, or recurses", func() {
		replays := func(ctx context.Context, s *stub, proto string) {
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
		It("should replay once with the whole body over HTTP/1.1", func(ctx SpecContext) { replays(ctx, newStub(nil), "HTTP/1.1") })
		It("should replay once with the whole body over HTTP/2", func(ctx SpecContext) { replays(ctx, newTLSStub(true, nil), "HTTP/2.0") })

		It("should log in once for a storm of 401", func(ctx SpecContext) {
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
			Expect(client.Scope(ctx)).Error().ToNot(HaveOccurred())
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
		It("should give up with a typed error when a fresh token is rejected, and log in once", func(ctx SpecContext) {
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
		It("should log in again half a minute after a fresh token was rejected, and no sooner", func(ctx SpecContext) {
			clock := &skipping{}
			s := newStub(always(401, `{"message":"no"}`))
			client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
			for _, logins := range []int{2, 2, 3} {
				_, err := client.ListServers(ctx)
				Expect(bizfly.IsAuth(err)).To(BeTrue())
				Expect(s.logins.Load()).To(BeEquivalentTo(logins))
				clock.Step(20 * time.Second)
			}
		})
		It("should log in for a service although another one has just rejected a fresh token", func(ctx SpecContext) {
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				again := strings.HasPrefix(r.URL.Path, "/api/kubernetes-engine") || r.Header.Get("X-Auth-Token") != "MARKED-token-3"
				answer(w, lo.Ternary(again, 401, 200), `[]`)
			})
			client := clientFor(s)
			Expect(client.GetCluster(ctx, "uid")).Error().To(MatchError(ContainSubstring("a fresh token was rejected too")))
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred(), "the second token has been revoked")
		})
		It("should not recurse when every login is rejected", func(ctx SpecContext) {
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
	It("should not recurse when the service catalog is rejected", func(ctx SpecContext) {
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
	It("should use tokens for application credentials too, also after a 401", func(ctx SpecContext) {
		var logins []string
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			answer(w, lo.Ternary(r.Header.Get("X-Auth-Token") == "t-1", 401, 200), `[]`)
		})
		s.token = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			logins = append(logins, string(body))
			answer(w, 200, fmt.Sprintf(`{"token":"t-%d","project_id":"%s"}`, len(logins), project))
		}
		Expect(clientFor(s, func(c *bizfly.Config) {
			c.AuthMethod, c.Email, c.Password = bizfly.AuthMethodAppCredential, "", ""
			c.AppCredID, c.AppCredSecret = "cred-id", "cred-secret"
		}).ListServers(ctx)).Error().ToNot(HaveOccurred())
		Expect(logins).To(HaveLen(2))
		for _, body := range logins {
			Expect(body).To(MatchJSON(`{"auth_method":"application_credential","credential_id":"cred-id","credential_secret":"cred-secret"}`))
		}
		Expect(s.seen()).ToNot(BeEmpty())
		for _, request := range s.seen() {
			Expect(request.Header).To(HaveKeyWithValue("X-Auth-Type", []string{"token"}))
			Expect(request.Header).To(HaveKeyWithValue("X-Project-Id", []string{project}))
			Expect(request.Header).ToNot(HaveKey("X-App-Credential-Secret"))
		}
	})
	Describe("gobizfly overwrites the project", func() {
		It("should send the project of the token's reply with every request", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			client := clientFor(s)
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.seen()[0].Header.Get("X-Project-ID")).To(Equal(project))
			Expect(client.Scope(ctx)).To(Equal(bizfly.Scope{Host: strings.TrimPrefix(s.URL, "http://"), Region: "HaNoi", ProjectID: project}))
		})
		It("should reject a token of another project than the configured one", func(ctx SpecContext) {
			s := newStub(always(404, `{"message":"not found"}`))
			client := clientFor(s, func(c *bizfly.Config) { c.ProjectID = "another" })
			_, err := client.GetServer(ctx, serverID)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("another"), ContainSubstring(project), ContainSubstring("BIZFLY_CLOUD_PROJECT_ID"))))
			_, err = client.Scope(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(s.seen()).To(BeEmpty())
		})
		It("should reject a token whose project nothing names", func(ctx SpecContext) {
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				answer(w, 200, lo.Ternary(strings.HasSuffix(r.URL.Path, "/user"), `{}`, `[]`))
			})
			s.token = always(200, `{"token":"t"}`)
			_, err := clientFor(s).ListVolumes(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(s.seen()).To(HaveExactElements(HaveField("Path", HaveSuffix("/user")), HaveField("Path", HaveSuffix("/servers"))), "what may name it")
		})
		It("should reject a credential whose project changes under way", func(ctx SpecContext) {
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				answer(w, lo.Ternary(r.Header.Get("X-Auth-Token") == "t-1", 401, 404), `{"message":"?"}`)
			})
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, fmt.Sprintf(`{"token":"t-%d","project_id":"project-%d"}`, s.logins.Load(), s.logins.Load()))
			}
			client := clientFor(s)
			scope := lo.Must(client.Scope(ctx))
			Expect(scope.ProjectID).To(Equal("project-1"))
			client.Confirm(scope)
			_, err := client.GetServer(ctx, serverID)
			Expect(bizfly.IsNotFound(err)).To(BeFalse())
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("project-1"), ContainSubstring("project-2"))))
			Expect(s.seen()).To(HaveLen(1))
		})
	})
	It("should be free of races, where gobizfly writes its fields in each request", func(ctx SpecContext) {
		var turn atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			// Now and then a token is rejected.
			answer(w, lo.Ternary(turn.Add(1)%7 == 0, 401, 200), lo.Ternary(r.Method == "GET" && !strings.Contains(r.URL.Path, "/servers/"), `[]`, `{}`))
		})
		client := clientFor(s)
		var done sync.WaitGroup
		for i := range 8 {
			for name, call := range everyCall() {
				done.Go(func() {
					if err := call(ctx, client); err != nil {
						defer GinkgoRecover()
						Expect(typed(err).Operation).To(Equal(name))
					}
				})
			}
			done.Go(func() {
				defer GinkgoRecover()
				Expect(client.Reconfigure(configFor(s, func(c *bizfly.Config) { c.Password = fmt.Sprintf("password-%d", i) }))).To(Succeed())
			})
		}
		done.Wait()
	})
})
