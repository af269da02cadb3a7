// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Admission", func() {
	It("should let a thousand creates starve nothing", func(ctx SpecContext) {
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
		client := clientFor(s, func(c *bizfly.Config) { c.Limits.Create.Concurrency = 5 })
		var done sync.WaitGroup
		var called, created atomic.Int32
		for range creates {
			done.Go(func() {
				called.Add(1)
				if _, err := client.CreateServer(ctx, createRequest()); err == nil {
					created.Add(1)
				}
			})
		}
		Eventually(called.Load).Should(BeEquivalentTo(creates))
		Eventually(parallel.Load).Should(BeEquivalentTo(5))
		for range 20 {
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		}
		Expect(created.Load()).To(BeZero())
		close(release)
		done.Wait()
		Expect(created.Load()).To(BeEquivalentTo(creates))
		Expect(most.Load()).To(BeEquivalentTo(5))
	})
	It("should send deletions while the Kubernetes Engine hangs", func(ctx SpecContext) {
		release := make(chan struct{})
		var leaves atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "cluster_leave") {
				leaves.Add(1)
				<-release
			}
			answer(w, 200, map[string]string{"GET": `[]`, "POST": `{"task_id":["t"]}`, "DELETE": `{}`}[r.Method])
		})
		client := clientFor(s, func(c *bizfly.Config) { c.Limits.Delete.Concurrency = 5 })
		var done sync.WaitGroup
		for i := range 40 {
			done.Go(func() { _ = client.LeaveCluster(ctx, "zdckkshu1he44fsb", clusterToken, fmt.Sprintf("node-%d", i)) })
		}
		Eventually(leaves.Load).Should(BeEquivalentTo(5))
		Expect(client.DeleteServer(ctx, serverID, nil)).To(Succeed())
		Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		close(release)
		done.Wait()
		Expect(leaves.Load()).To(BeEquivalentTo(40))
	})
	It("should send deletions while reads and create requests hang", func(ctx SpecContext) {
		release := make(chan struct{})
		var hanging atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodDelete {
				hanging.Add(1)
				<-release
			}
			answer(w, 200, map[string]string{"GET": `[]`, "POST": `{"task_id":["t"]}`, "DELETE": `{}`}[r.Method])
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Limits.Read.Concurrency, c.Limits.Create.Concurrency = 2, 2
			c.Timeouts.Read, c.Timeouts.Create = time.Minute, time.Minute
		})
		var done sync.WaitGroup
		DeferCleanup(func() {
			close(release)
			done.Wait()
		})
		for range 2 {
			done.Go(func() { _, _ = client.ListServers(ctx) })
			done.Go(func() { _, _ = client.CreateServer(ctx, createRequest()) })
		}
		Eventually(hanging.Load).Should(BeEquivalentTo(4))
		for _, call := range []string{"DeleteServer", "DeleteVolume"} {
			Expect(everyCall()[call](bizfly.AdmitWithin(ctx, 3*time.Second), client)).To(Succeed(), call)
		}
	})
	It("should not send what is not admitted in time, and say so", func(ctx SpecContext) {
		release := make(chan struct{})
		arrived := make(chan struct{}, 8)
		s := newStub(func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		})
		DeferCleanup(func() { close(release) })
		client := clientFor(s, func(c *bizfly.Config) { c.Limits.Create.Concurrency = 1 })
		go func() { _, _ = client.CreateServer(ctx, createRequest()) }()
		Eventually(arrived).Should(Receive())
		for _, bound := range []time.Duration{time.Minute, 20 * time.Millisecond} {
			waiting, cancel := context.WithTimeout(ctx, bound)
			_, err := client.CreateServer(bizfly.AdmitWithin(waiting, 100*time.Millisecond), createRequest())
			cancel()
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).To(MatchError(ContainSubstring("all create slots are taken")))
		}
		Expect(s.seen()).To(HaveLen(1))
	})
	It("should bound the wait by AdmitWithin, and leave a call that was sent its own deadline", func(ctx SpecContext) {
		release := make(chan struct{})
		arrived := make(chan struct{}, 8)
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-release
			answer(w, 200, `{"task_id":["t"]}`)
		})
		client := clientFor(s, func(c *bizfly.Config) { c.Limits.Create.Concurrency = 1 })
		// The first call must be admitted in it however busy the machine is; the second lasts that long.
		const admitted = 3 * time.Second
		sent := make(chan error, 1)
		go func() {
			_, err := client.CreateServer(bizfly.AdmitWithin(ctx, admitted), createRequest())
			sent <- err
		}()
		Eventually(arrived).Should(Receive())
		_, err := client.CreateServer(bizfly.AdmitWithin(ctx, admitted), createRequest())
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(bizfly.IsRetryable(err)).To(BeTrue())
		Expect(sent).ToNot(Receive())
		close(release)
		Eventually(sent).Should(Receive(BeNil()))
	})
	It("should start a call's deadline when it is admitted", func(ctx SpecContext) {
		const deadline, hanging = 500 * time.Millisecond, 3
		var arrived atomic.Int32
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if arrived.Add(1) <= hanging {
				<-r.Context().Done()
			}
			answer(w, 200, `[]`)
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Limits.Read.Concurrency = 1
			c.Timeouts.Read = deadline
		})
		// The last one has waited for the others, each of which had all of its own deadline, and is answered.
		errs := make(chan error, hanging+1)
		for range hanging + 1 {
			go func() { _, err := client.ListServers(ctx); errs <- err }()
		}
		for range hanging {
			Eventually(errs).Should(Receive(HaveOccurred()))
		}
		Eventually(errs).Should(Receive(BeNil()))
	})
	It("should keep to the rate of each class", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, map[string]string{"GET": `[]`, "POST": `{"task_id":["t"]}`, "DELETE": `{}`}[r.Method])
		})
		client := clientFor(s, func(c *bizfly.Config) {
			c.Clock = clock
			c.Limits.Create = bizfly.Limit{QPS: 2, Burst: 3, Concurrency: 5}
		})
		for range 5 {
			Expect(client.CreateServer(ctx, createRequest())).Error().ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveExactElements(BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond),
			BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond)))
		for range 20 {
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveLen(2))
	})
	It("should hold back the route that got a 429, and no other", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "network-interfaces") {
				w.Header().Set("Retry-After", "300")
				answer(w, 429, `{"message":"API rate limit exceeded for this route"}`)
				return
			}
			answer(w, 200, map[string]string{"GET": `[]`, "POST": `{"task_id":["t"]}`, "DELETE": `{}`}[r.Method])
		})
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		_, err := client.ListNetworkInterfaces(ctx)
		Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
		Expect(client.CreateServer(ctx, createRequest())).Error().ToNot(HaveOccurred())
		Expect(client.DeleteServer(ctx, serverID, nil)).To(Succeed())
		Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		Expect(clock.Waits()).To(BeEmpty())
		_, err = client.ListNetworkInterfaces(bizfly.AdmitWithin(ctx, 30*time.Second))
		Expect(err).To(MatchError(ContainSubstring("the cloud asked ListNetworkInterfaces to pause")))
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
	})
	It("should wait as long as a 429 asked, and a second where it gave no time", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(inTurn(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "4")
			answer(w, 429, `{}`)
		}, always(200, `{"task_id":["t"]}`), always(429, `{}`), always(200, `{"task_id":["t"]}`)))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		for _, asked := range []time.Duration{4 * time.Second, 0} {
			_, err := client.CreateServer(ctx, createRequest())
			Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
			Expect(typed(err).RetryAfter).To(Equal(asked))
			Expect(client.CreateServer(ctx, createRequest())).Error().ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveExactElements(BeNumerically("~", 4*time.Second, time.Second), BeNumerically("~", time.Second, 500*time.Millisecond)))
	})
	It("should say at once when a pause is longer than the caller can wait", func(ctx SpecContext) {
		s := newStub(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "100000")
			answer(w, 429, `{}`)
		})
		client := clientFor(s)
		_, err := client.CreateServer(ctx, createRequest())
		Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
		_, err = client.CreateServer(bizfly.AdmitWithin(ctx, 30*time.Second), createRequest())
		Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		// However long a 429 asks, one request tries again within a minute.
		Expect(typed(err).RetryAfter).To(And(BeNumerically(">", 50*time.Second), BeNumerically("<=", time.Minute)))
		Expect(s.seen()).To(HaveLen(1))
	})
	Context("in a pause of minutes", func() {
		var clock *skipping
		var rejected atomic.Int32
		var requests atomic.Int32
		var client *bizfly.Client
		create := func(ctx context.Context) error {
			_, err := client.CreateServer(bizfly.AdmitWithin(ctx, time.Second), createRequest())
			return err
		}
		BeforeEach(func(ctx SpecContext) {
			clock = &skipping{}
			requests.Store(0)
			rejected.Store(http.StatusTooManyRequests)
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					answer(w, 200, `{}`) // whether the account is unpaid
					return
				}
				requests.Add(1)
				if status := rejected.Load(); status != 0 {
					w.Header().Set("Retry-After", "300")
					answer(w, int(status), `{}`)
					return
				}
				answer(w, 200, `{"task_id":["t"]}`)
			})
			client = clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
			Expect(ofClass(bizfly.ClassThrottled)(create(ctx))).To(BeTrue())
			Expect(create(ctx)).To(MatchError(ContainSubstring("the cloud asked CreateServer to pause")))
			clock.Step(55 * time.Second)
			Expect(create(ctx)).To(MatchError(ContainSubstring("the cloud asked CreateServer to pause")))
			Expect(requests.Load()).To(BeEquivalentTo(1))
			clock.Step(5 * time.Second)
		})
		It("should let one request try after a minute, and go on pausing where it is rejected too", func(ctx SpecContext) {
			Expect(ofClass(bizfly.ClassThrottled)(create(ctx))).To(BeTrue())
			Expect(requests.Load()).To(BeEquivalentTo(2))
			clock.Step(55 * time.Second)
			Expect(create(ctx)).To(MatchError(ContainSubstring("the cloud asked CreateServer to pause")))
			Expect(requests.Load()).To(BeEquivalentTo(2))
		})
		DescribeTable("should end it where that one is not rejected for its rate", func(ctx SpecContext, status int) {
			rejected.Store(int32(status))
			Expect(bizfly.IsNotSent(create(ctx))).To(BeFalse())
			rejected.Store(0)
			Expect(create(ctx)).To(Succeed())
			Expect(requests.Load()).To(BeEquivalentTo(3))
		},
			Entry("but accepted", 0), Entry("but for a quota", http.StatusForbidden), Entry("but as invalid", http.StatusBadRequest),
		)
		It("should let another one try soon where a failing server has answered the first", func(ctx SpecContext) {
			rejected.Store(http.StatusInternalServerError)
			Expect(create(ctx)).ToNot(Succeed())
			rejected.Store(0)
			Expect(create(ctx)).To(MatchError(ContainSubstring("the cloud asked CreateServer to pause")))
			clock.Step(5 * time.Second)
			Expect(create(ctx)).To(Succeed())
			Expect(create(ctx)).To(Succeed())
			Expect(requests.Load()).To(BeEquivalentTo(4))
		})
		It("should let all that wait go on within seconds after the one that tries", func(ctx SpecContext) {
			rejected.Store(0)
			var done sync.WaitGroup
			var failed atomic.Int32
			for range 20 {
				done.Go(func() {
					if _, err := client.CreateServer(ctx, createRequest()); err != nil {
						failed.Add(1)
					}
				})
			}
			done.Wait()
			Expect(failed.Load()).To(BeZero())
		})
	})
})
