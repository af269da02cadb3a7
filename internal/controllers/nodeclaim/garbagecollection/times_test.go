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

package garbagecollection_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The settings", func() {
	It("should change from which age servers are collected, and how often they are listed", func() {
		controller := garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings}, env.Client, env.APIReader, env.Instances, env.Recorder,
			env.Clock)
		claim, err := env.Launched(ctx)
		Expect(err).ToNot(HaveOccurred())
		stored := claim.DeepCopy()
		claim.Finalizers = nil
		Expect(env.Client.Patch(ctx, claim, client.MergeFrom(stored))).To(Succeed())
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		left := func() int {
			GinkgoHelper()
			for range 4 {
				result, err := controller.Reconcile(ctx)
				Expect(err).ToNot(HaveOccurred())
				Expect(result.RequeueAfter).To(Equal(time.Minute))
			}
			return lo.CountBy(env.Sandbox.Servers(), func(s cloud.Server) bool { return s.Status != "DELETED" })
		}
		env.Clock.Step(options.Defaults().GarbageCollectionGrace + time.Minute)
		env.Tune(func(o *options.Options) {
			o.GarbageCollectionGrace, o.GarbageCollectionInterval = time.Hour, time.Minute
		})
		Expect(left()).To(Equal(1))
		env.Tune(func(o *options.Options) { o.GarbageCollectionGrace = options.Defaults().GarbageCollectionGrace })
		Expect(left()).To(BeZero())
	})
})
