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
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Retries", func() {
	var ctx context.Context
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		DeferCleanup(cancel)
	})

	throttled := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "2")
		answer(w, 429, `{"message":"slow down"}`)
	}

	DescribeTable("should repeat a read that may go better",
		func(first http.HandlerFunc) {
			s := newStub(inTurn(first, always(200, `[]`)))
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
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
		func(first http.HandlerFunc) {
			s := newStub(inTurn(first, always(200, `[]`)))
			_, err := clientFor(s).ListServers(ctx)
			Expect(err).To(HaveOccurred())
			Expect(s.seen()).To(HaveLen(1))
		},
		Entry("400", always(400, `{}`)), Entry("403", always(403, `{}`)), Entry("404", always(404, `{}`)), Entry("500", always(500, `{}`)),
		Entry("nonsense", always(200, `{`)), Entry("a 503 that says why", always(503, `{"message":"Vượt quá hạn mức"}`)),
	)

	It("should give up after four attempts, each later than the one before", func() {
		clock := &skipping{}
		s := newStub(page(503))
		_, err := clientFor(s, func(c *bizfly.Config) { c.Clock = clock }).ListServers(ctx)
		Expect(bizfly.IsOutage(err)).To(BeTrue())
		Expect(s.seen()).To(HaveLen(4))
		waits := clock.Waits()
		Expect(waits).To(HaveLen(3))
		for i, ceiling := range []time.Duration{200, 400, 800} {
			Expect(waits[i]).To(And(BeNumerically(">=", ceiling*time.Millisecond/2), BeNumerically("<=", ceiling*time.Millisecond)))
		}
	})

	It("should wait as long as it is asked to", func() {
		clock := &skipping{}
		s := newStub(inTurn(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(503)
		}, always(200, `[]`)))
		_, err := clientFor(s, func(c *bizfly.Config) { c.Clock = clock }).ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(clock.Waits()).To(HaveExactElements(3 * time.Second))
	})

	It("should not wait beyond its deadline, but say when to come back", func() {
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		})
		_, err := clientFor(s).ListServers(ctx)
		Expect(typed(err).RetryAfter).To(BeNumerically("~", time.Hour, time.Minute))
		Expect(s.seen()).To(HaveLen(1))
	})

	DescribeTable("should never repeat a create",
		func(first http.HandlerFunc, ambiguous bool) {
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
		Entry("500 page that seems to say why", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte("No valid host was found."))
		}), true),
	)

	Describe("of deletes", func() {
		deletes := func(client *bizfly.Client) map[string]func() error {
			return map[string]func() error{
				"DeleteServer": func() error { _, err := client.DeleteServer(ctx, serverID, nil); return err },
				"DeleteVolume": func() error { return client.DeleteVolume(ctx, "v1") },
			}
		}
		It("should take a 404 for success after an attempt that may have deleted", func() {
			for name := range deletes(nil) {
				for _, first := range []http.HandlerFunc{hangUp, page(502), page(504)} {
					s := newStub(inTurn(first, always(404, `{"message":"not found"}`)))
					Expect(deletes(clientFor(s))[name]()).To(Succeed(), name)
					Expect(methods(s.seen())).To(Equal("DELETE DELETE"))
				}
			}
		})
		It("should say not found after an attempt that was refused", func() {
			for name := range deletes(nil) {
				s := newStub(inTurn(throttled, always(404, `{"message":"not found"}`)))
				Expect(bizfly.IsNotFound(deletes(clientFor(s))[name]())).To(BeTrue(), name)
			}
		})
		It("should not take the page of a gateway for success", func() {
			for name := range deletes(nil) {
				s := newStub(inTurn(hangUp, page(404)))
				Expect(bizfly.IsAmbiguous(deletes(clientFor(s))[name]())).To(BeTrue(), name)
			}
		})
		It("should remain ambiguous when the last attempt was not sent", func() {
			s := newStub(nil)
			s.set(func(s *stub) {
				s.api = func(w http.ResponseWriter, r *http.Request) {
					_ = s.Listener.Close()
					hangUp(w, r)
				}
			})
			_, err := clientFor(s).DeleteServer(ctx, serverID, nil)
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
		})
		It("should repeat leaving the cluster too", func() {
			s := newStub(inTurn(hangUp, always(404, `{"message":"unknown node"}`)))
			Expect(clientFor(s).LeaveCluster(ctx, "uid", clusterToken, "node")).To(Succeed())
			Expect(s.seen()).To(HaveLen(2))
			Expect(s.seen()[1].Header.Get("X-Cluster-Token")).To(Equal(clusterToken))
			Expect(s.seen()[1].Body).To(MatchJSON(`{"node_name":"node"}`))
		})
	})

	Describe("and what was sent", func() {
		It("should say that a create was not sent when nothing listens", func() {
			s := newStub(always(200, `{}`))
			s.catalog = always(200, strings.ReplaceAll(s.services("HN"), s.URL, s.URL))
			client := clientFor(s)
			_, err := client.Scope(ctx)
			Expect(err).ToNot(HaveOccurred())
			s.CloseClientConnections()
			Expect(s.Listener.Close()).To(Succeed())
			Eventually(func(g Gomega) {
				_, err := client.CreateServer(ctx, createRequest())
				g.Expect(bizfly.IsNotSent(err)).To(BeTrue())
				g.Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
				g.Expect(bizfly.IsOutage(err)).To(BeTrue())
			}).WithTimeout(5 * time.Second).Should(Succeed())
		})

		It("should say that a create was not sent when TLS fails", func() {
			s := newTLSStub(false, always(200, `{}`))
			client := clientFor(s, func(c *bizfly.Config) { c.CABundle = nil })
			_, err := client.CreateServer(ctx, createRequest())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(err).To(MatchError(ContainSubstring("certificate")))
			Expect(s.logins.Load()).To(BeZero())
		})

		It("should say that a create was not sent when another host's TLS fails", func() {
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
})

var _ = Describe("Admission", func() {
	var ctx context.Context
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		DeferCleanup(cancel)
	})

	It("should let a thousand creates starve nothing", func() {
		const creates = 1000
		release := make(chan struct{})
		var parallel, most atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				now := parallel.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
					continue
				}
				<-release
				parallel.Add(-1)
				answer(w, 200, `{"task_id":["t"]}`)
				return
			}
			answer(w, 200, `[]`)
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Limits.Create.Concurrency = 5
			c.Limits.Wait = 30 * time.Second
		})
		var done sync.WaitGroup
		var created atomic.Int32
		for range creates {
			done.Go(func() {
				if _, err := client.CreateServer(ctx, createRequest()); err == nil {
					created.Add(1)
				}
			})
		}
		Eventually(parallel.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		for range 20 {
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			s.set(func(s *stub) {})
		}
		s.set(func(s *stub) { s.requests = nil })
		close(release)
		done.Wait()
		Expect(created.Load()).To(BeEquivalentTo(creates))
		Expect(most.Load()).To(BeEquivalentTo(5))
	})

	It("should not send what is not admitted in time, and say so", func() {
		release := make(chan struct{})
		arrived := make(chan struct{}, 8)
		s := newStub(func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		})
		DeferCleanup(func() { close(release) })
		client := clientFor(s, func(c *bizfly.Config) {
			c.Limits.Create.Concurrency = 1
			c.Limits.Wait = 100 * time.Millisecond
		})
		go func() { _, _ = client.CreateServer(ctx, createRequest()) }()
		Eventually(arrived).Should(Receive())
		for _, bound := range []time.Duration{time.Minute, 20 * time.Millisecond} {
			waiting, cancel := context.WithTimeout(ctx, bound)
			_, err := client.CreateServer(waiting, createRequest())
			cancel()
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bizfly.IsThrottled(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).To(MatchError(ContainSubstring("all create slots are taken")))
		}
		Expect(s.seen()).To(HaveLen(1))
	})

	It("should start a call's deadline when it is admitted", func() {
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			timer := time.NewTimer(80 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
			}
			answer(w, 200, `[]`)
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Limits.Read.Concurrency = 1
			c.Timeouts.Read = 400 * time.Millisecond
		})
		var done sync.WaitGroup
		var failed atomic.Int32
		// The last one waits three times its deadline for its turn.
		for range 15 {
			done.Go(func() {
				if _, err := client.ListServers(ctx); err != nil {
					failed.Add(1)
				}
			})
		}
		done.Wait()
		Expect(failed.Load()).To(BeZero())
	})

	It("should keep to the rate of each class", func() {
		clock := &skipping{}
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, map[string]string{"GET": `[]`, "POST": `{"task_id":["t"]}`, "DELETE": `{}`}[r.Method])
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Clock = clock
			c.Limits.Create = bizfly.Limit{QPS: 2, Burst: 3, Concurrency: 5}
		})
		for range 5 {
			_, err := client.CreateServer(ctx, createRequest())
			Expect(err).ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveExactElements(BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond), BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond)))
		for range 20 {
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveLen(2))
	})

	It("should hold all classes back after a 429, once", func() {
		clock := &skipping{}
		s := newStub(inTurn(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "4")
			answer(w, 429, `{}`)
		}, always(200, `[]`)))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		_, err := client.CreateServer(ctx, createRequest())
		Expect(bizfly.IsThrottled(err)).To(BeTrue())
		Expect(typed(err).RetryAfter).To(Equal(4 * time.Second))
		_, err = client.ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		_, err = client.DeleteServer(ctx, serverID, nil)
		Expect(err).To(HaveOccurred())
		Expect(clock.Waits()).To(HaveExactElements(BeNumerically("~", 4*time.Second, time.Second)))
	})

	It("should say at once when a pause is longer than the caller can wait", func() {
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "100000")
			answer(w, 429, `{}`)
		})
		client := clientFor(s)
		_, err := client.CreateServer(ctx, createRequest())
		Expect(bizfly.IsThrottled(err)).To(BeTrue())
		_, err = client.ListServers(ctx)
		Expect(bizfly.IsThrottled(err)).To(BeTrue())
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		// However long a 429 asks, we try again within minutes.
		Expect(typed(err).RetryAfter).To(And(BeNumerically(">", time.Minute), BeNumerically("<=", 5*time.Minute)))
		Expect(s.seen()).To(HaveLen(1))
	})
})

