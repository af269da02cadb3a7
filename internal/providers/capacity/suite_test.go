// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestCapacity(t *testing.T) { suite.Run(t, "Capacity") }

var _ = Describe("Capacity", func() {
	var clk *clocktesting.FakeClock
	var provider *capacity.DefaultProvider
	offering := capacity.Offering{Flavor: "p2.2c_4g", Zone: "HN1", BillingPlan: "on_demand"}

	BeforeEach(func() {
		clk = clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
		provider = capacity.NewDefaultProvider(clk)
	})
	It("should have every offering available at first", func() {
		_, unavailable := provider.Unavailable(offering)
		Expect(unavailable).To(BeFalse())
	})
	DescribeTable("should let a mark cover its scope and no more",
		func(ctx context.Context, scope capacity.Offering, covered bool) {
			provider.MarkUnavailable(ctx, scope, capacity.ReasonInsufficientCapacity, time.Minute)
			ofClass := offering
			ofClass.NodeClass = "a"
			reason, unavailable := provider.Unavailable(ofClass)
			Expect(unavailable).To(Equal(covered))
			if covered {
				Expect(reason).To(Equal(capacity.ReasonInsufficientCapacity))
			}
		},
		Entry("the offering itself", offering, true),
		Entry("the flavor", capacity.Offering{Flavor: "p2.2c_4g"}, true),
		Entry("the zone", capacity.Offering{Zone: "HN1"}, true),
		Entry("the billing plan", capacity.Offering{BillingPlan: "on_demand"}, true),
		Entry("the flavor in the zone with any plan", capacity.Offering{Flavor: "p2.2c_4g", Zone: "HN1"}, true),
		Entry("the zone with the plan", capacity.Offering{Zone: "HN1", BillingPlan: "on_demand"}, true),
		Entry("the whole account", capacity.Offering{}, true),
		Entry("another flavor", capacity.Offering{Flavor: "p2.4c_8g", Zone: "HN1", BillingPlan: "on_demand"}, false),
		Entry("another zone", capacity.Offering{Zone: "HN2"}, false),
		Entry("another plan", capacity.Offering{BillingPlan: "saving_plan"}, false),
		Entry("the NodeClass", capacity.Offering{NodeClass: "a"}, true),
		Entry("the offering to the NodeClass", capacity.Offering{Flavor: "p2.2c_4g", Zone: "HN1", BillingPlan: "on_demand", NodeClass: "a"}, true),
		Entry("another NodeClass", capacity.Offering{NodeClass: "b"}, false),
	)
	It("should mark many scopes with one new number, and count no failure", func(ctx context.Context) {
		before := provider.SeqNum()
		provider.MarkAll(ctx, []capacity.Offering{offering, {Zone: "HN2"}}, capacity.ReasonInsufficientCapacity, time.Minute)
		Expect(provider.SeqNum()).To(Equal(before + 1))
		Expect(provider.RecentFailures(offering)).To(BeZero())
		_, unavailable := provider.Unavailable(capacity.Offering{Flavor: "other", Zone: "HN2"})
		Expect(unavailable).To(BeTrue())
	})
	It("should end a mark before its time", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, capacity.Offering{NodeClass: "a"}, capacity.ReasonLaunchFailed, time.Hour)
		before := provider.SeqNum()
		provider.MarkAvailable(capacity.Offering{NodeClass: "b"})
		Expect(provider.SeqNum()).To(Equal(before))
		provider.MarkAvailable(capacity.Offering{NodeClass: "a"})
		Expect(provider.SeqNum()).To(Equal(before + 1))
		_, unavailable := provider.Unavailable(capacity.Offering{Flavor: "any", NodeClass: "a"})
		Expect(unavailable).To(BeFalse())
		clk.Step(time.Hour) // the timer of the mark that is gone
		Expect(provider.SeqNum()).To(Equal(before + 1))
	})
	It("should average what launches took, the newest weighing 30 percent", func() {
		Expect(provider.LaunchSeconds(offering)).To(BeZero())
		provider.RecordSuccess(offering, 100*time.Second)
		provider.RecordSuccess(offering, 50*time.Second)
		provider.RecordSuccess(offering, 0)
		Expect(provider.LaunchSeconds(offering)).To(BeNumerically("~", 85, 1e-9)) // 0.7*100 + 0.3*50
		other := offering
		other.NodeClass = "another image"
		Expect(provider.LaunchSeconds(other)).To(BeZero())
		clk.Step(24 * time.Hour)
		Expect(provider.LaunchSeconds(offering)).To(BeZero(), "an average of yesterday says nothing about today")
		provider.RecordSuccess(offering, 10*time.Second)
		Expect(provider.LaunchSeconds(offering)).To(Equal(10.0))
		Expect(clk.HasWaiters()).To(BeFalse(), "a thousand launches are no thousand timers of a day")
	})
	It("should end a mark in time and change the number, also without a reader", func(ctx context.Context) {
		before := provider.SeqNum()
		provider.MarkUnavailable(ctx, offering, capacity.ReasonInsufficientCapacity, time.Minute)
		marked := provider.SeqNum()
		Expect(marked).NotTo(Equal(before))
		clk.Step(time.Minute - time.Nanosecond)
		Expect(provider.SeqNum()).To(Equal(marked))
		clk.Step(time.Nanosecond)
		Expect(provider.SeqNum()).NotTo(Equal(marked))
		_, unavailable := provider.Unavailable(offering)
		Expect(unavailable).To(BeFalse())
	})
	It("should prolong a mark to ttl from now", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, offering, capacity.ReasonInsufficientCapacity, time.Minute)
		clk.Step(30 * time.Second)
		provider.MarkUnavailable(ctx, offering, capacity.ReasonQuotaExceeded, time.Minute)
		clk.Step(59 * time.Second)
		reason, unavailable := provider.Unavailable(offering)
		Expect(unavailable).To(BeTrue())
		Expect(reason).To(Equal(capacity.ReasonQuotaExceeded))
		clk.Step(time.Second)
		_, unavailable = provider.Unavailable(offering)
		Expect(unavailable).To(BeFalse())
	})
	It("should keep the later end of a mark, and the number with it", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, offering, capacity.ReasonQuotaExceeded, time.Hour)
		marked := provider.SeqNum()
		provider.MarkUnavailable(ctx, offering, capacity.ReasonInsufficientCapacity, time.Minute)
		Expect(provider.SeqNum()).To(Equal(marked))
		clk.Step(30 * time.Minute)
		reason, _ := provider.Unavailable(offering)
		Expect(reason).To(Equal(capacity.ReasonQuotaExceeded))
	})
	It("should ignore a mark that is over before it begins", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, offering, capacity.ReasonQuotaExceeded, 0)
		_, unavailable := provider.Unavailable(offering)
		Expect(unavailable).To(BeFalse())
	})
	It("should count the failures of exactly this offering until none follows for two hours", func(ctx context.Context) {
		for range 3 {
			provider.MarkFailed(ctx, offering, clk.Now(), capacity.ReasonInsufficientCapacity, time.Minute, true)
			clk.Step(40 * time.Minute)
		}
		provider.MarkUnavailable(ctx, capacity.Offering{Zone: "HN1"}, capacity.ReasonInsufficientCapacity, time.Minute)
		Expect(provider.RecentFailures(offering)).To(Equal(3))
		Expect(provider.RecentFailures(capacity.Offering{Flavor: "p2.2c_4g", Zone: "HN2", BillingPlan: "on_demand"})).To(Equal(0))
		clk.Step(80 * time.Minute)
		Expect(provider.RecentFailures(offering)).To(Equal(0))
	})
	It("should mark for longer each time, up to eight times, until a success or two quiet hours", func(ctx context.Context) {
		mark := func() time.Duration {
			return provider.MarkFailed(ctx, offering, clk.Now(), capacity.ReasonLaunchFailed, time.Minute, true)
		}
		for _, minutes := range []int{1, 2, 4, 8, 8, 8} {
			Expect(mark()).To(Equal(time.Duration(minutes) * time.Minute))
			clk.Step(time.Duration(minutes)*time.Minute - time.Nanosecond)
			_, unavailable := provider.Unavailable(offering)
			Expect(unavailable).To(BeTrue())
			clk.Step(time.Nanosecond)
			_, unavailable = provider.Unavailable(offering)
			Expect(unavailable).To(BeFalse())
		}
		provider.RecordSuccess(offering, time.Minute)
		Expect(mark()).To(Equal(time.Minute))
		Expect(mark()).To(Equal(2 * time.Minute))
		clk.Step(2*time.Hour + time.Second)
		Expect(mark()).To(Equal(time.Minute))
	})
	It("should count launches once that were under way together, however many of them fail", func(ctx context.Context) {
		sent := clk.Now()
		for range 8 {
			clk.Step(time.Second)
			Expect(provider.MarkFailed(ctx, offering, sent, capacity.ReasonInsufficientCapacity, 3*time.Minute, true)).To(Equal(3 * time.Minute))
		}
		Expect(provider.RecentFailures(offering)).To(Equal(1))
		clk.Step(3 * time.Minute)
		_, unavailable := provider.Unavailable(offering)
		Expect(unavailable).To(BeFalse())

		By("failing again after the mark")
		Expect(provider.MarkFailed(ctx, offering, clk.Now(), capacity.ReasonInsufficientCapacity, 3*time.Minute, true)).To(Equal(6 * time.Minute))
		Expect(provider.MarkFailed(ctx, offering, sent, capacity.ReasonInsufficientCapacity, 3*time.Minute, true)).To(Equal(6*time.Minute), "one of before")
	})
	It("should keep a failure with one NodeClass from every other", func(ctx context.Context) {
		with := func(nodeClass string) capacity.Offering {
			scope := offering
			scope.NodeClass = nodeClass
			return scope
		}
		provider.MarkFailed(ctx, with("a"), clk.Now(), capacity.ReasonLaunchFailed, time.Minute, true)
		_, unavailable := provider.Unavailable(with("a"))
		Expect(unavailable).To(BeTrue())
		for _, other := range []capacity.Offering{with("b"), offering} {
			_, unavailable = provider.Unavailable(other)
			Expect(unavailable).To(BeFalse())
			Expect(provider.RecentFailures(other)).To(BeZero())
		}
		provider.MarkFailed(ctx, offering, clk.Now(), capacity.ReasonInsufficientCapacity, time.Minute, true)
		_, unavailable = provider.Unavailable(with("b"))
		Expect(unavailable).To(BeTrue(), "a want of capacity is everybody's")
		Expect(provider.RecentFailures(with("a"))).To(Equal(2))
	})
	It("should report the active marks by reason", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, offering, capacity.ReasonInsufficientCapacity, time.Minute)
		provider.MarkUnavailable(ctx, capacity.Offering{Zone: "HN2"}, capacity.ReasonInsufficientCapacity, time.Hour)
		Expect(marks(capacity.ReasonInsufficientCapacity)).To(Equal(2.0))
		Expect(marks(capacity.ReasonQuotaExceeded)).To(Equal(0.0))
		clk.Step(time.Minute)
		Expect(marks(capacity.ReasonInsufficientCapacity)).To(Equal(1.0))
	})
	It("should not allocate for a read", func(ctx context.Context) {
		provider.MarkUnavailable(ctx, offering, capacity.ReasonInsufficientCapacity, time.Minute)
		Expect(testing.AllocsPerRun(100, func() {
			provider.Unavailable(offering)
			provider.SeqNum()
		})).To(BeZero())
	})
	It("should serve many callers at once", func(ctx context.Context) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 100 {
					scope := capacity.Offering{Flavor: string(rune('a' + (i+j)%26)), Zone: "HN1", BillingPlan: "on_demand"}
					provider.MarkUnavailable(ctx, scope, capacity.ReasonLaunchFailed, time.Duration(1+j)*time.Second)
					provider.Unavailable(scope)
					provider.RecentFailures(scope)
					clk.Step(100 * time.Millisecond)
				}
			})
		}
		all.Wait()
		clk.Step(time.Hour)
		Expect(marks(capacity.ReasonLaunchFailed)).To(Equal(0.0))
	})
})

func marks(reason string) float64 {
	GinkgoHelper()
	families := lo.Must(crmetrics.Registry.Gather())
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "karpenter_bizfly_unavailable_offerings" && metric.GetLabel()[0].GetValue() == reason {
				return metric.GetGauge().GetValue()
			}
		}
	}
	return -1
}
