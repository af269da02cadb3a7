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

package interval_test

import (
	"context"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/interval"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

func TestInterval(t *testing.T) { suite.Run(t, "Interval") }

var _ = Describe("Source", func() {
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
		made := interval.Source(settings, func(o *options.Options) time.Duration { return o.CatalogInterval })
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