var _ = Describe("Login", func() {
	var ctx context.Context
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		DeferCleanup(cancel)
	})

	It("should back off longer after each failure", func() {
		for failures, ceiling := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			Expect(bizfly.Backoff(failures)).To(And(BeNumerically("<=", ceiling*time.Second), BeNumerically(">=", ceiling*time.Second*3/4)))
		}
		Expect(bizfly.Backoff(1000)).To(BeNumerically("<=", 5*time.Minute))
	})

	It("should not try again before its back-off has passed, and then recover", func() {
		clock := &skipping{}
		s := newStub(always(200, `[]`))
		s.token = inTurn(page(503), page(503), always(200, `{"token":"t","project_id":"p"}`))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		for range 3 {
			_, err := client.Scope(ctx)
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(typed(err).RetryAfter).To(BeNumerically(">", 0))
		}
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
		clock.Step(time.Second)
		_, err := client.Scope(ctx)
		Expect(err).To(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(2))
		clock.Step(time.Second)
		_, err = client.Scope(ctx)
		Expect(err).To(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(2))
		clock.Step(time.Second)
		_, err = client.Scope(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(client.Health().LastLogin).To(BeTemporally("~", clock.Now(), time.Second))
	})

	It("should log in once for many callers", func() {
		s := newStub(always(200, `[]`))
		client := clientFor(s)
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() { _, _ = client.ListServers(ctx) })
		}
		done.Wait()
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
		Expect(s.catalogs.Load()).To(BeEquivalentTo(1))
		Expect(s.seen()).To(HaveLen(50))
	})

	DescribeTable("should renew the token at four fifths of its life, without making a call wait",
		func(field, layout string, life time.Duration) {
			clk := &skipping{}
			s := newStub(always(200, `[]`))
			hold := make(chan struct{})
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				if s.logins.Load() == 2 {
					<-hold
				}
				expiry := ""
				if field != "" {
					expiry = `,"` + field + `":"` + clk.Now().Add(life).UTC().Format(layout) + `"`
				}
				answer(w, 200, `{"token":"t","project_id":"p"`+expiry+`}`)
			}
			client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			clk.Step(life*4/5 - time.Minute)
			_, err = client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(s.logins.Load()).To(BeEquivalentTo(1))
			clk.Step(2 * time.Minute)
			_, err = client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
			Eventually(s.logins.Load).Should(BeEquivalentTo(2))
			close(hold)
		},
		Entry("expire_at", "expire_at", "2006-01-02T15:04:05.000000Z", 2*time.Hour),
		Entry("expires_at", "expires_at", time.RFC3339, 10*time.Hour),
		Entry("without a zone", "expires_at", "2006-01-02T15:04:05.000000", 2*time.Hour),
		Entry("unknown: four hours", "", "", 4*time.Hour),
		Entry("unreadable: four hours", "expire_at", "Monday", 4*time.Hour),
	)

	It("should keep using a token that cannot be renewed yet", func() {
		clk := &skipping{}
		s := newStub(always(200, `[]`))
		s.token = inTurn(always(200, `{"token":"t","project_id":"p"}`), page(503))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
		_, err := client.ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		clk.Step(3*time.Hour + 30*time.Minute)
		for range 3 {
			_, err = client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
		}
		Eventually(s.logins.Load).Should(BeEquivalentTo(2))
		clk.Step(time.Hour)
		_, err = client.ListServers(ctx)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(bizfly.IsOutage(err)).To(BeTrue())
	})

	DescribeTable("should refuse an answer that is no token", func(status int, body string) {
		s := newStub(always(200, `[]`))
		s.token = always(status, body)
		_, err := clientFor(s).ListServers(ctx)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
		Expect(s.seen()).To(BeEmpty())
	},
		Entry("empty", 200, ""), Entry("204", 204, ""), Entry("no token", 200, `{"project_id":"p"}`), Entry("a page", 200, `<html>`),
		Entry("a header in a token", 200, `{"token":"a\r\nX-Evil: 1","project_id":"p"}`), Entry("400", 400, `{"message":"bad"}`), Entry("500", 500, ``),
		Entry("404", 404, `{}`),
	)

	It("should not be stopped by the caller who started it", func() {
		s := newStub(always(200, `[]`))
		hold := make(chan struct{})
		s.token = func(w http.ResponseWriter, _ *http.Request) {
			<-hold
			answer(w, 200, `{"token":"t","project_id":"p"}`)
		}
		client := clientFor(s)
		impatient, cancel := context.WithCancel(ctx)
		gone := make(chan error, 1)
		go func() { _, err := client.ListServers(impatient); gone <- err }()
		Eventually(s.logins.Load).Should(BeEquivalentTo(1))
		patient := make(chan error, 1)
		go func() { _, err := client.ListServers(ctx); patient <- err }()
		cancel()
		Eventually(gone).Should(Receive(MatchError(context.Canceled)))
		close(hold)
		Eventually(patient).WithTimeout(5 * time.Second).Should(Receive(BeNil()))
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
	})
})

var _ clock.Clock = &skipping{}
