// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"net/http"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Launches that keep failing", func() {
	succeeding := func() *status.Condition {
		GinkgoHelper()
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		result := lo.Must(controller().Reconcile(ctx, nodeClass))
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		Expect(nodeClass.StatusConditions().Root().IsTrue()).To(BeTrue(), "Ready does not depend on it")
		return nodeClass.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding)
	}
	fail := func(times int) {
		GinkgoHelper()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusBadRequest,
			Message: "Image is not valid"})
		for range times {
			claim := lo.Must(env.NodeClaim(ctx, nil))
			Expect(env.CloudProvider.Create(ctx, claim.DeepCopy())).Error().To(HaveOccurred())
		}
	}

	It("should not show on a NodeClass whose launches succeed", func() {
		Expect(env.Launched(ctx)).Error().ToNot(HaveOccurred())
		Expect(succeeding().IsTrue()).To(BeTrue())
	})
	It("should not show after two", func() {
		fail(2)
		Expect(succeeding().IsTrue()).To(BeTrue())
	})
	It("should show with the reason and what the cloud said while launches pause", func() {
		fail(3)
		Expect(succeeding().IsFalse()).To(BeTrue())
		Expect(succeeding().Reason).To(Equal(launch.ReasonLaunchRequestInvalid))
		Expect(succeeding().Message).To(ContainSubstring("Image is not valid"))
		env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		Expect(succeeding().IsTrue()).To(BeTrue())
		Expect(succeeding().Reason).To(Equal("LaunchesNotPaused"))
	})
	It("should show until a node registers where nodes have not", func() {
		launched := func() (*karpv1.NodeClaim, instance.Intent) {
			GinkgoHelper()
			claim := lo.Must(env.Launched(ctx))
			intent := lo.Must(launch.ReadIntent(claim))
			return claim, *intent
		}
		for range 3 {
			claim, intent := launched()
			env.CloudProvider.Launches.LaunchFailed(ctx, claim, intent, launch.ErrNotRegistered)
		}
		Expect(succeeding().Reason).To(Equal(launch.ReasonNotRegistered))
		env.Clock.Step(time.Minute + time.Second)
		Expect(succeeding().IsFalse()).To(BeTrue(), "only a trial tells whether it works by now")
		claim, intent := launched()
		Expect(succeeding().IsFalse()).To(BeTrue())
		env.CloudProvider.Launches.NodeRegistered(ctx, claim, intent, time.Minute)
		Expect(succeeding().IsTrue()).To(BeTrue())
	})
	It("should not show any more once the NodeClass was changed", func() {
		fail(3)
		Expect(succeeding().IsFalse()).To(BeTrue())
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		nodeClass.Spec.Tags = map[string]string{"a": "b"}
		Expect(env.Resolve(ctx, nodeClass)).To(Succeed())
		Expect(succeeding().IsTrue()).To(BeTrue())
	})
	It("should leave alone what Ready says, which the status controller has written", func() {
		fail(3)
		Expect(succeeding().IsFalse()).To(BeTrue())
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		conditions := nodeClass.StatusConditions()
		conditions.SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "there is no such image")
		conditions.SetFalse(status.ConditionReady, "ImageNotFound", "ImagesReady: there is no such image")
		Expect(env.Client.Status().Update(ctx, nodeClass)).To(Succeed())
		said := nodeClass.DeepCopy().Status.Conditions

		nodeClass.Generation++ // a change ends the pause
		Expect(controller().Reconcile(ctx, nodeClass)).Error().ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		Expect(nodeClass.StatusConditions(status.WithObservedOnly()).Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsTrue()).To(BeTrue())
		others := func(all []status.Condition) []string {
			return lo.FilterMap(all, func(c status.Condition, _ int) (string, bool) {
				return c.Type + " " + c.Reason + " " + c.Message, c.Type != v1alpha1.ConditionTypeLaunchesSucceeding
			})
		}
		Expect(others(nodeClass.Status.Conditions)).To(ConsistOf(others(said)))
	})
})
