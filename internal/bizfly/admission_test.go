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
	"github.com/prometheus/client_golang/prometheus"

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
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
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
		_, err := client.ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
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
			_, err := client.CreateServer(ctx, createRequest())
			Expect(err).ToNot(HaveOccurred())
		}
		Expect(clock.Waits()).To(HaveExactElements(BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond),
			BeNumerically("~", 500*time.Millisecond, 100*time.Millisecond)))
		for range 20 {
			_, err := client.ListServers(ctx)
			Expect(err).ToNot(HaveOccurred())
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
		_, err = client.CreateServer(ctx, createRequest())
		Expect(err).ToNot(HaveOccurred())
		Expect(client.DeleteServer(ctx, serverID, nil)).To(Succeed())
		_, err = client.ListServers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(clock.Waits()).To(BeEmpty())
		_, err = client.ListNetworkInterfaces(ctx)
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
			_, err = client.CreateServer(ctx, createRequest())
			Expect(err).ToNot(HaveOccurred())
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
		_, err = client.CreateServer(ctx, createRequest())
		Expect(ofClass(bizfly.ClassThrottled)(err)).To(BeTrue())
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		// However long a 429 asks, we try again within minutes.
		Expect(typed(err).RetryAfter).To(And(BeNumerically(">", time.Minute), BeNumerically("<=", 5*time.Minute)))
		Expect(s.seen()).To(HaveLen(1))
	})

	Context("adapting to the cloud", func() {
		var clock *skipping
		var reject atomic.Bool
		var status atomic.Int32
		var client *bizfly.Client
		var registry *prometheus.Registry
		BeforeEach(func() {
			clock, registry = &skipping{}, prometheus.NewRegistry()
			reject.Store(false)
			status.Store(http.StatusTooManyRequests)
			s := newStub(func(w http.ResponseWriter, _ *http.Request) {
				if reject.Load() {
					answer(w, int(status.Load()), `{}`)
					return
				}
				answer(w, 200, `{"task_id":["t"]}`)
			})
			client = clientFor(s, func(c *bizfly.Config) {
				c.Clock, c.Registerer = clock, registry
				c.Limits.Create = bizfly.Limit{QPS: 20, Burst: 20, Concurrency: 5}
			})
		})
		create := func(ctx context.Context) error { _, err := client.CreateServer(ctx, createRequest()); return err }
		rate := func(class string) float64 {
			GinkgoHelper()
			families, err := registry.Gather()
			Expect(err).ToNot(HaveOccurred())
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					if family.GetName() == "karpenter_bizfly_api_rate_limit" && metric.GetLabel()[0].GetValue() == class {
						return metric.GetGauge().GetValue()
					}
				}
			}
			return 0
		}
		rejected := func(ctx context.Context) {
			GinkgoHelper()
			reject.Store(true)
			Expect(ofClass(bizfly.ClassThrottled)(create(ctx))).To(BeTrue())
			reject.Store(false)
		}

		It("should halve the rate of the class on a 429, to no less than one in two seconds", func(ctx SpecContext) {
			deletes := rate("delete")
			Expect(rate("create")).To(BeEquivalentTo(20))
			rejected(ctx)
			Expect(rate("create")).To(BeEquivalentTo(10))
			Expect(rate("delete")).To(Equal(deletes), "another class has another rate")
			for range 40 {
				clock.Step(5 * time.Second)
				rejected(ctx)
			}
			Expect(rate("create")).To(BeNumerically("~", 0.6, 0.3))
		})
		It("should halve it once for a window of rejections, and again for the lowered rate", func(ctx SpecContext) {
			for range 4 {
				rejected(ctx)
			}
			Expect(rate("create")).To(BeNumerically("~", 10, 1), "each waited for the pause of a second")
			clock.Step(2 * time.Minute)
			Expect(create(ctx)).To(Succeed())
			Expect(rate("create")).To(BeNumerically("~", 18, 0.01), "the rate that was rejected is the first one")
			for range 4 {
				rejected(ctx)
			}
			Expect(rate("create")).To(BeNumerically("~", 9, 1))
		})
		DescribeTable("should lower the rate of its own class alone on a 429 to", func(ctx SpecContext, name, class string) {
			before := map[string]float64{}
			for _, each := range []string{"create", "delete", "leave", "read"} {
				before[each] = rate(each)
			}
			reject.Store(true)
			Expect(ofClass(bizfly.ClassThrottled)(everyCall()[name](ctx, client))).To(BeTrue())
			Expect(rate(class)).To(BeNumerically("<", 0.6*before[class]), "it is halved, and grows by a hundredth a second")
			for other, unchanged := range before {
				if other != class {
					Expect(rate(other)).To(Equal(unchanged), other)
				}
			}
		},
			Entry("a create request", "CreateServer", "create"), Entry("what leaves BKE", "LeaveCluster", "leave"),
		)
		It("should raise it slowly, and stay below the rejected rate for ten minutes", func(ctx SpecContext) {
			rejected(ctx)
			clock.Step(10 * time.Second)
			Expect(create(ctx)).To(Succeed())
			Expect(rate("create")).To(BeNumerically("~", 12, 0.5))
			clock.Step(2 * time.Minute)
			Expect(create(ctx)).To(Succeed())
			Expect(rate("create")).To(BeNumerically("~", 18, 0.01))
			clock.Step(8 * time.Minute)
			Expect(create(ctx)).To(Succeed())
			Expect(create(ctx)).To(Succeed())
			Expect(rate("create")).To(BeEquivalentTo(20))
		})
		DescribeTable("should not change it for another failure", func(ctx SpecContext, code int) {
			status.Store(int32(code))
			reject.Store(true)
			Expect(create(ctx)).NotTo(Succeed())
			Expect(rate("create")).To(BeEquivalentTo(20))
		},
			Entry("an outage", http.StatusServiceUnavailable), Entry("a server error", http.StatusInternalServerError),
			Entry("a quota", http.StatusForbidden), Entry("a conflict", http.StatusConflict),
		)
		DescribeTable("should not change it for requests that come singly or are repeated until they succeed", func(ctx SpecContext, name, class string) {
			before := rate(class)
			reject.Store(true)
			for range 5 {
				Expect(ofClass(bizfly.ClassThrottled)(everyCall()[name](ctx, client))).To(BeTrue())
			}
			Expect(rate(class)).To(Equal(before))
		},
			Entry("firewalls", "AddFirewalls", "create"), Entry("network plans", "ChangeNetworkPlan", "create"), Entry("reboots", "RebootServer", "create"),
			Entry("disks", "DeleteVolume", "delete"), Entry("servers", "DeleteServer", "delete"),
		)
		It("should send no faster than that, and less at once", func(ctx SpecContext) {
			began := clock.Now()
			rejected(ctx)
			for range 15 {
				Expect(create(ctx)).To(Succeed())
			}
			Expect(clock.Since(began)).To(BeNumerically(">=", 1450*time.Millisecond), "the pause of a second, and five turns of some 98 ms: ten were sent at once")
		})
	})
})
