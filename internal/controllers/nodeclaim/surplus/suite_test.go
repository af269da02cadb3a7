// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package surplus_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clock "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/surplus"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestSurplus(t *testing.T) { suite.Run(t, "NodeClaim/Surplus") }

var _ = Describe("A node to which no pod was bound", func() {
	DescribeTable("should count once", func(age time.Duration, counts bool, change func(*karpv1.NodeClaim, *karpv1.NodePool)) {
		ctx, pool := context.Background(), &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x", UID: "uid",
			Labels: map[string]string{karpv1.NodePoolLabelKey: "default", v1alpha1.LabelLaunchPrice: "1575"}}}
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
		clk := clock.NewFakeClock(time.Now())
		kubeClient, recorder := unit.FakeClientBuilder().WithObjects(pool).Build(), karpevents.NewEventRecorder()
		cluster := state.NewCluster(clk, kubeClient, fake.NewCloudProvider())
		controller, standby := surplus.NewController(kubeClient, cluster, recorder, clk), surplus.NewController(kubeClient, cluster, recorder, clk)
		Expect(controller.Reconcile(ctx, claim)).NotTo(BeZero())
		change(claim, pool)
		Expect(kubeClient.Update(ctx, pool)).To(Succeed())
		clk.Step(age)
		result, err := controller.Reconcile(ctx, claim)
		Expect(err).NotTo(HaveOccurred())
		Expect(recorder.Calls("NodeWithoutPods")).To(Equal(lo.Ternary(counts, 1, 0)))
		if counts {
			Expect(recorder.Events()[0].Message).To(ContainSubstring("It costs 1575 VND per hour"))
		}
		clk.Step(time.Hour)
		Expect(standby.Reconcile(ctx, claim)).To(BeZero(), "it leads from now on")
		if counts {
			claim.DeletionTimestamp = lo.ToPtr(lo.FromPtrOr(claim.DeletionTimestamp, metav1.NewTime(clk.Now())))
			Expect(controller.Reconcile(ctx, claim)).To(BeZero())
		}
		Expect(recorder.Calls("NodeWithoutPods")).To(Equal(lo.Ternary(counts, 1, 0)))
		waits := !counts && age < 10*time.Minute && claim.Status.LastPodEventTime.IsZero()
		Expect(result.RequeueAfter).To(BeNumerically(lo.Ternary(waits, ">", "=="), 0))
	},
		Entry("not before its time", 9*time.Minute, false, func(*karpv1.NodeClaim, *karpv1.NodePool) {}),
		Entry("after ten minutes", 10*time.Minute, true, func(*karpv1.NodeClaim, *karpv1.NodePool) {}),
		Entry("when it is deleted before", time.Minute, true, func(c *karpv1.NodeClaim, _ *karpv1.NodePool) {
			c.DeletionTimestamp = lo.ToPtr(metav1.Now())
		}),
		Entry("not again when it is deleted", time.Hour, false, func(c *karpv1.NodeClaim, _ *karpv1.NodePool) {
			c.DeletionTimestamp = lo.ToPtr(metav1.NewTime(time.Now().Add(time.Hour)))
		}),
		Entry("not once a pod was bound", 10*time.Minute, false, func(c *karpv1.NodeClaim, _ *karpv1.NodePool) {
			c.Status.LastPodEventTime = metav1.Now()
		}),
		Entry("not in a static NodePool", 10*time.Minute, false, func(_ *karpv1.NodeClaim, p *karpv1.NodePool) {
			p.Spec.Replicas = lo.ToPtr[int64](1)
		}),
	)
})
