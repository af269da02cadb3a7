// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Resume", func() {
	quick := func(c *instance.Config) {
		c.Settings = times(func(o *options.Options) { o.ServerIDWait = 100 * time.Millisecond })
	}

	It("should find the server of a create request that another call waited for", func() {
		w := newWorld(cloud.Options{})
		server, intent := w.launch()
		Expect(w.restart().Resume(ctx, claimUID, intent)).To(Equal(server))
		Expect(w.count(createServer)).To(Equal(1))
	})
	It("should find the server of a create request of which only the intent was recorded", func() {
		w := newWorld(cloud.Options{})
		server, intent := w.launch()
		intent.TaskID = ""
		found := lo.Must(w.restart().Resume(ctx, claimUID, intent))
		Expect(found.ID).To(Equal(server.ID))
	})
	It("should find a server that comes while it waits", func() {
		w := newWorld(cloud.Options{Latency: 100 * time.Millisecond, HideBuilding: true}, func(c *instance.Config) {
			c.Settings = times(func(o *options.Options) { o.ServerIDWait = time.Nanosecond })
		})
		request, written := w.request()
		_, _, err := send(ctx, w.provider, request, written)
		Expect(err).To(MatchError(instance.ErrAwaitingServerID))
		found := lo.Must(w.restart(func(c *instance.Config) {
			c.Settings = times(func(o *options.Options) { o.ServerIDWait = 20 * time.Second })
		}).Resume(ctx, claimUID, written.last()))
		Expect(found.ID).To(Equal(w.box.Servers()[0].ID))
		Expect(w.count(createServer)).To(Equal(1))
	})
	It("should adopt its server whatever it is called", func() {
		w := newWorld(cloud.Options{})
		server := w.box.AddServer(cloud.ServerSpec{Name: "mine", Metadata: metadata(clusterUID, claimUID, 1)})
		Expect(w.provider.Resume(ctx, claimUID, w.intent())).To(HaveField("ID", server.ID))
	})
	DescribeTable("should adopt nothing but the server of this create request",
		func(server func(*world) cloud.ServerSpec) {
			w := newWorld(cloud.Options{}, quick)
			w.box.AddServer(server(w))
			_, err := w.provider.Resume(ctx, claimUID, w.intent())
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
		},
		Entry("not that of a cluster of the same name", func(w *world) cloud.ServerSpec {
			return cloud.ServerSpec{Name: w.intent().Name, Metadata: metadata("another-cluster", claimUID, 1)}
		}),
		Entry("not that of an earlier claim of the same name", func(w *world) cloud.ServerSpec {
			return cloud.ServerSpec{Name: w.intent().Name, Metadata: metadata(clusterUID, "another-claim", 1)}
		}),
		Entry("not that of another attempt", func(w *world) cloud.ServerSpec {
			return cloud.ServerSpec{Name: w.intent().Name, Metadata: metadata(clusterUID, claimUID, 2)}
		}),
		Entry("not one without our metadata", func(w *world) cloud.ServerSpec { return cloud.ServerSpec{Name: w.intent().Name} }),
		Entry("not one that is gone", func(w *world) cloud.ServerSpec {
			return cloud.ServerSpec{Name: w.intent().Name, Status: instance.StatusDeleted, Metadata: metadata(clusterUID, claimUID, 1)}
		}),
	)
	DescribeTable("should adopt no server that a task names but that this create request has not made",
		func(theirs func(*instance.Config), request func(*instance.LaunchRequest)) {
			w := newWorld(cloud.Options{}, quick)
			made, written := w.request(request)
			_, intent, err := send(ctx, w.restart(theirs, func(c *instance.Config) { c.Settings = times(func(*options.Options) {}) }), made, written)
			Expect(err).NotTo(HaveOccurred())
			Expect(intent.TaskID).NotTo(BeEmpty())
			_, err = w.provider.Resume(ctx, claimUID, intent)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
		},
		Entry("but another cluster", func(c *instance.Config) { c.ClusterUID = "another-cluster" }, func(*instance.LaunchRequest) {}),
		Entry("but one for another NodeClaim", func(*instance.Config) {}, func(r *instance.LaunchRequest) { r.NodeClaim.UID = "another" }),
	)
	DescribeTable("should never adopt a server that will not run",
		func(status string) {
			w := newWorld(cloud.Options{})
			w.box.AddServer(cloud.ServerSpec{Name: w.intent().Name, Status: status, Metadata: metadata(clusterUID, claimUID, 1)})
			_, err := w.provider.Resume(ctx, claimUID, w.intent())
			Expect(err).To(MatchError(instance.ErrBuildFailed))
		},
		Entry("in ERROR", instance.StatusError),
		Entry("on its way out", instance.StatusDeleting),
	)
	It("should launch a claim made anew under the same name beside the old server", func() {
		w := newWorld(cloud.Options{})
		old, _ := w.launch()
		made, _ := w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.UID = "made-anew" })
		Expect(made.ID).NotTo(Equal(old.ID))
		Expect(made.Name).NotTo(Equal(old.Name))
		Expect(made.NodeClaimUID).To(Equal("made-anew"))
	})
	It("should choose the oldest of two servers of one create request, however the list is sorted", func() {
		w := newWorld(cloud.Options{})
		spec := cloud.ServerSpec{Name: w.intent().Name, Metadata: metadata(clusterUID, claimUID, 1)}
		broken, second, first := w.box.AddServer(spec), w.box.AddServer(spec), w.box.AddServer(spec)
		for at, server := range map[string]cloud.Server{"2026-01-01T00:00:02Z": second, "2026-01-01T00:00:01Z": first, "2026-01-01T00:00:00Z": broken} {
			w.box.EditServer(server.ID, func(s *cloud.Server) {
				s.Created = at
				s.Status = lo.Ternary(s.ID == broken.ID, instance.StatusError, s.Status)
			})
		}
		found := lo.Must(w.provider.Resume(ctx, claimUID, w.intent()))
		Expect(found.ID).To(Equal(first.ID))
	})
	Context("when nothing is found", func() {
		late := func(w *world) instance.Intent {
			return w.intent(func(i *instance.Intent) { i.RequestedAt = time.Now().Add(-3 * time.Minute) })
		}
		It("should go on waiting within the window", func() {
			w := newWorld(cloud.Options{}, quick)
			_, err := w.provider.Resume(ctx, claimUID, w.intent())
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			Expect(err).NotTo(MatchError(instance.ErrOutcomeUnknown))
		})
		It("should report the outcome as unknown after the window and never launch again", func() {
			w := newWorld(cloud.Options{})
			_, err := w.provider.Resume(ctx, claimUID, late(w))
			Expect(err).To(MatchError(instance.ErrOutcomeUnknown))
			Expect(w.count(createServer)).To(BeZero())
		})
		It("should report the outcome as unknown when the window passes while it waits", func() {
			now := clocktesting.NewFakeClock(time.Now())
			w := newWorld(cloud.Options{}, func(c *instance.Config) {
				c.Clock = now
				c.Settings = times(func(o *options.Options) { o.ServerPollInterval, o.ServerIDWait = 2*time.Second, time.Hour })
			})
			done := make(chan error, 1)
			intent := w.intent(func(i *instance.Intent) { i.RequestedAt = now.Now() })
			go func() { _, err := w.provider.Resume(ctx, claimUID, intent); done <- err }()
			Eventually(func() int { return w.count(listServers) }).Should(Equal(1))
			Eventually(now.HasWaiters).Should(BeTrue())
			now.Step(time.Minute)
			Eventually(func() int { return w.count(listServers) }).Should(Equal(2))
			Eventually(now.HasWaiters).Should(BeTrue(), "it has looked, and waits for the next look")
			Expect(done).ToNot(Receive())
			Eventually(func() chan error { now.Step(time.Minute); return done }).Should(Receive(MatchError(instance.ErrOutcomeUnknown)))
		})
		It("should report the outcome as unknown after the window when the task is gone", func() {
			w := newWorld(cloud.Options{})
			intent := late(w)
			intent.TaskID = "71b9caeb-0000-4000-8000-000000000000"
			_, err := w.provider.Resume(ctx, claimUID, intent)
			Expect(err).To(MatchError(instance.ErrOutcomeUnknown))
		})
		It("should go on waiting after the window while the task runs", func() {
			w := newWorld(cloud.Options{Latency: time.Hour, HideBuilding: true}, quick)
			request, written := w.request()
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			intent := written.last()
			intent.RequestedAt = late(w).RequestedAt
			_, err = w.provider.Resume(ctx, claimUID, intent)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			Expect(w.count(getTask)).To(BeNumerically(">", 1))
		})
		DescribeTable("should decide nothing by what it could not read",
			func(path string) {
				w := newWorld(cloud.Options{}, quick)
				w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: path, Effect: cloud.EffectStatus, Status: 400})
				intent := late(w)
				intent.TaskID = "71b9caeb-0000-4000-8000-000000000000"
				_, err := w.provider.Resume(ctx, claimUID, intent)
				Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			},
			Entry("the list", "/servers"),
			Entry("the task", "/tasks/*"),
		)
		It("should take a page of the gateway for no answer about the task", func() {
			w := newWorld(cloud.Options{}, quick)
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectHTML, Status: 404})
			intent := late(w)
			intent.TaskID = "71b9caeb-0000-4000-8000-000000000000"
			_, err := w.provider.Resume(ctx, claimUID, intent)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
		})
	})
	It("should say that a build failed before it was waited for again", func() {
		w := newWorld(cloud.Options{HideBuilding: true})
		w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectNoCapacity, Async: true})
		request, written := w.request()
		ended := w.restart(func(c *instance.Config) {
			c.Settings = times(func(o *options.Options) { o.ServerIDWait = time.Nanosecond })
		})
		_, _, err := send(ctx, ended, request, written)
		Expect(err).To(HaveOccurred())
		_, err = w.provider.Resume(ctx, claimUID, written.last())
		Expect(err).To(MatchError(instance.ErrBuildFailed))
		Expect(ofClass(bizfly.ClassCapacity)(err)).To(BeTrue(), "%v", err)
		Eventually(func() []string {
			Expect(collectOnce(w.provider)).To(Succeed())
			return w.leftovers()
		}).Should(BeEmpty())
	})
})
