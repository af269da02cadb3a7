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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/interval"
)

func TestInterval(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Interval")
}

var _ = Describe("Interval", func() {
	var i *interval.Interval
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	BeforeEach(func() {
		i = interval.New(time.Hour)
		queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		DeferCleanup(queue.ShutDown)
	})
	begin := func() {
		GinkgoHelper()
		ctx, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		Expect(i.Source().Start(ctx, queue)).To(Succeed())
	}

	It("should be what it was set to", func() {
		Expect(i.Get()).To(Equal(time.Hour))
		i.Set(time.Minute)
		Expect(i.Get()).To(Equal(time.Minute))
	})
	It("should let its controller run when it changes", func() {
		begin()
		i.Set(time.Minute)
		Eventually(queue.Len).Should(Equal(1))
		request, _ := queue.Get()
		Expect(request).To(Equal(reconcile.Request{}), "the request of singleton.Source, so that both are one")
	})
	It("should not when it is set to what it is", func() {
		begin()
		i.Set(time.Hour)
		Consistently(queue.Len).WithTimeout(300 * time.Millisecond).Should(BeZero())
	})
	It("should not block before its controller runs, which is what a replica waits for that is not the leader", func() {
		for seconds := range 100 {
			i.Set(time.Duration(seconds+1) * time.Second)
		}
		begin()
		Eventually(queue.Len).Should(Equal(1))
		Expect(i.Get()).To(Equal(100 * time.Second))
	})
})
