// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package closedzone_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/closedzone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestClosedZone(t *testing.T) { suite.Run(t, "Node/ClosedZone") }

var _ = Describe("A zone that the tuning closes", func() {
	const users = karpv1.DoNotDisruptAnnotationKey
	var (
		ctx        = context.Background()
		kubeClient client.Client
		controller *closedzone.Controller
		config     *v1alpha1.ProviderConfig
	)
	BeforeEach(func() {
		kubeClient = unit.FakeClientBuilder().Build()
		controller = closedzone.NewController(kubeClient)
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
		}}}
		Expect(kubeClient.Create(ctx, object)).To(Succeed())
		return object
	}
	// annotated returns the annotations of the node after a reconcile.
	annotated := func(object *corev1.Node) map[string]string {
		GinkgoHelper()
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(controller.Reconcile(ctx, object)).To(BeZero())
		stored := &corev1.Node{}
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
		return stored.Annotations
	}

	It("should keep its nodes from consolidation and drift until it is opened", func() {
		n := node(map[string]string{"team": "a"})
		tuned(map[string]string{"closedZones": "HN2, HN1"})
		Expect(annotated(n)).To(Equal(map[string]string{"team": "a", users: "true", "karpenter.bizflycloud.vn/closed-zone": "HN1"}))
		tuned(nil)
		Expect(annotated(n)).To(Equal(map[string]string{"team": "a"}))
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
		tuned(nil)
		Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
	})
	It("should stay closed while the ProviderConfig is gone, and until a new one has a status", func() {
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
	It("should be compared with nodes again only when the closed zones or first status change", func() {
		changes := func(change func()) bool {
			before := config.DeepCopy()
			change()
			return closedzone.Changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: config})
		}
		Expect(changes(func() { tuned(map[string]string{"closedZones": "HN1"}) })).To(BeTrue())
		Expect(changes(func() { tuned(map[string]string{"closedZones": "HN1", "hiddenFlavors": "nix.2c_4g"}) })).To(BeFalse())
		Expect(changes(func() { config.StatusConditions().SetFalse(v1alpha1.ConditionTypeTuningReady, "Invalid", "") })).To(BeFalse())
		Expect(changes(func() { tuned(nil) })).To(BeTrue())
		config = &v1alpha1.ProviderConfig{ObjectMeta: config.ObjectMeta}
		Expect(changes(func() { config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady) })).To(BeTrue())
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
})
