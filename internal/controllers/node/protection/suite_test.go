// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/protection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestProtection(t *testing.T) { suite.Run(t, "Node/Protection") }

const users = karpv1.DoNotDisruptAnnotationKey

var _ = Describe("Protection of nodes", func() {
	var (
		ctx        = context.Background()
		launched   = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
		clk        *clocktesting.FakeClock
		kubeClient client.Client
		controller *protection.Controller
		config     *v1alpha1.ProviderConfig
	)
	BeforeEach(func() {
		kubeClient = unit.FakeClientBuilder().Build()
		clk = clocktesting.NewFakeClock(launched)
		controller = protection.NewController(kubeClient, clk, nil, nil, nil)
		config = &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		Expect(kubeClient.Create(ctx, config)).To(Succeed())
	})
	tuned := func(tuning map[string]string) {
		GinkgoHelper()
		config.Status.Tuning = tuning
		config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady)
		Expect(kubeClient.Status().Update(ctx, config)).To(Succeed())
	}
	node := func(annotations map[string]string) *corev1.Node {
		GinkgoHelper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "default-abcde", Annotations: annotations, Labels: map[string]string{
			"karpenter.bizflycloud.vn/bizflynodeclass": "default", corev1.LabelTopologyZone: "HN1",
			karpv1.NodeRegisteredLabelKey: "true",
		}}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://one"}}
		Expect(kubeClient.Create(ctx, object)).To(Succeed())
		return object
	}
	// reconciled returns the annotations of the node after a reconcile, and when the next one is.
	reconciled := func(object *corev1.Node) (map[string]string, time.Duration) {
		GinkgoHelper()
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		result, err := controller.Reconcile(ctx, object)
		Expect(err).NotTo(HaveOccurred())
		stored := &corev1.Node{}
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
		return stored.Annotations, result.RequeueAfter
	}
	annotated := func(object *corev1.Node) map[string]string {
		GinkgoHelper()
		annotations, _ := reconciled(object)
		return annotations
	}

	Describe("in a zone that the tuning closes", func() {
		It("should keep its nodes from consolidation and drift until it is opened", func() {
			n := node(map[string]string{"team": "a"})
			tuned(map[string]string{"closedZones": "HN2, HN1"})
			Expect(annotated(n)).To(Equal(map[string]string{"team": "a", users: "true", "karpenter.bizflycloud.vn/do-not-disrupt-reason": "ZoneClosed: HN1"}))
			tuned(nil)
			Expect(annotated(n)).To(Equal(map[string]string{"team": "a"}))
		})
		It("should stay while the ProviderConfig is gone, and until a new one has a status", func() {
			n := node(nil)
			tuned(map[string]string{"closedZones": "HN1"})
			Expect(annotated(n)).To(HaveKey(users))
			Expect(kubeClient.Delete(ctx, config)).To(Succeed())
			Expect(annotated(n)).To(HaveKey(users))
			config = &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
			Expect(kubeClient.Create(ctx, config)).To(Succeed())
			Expect(annotated(n)).To(HaveKey(users))
			tuned(nil)
			Expect(annotated(n)).To(BeEmpty())
		})
		It("should leave nodes of other zones alone", func() {
			tuned(map[string]string{"closedZones": "HN2"})
			Expect(annotated(node(nil))).To(BeEmpty())
		})
		It("should leave alone what a user has annotated, also when it is opened", func() {
			n := node(map[string]string{users: "true"})
			tuned(map[string]string{"closedZones": "HN1"})
			Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
			tuned(nil)
			Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
		})
		It("should leave to a user what the NodePool's template annotates", func() {
			n := node(nil)
			delete(n.Labels, karpv1.NodeRegisteredLabelKey)
			Expect(kubeClient.Update(ctx, n)).To(Succeed())
			tuned(map[string]string{"closedZones": "HN1"})
			Expect(annotated(n)).To(BeEmpty())
			n.Labels[karpv1.NodeRegisteredLabelKey], n.Annotations = "true", map[string]string{users: "true"}
			Expect(kubeClient.Update(ctx, n)).To(Succeed())
			Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
			tuned(nil)
			Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
		})
		It("should leave to a user what the user has written since the node was read", func() {
			n := node(nil)
			tuned(map[string]string{"closedZones": "HN1"})
			read := n.DeepCopy()
			Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(n), read)).To(Succeed())
			n.Annotations = map[string]string{users: "true"}
			Expect(kubeClient.Update(ctx, n)).To(Succeed())
			Expect(controller.Reconcile(ctx, read)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
			Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
		})
	})

	It("should look at nodes again only when its settings or the first status change", func() {
		changes := func(change func()) bool {
			before := config.DeepCopy()
			change()
			return protection.Changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: config})
		}
		Expect(changes(func() { tuned(map[string]string{"closedZones": "HN1"}) })).To(BeTrue())
		Expect(changes(func() { tuned(map[string]string{"closedZones": "HN1", "hiddenFlavors": "nix.2c_4g"}) })).To(BeFalse())
		Expect(changes(func() { config.StatusConditions().SetFalse(v1alpha1.ConditionTypeTuningReady, "Invalid", "") })).To(BeFalse())
		Expect(changes(func() { tuned(map[string]string{"closedZones": "HN1", "billingPeriod": "1h"}) })).To(BeTrue())
		Expect(changes(func() { tuned(nil) })).To(BeTrue())
		config = &v1alpha1.ProviderConfig{ObjectMeta: config.ObjectMeta}
		Expect(changes(func() { config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady) })).To(BeTrue())
	})

	Describe("of an hour that is paid", func() {
		hourly := map[string]string{"billingPeriod": "1h"}
		until := func(clock string) types.GomegaMatcher {
			return And(HaveKeyWithValue(users, "true"), HaveKeyWithValue(v1alpha1.AnnotationDoNotDisruptReason, "HourPaid: until 2026-11-28T"+clock+"Z"))
		}
		claim := func(change func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
			GinkgoHelper()
			c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-abcde", CreationTimestamp: metav1.NewTime(launched.Add(-time.Minute)),
				Annotations: map[string]string{v1alpha1.AnnotationLaunchIntent: launch.EncodeIntent(instance.Intent{Attempt: 1, Name: "a", RequestedAt: launched})}}}
			if change != nil {
				change(c)
			}
			Expect(kubeClient.Create(ctx, c)).To(Succeed())
			c.Status.ProviderID = "bizflycloud://one"
			Expect(kubeClient.Status().Update(ctx, c)).To(Succeed())
			return c
		}
		DescribeTable("should last until the window before the next hour", func(at time.Duration, expected types.GomegaMatcher, next time.Duration) {
			tuned(hourly)
			claim(nil)
			clk.SetTime(launched.Add(at))
			annotations, requeue := reconciled(node(nil))
			Expect(annotations).To(expected)
			Expect(requeue).To(Equal(next))
		},
			Entry("launched by a clock ahead of ours", -2*time.Minute, until("09:50:00"), 52*time.Minute),
			Entry("just launched", time.Duration(0), until("09:50:00"), 50*time.Minute),
			Entry("in the third minute", 3*time.Minute, until("09:50:00"), 47*time.Minute),
			Entry("a second before the window", 50*time.Minute-time.Second, until("09:50:00"), time.Second),
			Entry("in the window", 50*time.Minute, BeEmpty(), 9*time.Minute),
			Entry("too late to be gone before the next hour", 59*time.Minute, until("10:50:00"), 51*time.Minute),
			Entry("in the second hour", 61*time.Minute, until("10:50:00"), 49*time.Minute),
			Entry("in the window of its second day", 25*time.Hour+55*time.Minute, BeEmpty(), 4*time.Minute),
		)
		It("should end in the window and begin again after it, whatever the annotation says", func() {
			tuned(hourly)
			claim(nil)
			n := node(nil)
			Expect(annotated(n)).To(until("09:50:00"))
			clk.SetTime(launched.Add(55 * time.Minute))
			Expect(annotated(n)).To(BeEmpty())
			clk.SetTime(launched.Add(70 * time.Minute))
			Expect(annotated(n)).To(until("10:50:00"))
		})
		It("should end with the setting, and give way to a closed zone", func() {
			tuned(hourly)
			claim(nil)
			n := node(nil)
			Expect(annotated(n)).To(HaveKey(users))
			tuned(map[string]string{"billingPeriod": "1h", "closedZones": "HN1"})
			Expect(annotated(n)).To(HaveKeyWithValue(v1alpha1.AnnotationDoNotDisruptReason, "ZoneClosed: HN1"))
			tuned(nil)
			Expect(annotated(n)).To(BeEmpty())
		})
		It("should count from the NodeClaim where no launch is recorded, and not at all without one", func() {
			tuned(hourly)
			n := node(nil)
			Expect(annotated(n)).To(BeEmpty())
			claim(func(c *karpv1.NodeClaim) { c.Annotations = nil })
			Expect(annotated(n)).To(until("09:49:00"))
		})
		It("should have the window that the tuning gives it", func() {
			tuned(map[string]string{"billingPeriod": "1h", "billingWindow": "20m"})
			claim(nil)
			Expect(annotated(node(nil))).To(until("09:40:00"))
		})
	})
})
