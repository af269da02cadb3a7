// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

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
		claim := lo.Must(env.Launched(ctx))
		stored := claim.DeepCopy()
		claim.Finalizers = nil
		Expect(env.Client.Patch(ctx, claim, client.MergeFrom(stored))).To(Succeed())
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		left := func() int {
			GinkgoHelper()
			for range 4 {
				result := lo.Must(controller.Reconcile(ctx))
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
