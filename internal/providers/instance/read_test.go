// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Get", func() {
	var w *world
	BeforeEach(func() { w = newWorld(cloud.Options{}) })
	It("should return a server of this cluster", func() {
		server, _ := w.launch()
		Expect(w.provider.Get(ctx, server.ID)).To(Equal(server))
	})
	It("should find it in a recent list without a call, and read only what the list lacks", func() {
		w := newWorld(cloud.Options{}, sharing)
		server, _ := w.launch()
		Expect(w.provider.List(ctx)).Error().NotTo(HaveOccurred())
		w.box.ResetRequests()
		Expect(w.provider.Get(ctx, server.ID)).To(HaveField("ID", server.ID))
		Expect(w.box.Requests()).To(BeEmpty())
		_, err := w.provider.Get(ctx, "71b9caeb-0000-4000-8000-000000000000")
		Expect(err).To(MatchError(instance.ErrNotFound))
		Expect(w.count(getServer)).To(Equal(1))
	})
	It("should not find what does not exist", func() {
		_, err := w.provider.Get(ctx, "71b9caeb-0000-4000-8000-000000000000")
		Expect(err).To(MatchError(instance.ErrNotFound))
	})
	DescribeTable("should not find a server of someone else",
		func(spec cloud.ServerSpec) {
			spec.Name = instance.Name(claimName, claimUID, clusterUID, 1)
			_, err := w.provider.Get(ctx, w.box.AddServer(spec).ID)
			Expect(err).To(MatchError(instance.ErrNotFound))
		},
		Entry("without metadata", cloud.ServerSpec{}),
		Entry("of a cluster of the same name", cloud.ServerSpec{Metadata: metadata("another-cluster", claimUID, 1)}),
		Entry("that is only still listed", cloud.ServerSpec{Status: instance.StatusSoftDeleted, Metadata: metadata(clusterUID, claimUID, 1)}),
	)
	DescribeTable("should take nothing but the API's own 404 for gone",
		func(fault cloud.Fault) {
			server, _ := w.launch()
			fault.Method, fault.Path = "GET", "/servers/*"
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectBody, Body: "[]"}, fault)
			_, err := w.provider.Get(ctx, server.ID)
			Expect(err).To(HaveOccurred())
			Expect(err).NotTo(MatchError(instance.ErrNotFound))
		},
		Entry("a page of the gateway", cloud.Fault{Effect: cloud.EffectHTML, Status: 404}),
		Entry("a rejection", cloud.Fault{Effect: cloud.EffectStatus, Status: 403}),
		Entry("an empty answer", cloud.Fault{Effect: cloud.EffectEmpty}),
	)
})

var _ = Describe("List", func() {
	It("should return the servers of this cluster, whatever state they are in", func() {
		w := newWorld(cloud.Options{})
		w.box.AddServer(cloud.ServerSpec{Name: "mine", Metadata: metadata(clusterUID, "a", 1)})
		w.box.AddServer(cloud.ServerSpec{Name: "broken", Status: instance.StatusError, Metadata: metadata(clusterUID, "b", 1)})
		w.box.AddServer(cloud.ServerSpec{Name: "leaving", Status: instance.StatusDeleting, Metadata: metadata(clusterUID, "c", 1)})
		w.box.AddServer(cloud.ServerSpec{Name: "theirs", Metadata: metadata("another-cluster", "a", 1)})
		w.box.AddServer(cloud.ServerSpec{Name: "foreign"})
		servers := lo.Must(w.provider.List(ctx))
		Expect(lo.Map(servers, func(s *instance.Instance, _ int) string { return s.Name })).To(ConsistOf("mine", "broken", "leaving"))
		Expect(lo.CountBy(servers, func(s *instance.Instance) bool { return s.Failed() })).To(Equal(1))
		Expect(lo.CountBy(servers, func(s *instance.Instance) bool { return s.Deleting() })).To(Equal(1))
	})
	It("should share one list among all concurrent readers", func() {
		w := newWorld(cloud.Options{})
		w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectDelay, Delay: 100 * time.Millisecond})
		var wait sync.WaitGroup
		errs := make([]error, 50)
		for i := range errs {
			wait.Go(func() { _, errs[i] = w.provider.List(ctx) })
		}
		wait.Wait()
		for _, err := range errs {
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(w.count(listServers)).To(BeNumerically("<=", 2))
	})
	It("should use a list for as long as it is young", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, sharing, func(c *instance.Config) { c.Clock = now })
		for range 5 {
			Expect(w.provider.List(ctx)).Error().NotTo(HaveOccurred())
		}
		Expect(w.count(listServers)).To(Equal(1))
		now.Step(6 * time.Second)
		Expect(w.provider.List(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.count(listServers)).To(Equal(2))
	})
	It("should serve readers that accept an old list from it, and others from a new one", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, sharing, func(c *instance.Config) { c.Clock = now })
		first := lo.Must(w.provider.Snapshot(ctx, time.Minute))
		now.Step(59 * time.Second)
		Expect(w.provider.Snapshot(ctx, time.Minute)).To(BeIdenticalTo(first))
		Expect(w.provider.Snapshot(ctx, 0)).NotTo(BeIdenticalTo(first))
		Expect(w.count(listServers)).To(Equal(2))
	})
	It("should be there without a request as the last one, unless that is old", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, sharing, func(c *instance.Config) { c.Clock = now })
		server, _ := w.launch()
		now.Step(time.Minute)
		Expect(w.provider.Snapshot(ctx, 0)).Error().NotTo(HaveOccurred())
		w.box.ResetRequests()
		servers, ports := w.provider.Last(10 * time.Minute)
		Expect(servers.Get(server.ID)).NotTo(BeNil())
		Expect(ports).To(BeNil(), "they were never listed")
		now.Step(10 * time.Minute)
		servers, _ = w.provider.Last(10 * time.Minute)
		Expect(servers).To(BeNil())
		Expect(w.box.Requests()).To(BeEmpty())
	})
	It("should be indexed by id and NodeClaim, each server converted once for all readers", func() {
		w := newWorld(cloud.Options{}, sharing)
		mine := w.box.AddServer(cloud.ServerSpec{Name: "mine", Metadata: metadata(clusterUID, "a", 1)})
		theirs := w.box.AddServer(cloud.ServerSpec{Name: "theirs", Metadata: metadata("another-cluster", "a", 1)})
		servers := lo.Must(w.provider.Snapshot(ctx, 0))
		Expect(servers.Get(mine.ID)).To(HaveField("Name", "mine"))
		Expect(servers.Get(theirs.ID)).To(BeNil())
		Expect(servers.OfNodeClaim("a")).To(HaveExactElements(BeIdenticalTo(servers.Get(mine.ID))))
		Expect(w.provider.List(ctx)).To(HaveExactElements(BeIdenticalTo(servers.Get(mine.ID))))
	})
	It("should not remember a failure, and never return a part", func() {
		w := newWorld(cloud.Options{})
		w.launch()
		w.provider = w.restart()
		w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Count: 1})
		_, err := w.provider.List(ctx)
		Expect(err).To(HaveOccurred())
		Expect(w.provider.List(ctx)).To(HaveLen(1))
	})
	It("should not make a caller wait longer than its context", func() {
		w := newWorld(cloud.Options{})
		w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectDelay, Delay: time.Hour, Count: 1})
		short, cancel := contextWithTimeout(20 * time.Millisecond)
		defer cancel()
		_, err := w.provider.List(short)
		Expect(err).To(MatchError("listing servers: context deadline exceeded"))
	})
})
