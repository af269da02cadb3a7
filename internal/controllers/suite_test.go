// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
)

func TestControllers(t *testing.T) { suite.Run(t, "Controllers") }

var _ = Describe("WhenChanged", func() {
	var settings *options.Store
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	set := func(catalog, collection time.Duration) {
		o := options.Defaults()
		o.CatalogInterval, o.GarbageCollectionInterval = catalog, collection
		settings.Set(o)
	}
	BeforeEach(func() {
		settings = options.NewStore(nil)
		set(time.Hour, time.Hour)
		queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		DeferCleanup(queue.ShutDown)
	})
	begin := func() func() {
		made := controllers.WhenChanged(settings, func(o *options.Options) time.Duration { return o.CatalogInterval })
		return func() {
			GinkgoHelper()
			ctx, cancel := context.WithCancel(context.Background())
			DeferCleanup(cancel)
			Expect(made.Start(ctx, queue)).To(Succeed())
		}
	}

	It("should let its controller run when the interval changes", func() {
		begin()()
		set(time.Minute, time.Hour)
		Eventually(queue.Len).Should(Equal(1))
		request, _ := queue.Get()
		Expect(request).To(Equal(reconcile.Request{}), "the request of singleton.Source, so that both are one")
	})
	It("should not when another setting changes", func() {
		begin()()
		set(time.Hour, time.Minute)
		Consistently(queue.Len).WithTimeout(300 * time.Millisecond).Should(BeZero())
	})
	It("should not block before its controller runs, which is what a replica waits for that is not the leader", func() {
		start := begin()
		for seconds := range 100 {
			set(time.Duration(seconds+1)*time.Second, time.Hour)
		}
		start()
		Eventually(queue.Len).Should(Equal(1))
	})
})

var _ = Describe("Managed", func() {
	claim := func(edit func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"}}}
		edit(c)
		return c
	}
	none := func(*karpv1.NodeClaim) {}
	read := controllers.Managed(func(c *karpv1.NodeClaim) string { return c.Status.ImageID })

	DescribeTable("should pass updates that change what the controller reads, and no others",
		func(before, after func(*karpv1.NodeClaim), passes bool) {
			Expect(read.Update(event.UpdateEvent{ObjectOld: claim(before), ObjectNew: claim(after)})).To(Equal(passes))
		},
		Entry("a field that is read", none, func(c *karpv1.NodeClaim) { c.Status.ImageID = "image" }, true),
		Entry("the provider ID", none, func(c *karpv1.NodeClaim) { c.Status.ProviderID = "bizflycloud://1" }, true),
		Entry("the registration", none, func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered) }, true),
		Entry("the deletion", none, func(c *karpv1.NodeClaim) { c.DeletionTimestamp = lo.ToPtr(metav1.Now()) }, true),
		Entry("a field that is not", none, func(c *karpv1.NodeClaim) { c.Status.NodeName = "node" }, false),
		Entry("nothing", none, none, false),
		Entry("a NodeClaim of another provider", none, func(c *karpv1.NodeClaim) {
			c.Status.ProviderID, c.Spec.NodeClassRef.Group = "aws:///1", "karpenter.k8s.aws"
		}, false),
	)
	It("should pass NodeClaims that are new to the process, and none that are gone", func() {
		Expect(read.Create(event.CreateEvent{Object: claim(none)})).To(BeTrue())
		Expect(read.Delete(event.DeleteEvent{Object: claim(none)})).To(BeFalse())
	})
})
