// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unpaid_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/unpaid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestUnpaid(t *testing.T) { suite.Run(t, "Node/Unpaid") }

// accounts answers what is set, and counts.
type accounts struct {
	unpaid string
	err    error
	asked  int
}

// Account implements unpaid.Accounts.
func (a *accounts) Account(context.Context) (bizfly.Account, error) {
	a.asked++
	return bizfly.Account{Unpaid: a.unpaid}, a.err
}

var _ = Describe("A silent node", func() {
	const users, marked = karpv1.DoNotRepairAnnotationKey, "karpenter.bizflycloud.vn/unpaid-account"
	var (
		ctx        = context.Background()
		kubeClient client.Client
		account    *accounts
		clk        *clocktesting.FakeClock
		controller *unpaid.Controller
	)
	BeforeEach(func() {
		kubeClient, account, clk = unit.FakeClientBuilder().Build(), &accounts{unpaid: "the account's balance is negative"}, clocktesting.NewFakeClock(time.Now())
		controller = unpaid.NewController(kubeClient, account, clk)
	})
	node := func(ready corev1.ConditionStatus, annotations map[string]string) *corev1.Node {
		GinkgoHelper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-", Annotations: annotations},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		Expect(kubeClient.Create(ctx, object)).To(Succeed())
		return object
	}
	// annotated returns the annotations of the node after a reconcile.
	annotated := func(object *corev1.Node) map[string]string {
		GinkgoHelper()
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(controller.Reconcile(ctx, object)).Error().ToNot(HaveOccurred())
		stored := &corev1.Node{}
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
		return stored.Annotations
	}

	It("should not be repaired while the account is unpaid, and be again once it is paid", func() {
		n := node(corev1.ConditionUnknown, map[string]string{"team": "a"})
		Expect(annotated(n)).To(Equal(map[string]string{"team": "a", users: "true", marked: "true"}))
		account.unpaid = ""
		clk.Step(ttl.Account)
		Expect(annotated(n)).To(Equal(map[string]string{"team": "a"}))
	})
	It("should be repaired where the account is paid", func() {
		account.unpaid = ""
		Expect(annotated(node(corev1.ConditionUnknown, nil))).To(BeEmpty())
	})
	It("should lose the annotations when its kubelet reports again, without reading the account", func() {
		n := node(corev1.ConditionTrue, map[string]string{users: "true", marked: "true"})
		Expect(annotated(n)).To(BeEmpty())
		Expect(account.asked).To(BeZero())
	})
	It("should keep what a user has written", func() {
		n := node(corev1.ConditionUnknown, map[string]string{users: "true"})
		Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
		account.unpaid = ""
		clk.Step(ttl.Account)
		Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
	})
	It("should stay as it is while the account cannot be asked, which is tried again", func() {
		n := node(corev1.ConditionUnknown, nil)
		Expect(annotated(n)).To(HaveKey(marked))
		account.err = errors.New("down")
		clk.Step(ttl.Account)
		Expect(annotated(n)).To(HaveKey(marked))
		Expect(controller.Reconcile(ctx, n)).To(HaveField("RequeueAfter", ttl.Account))
	})
	It("should share one answer with all others", func() {
		for range 20 {
			Expect(annotated(node(corev1.ConditionUnknown, nil))).To(HaveKey(marked))
		}
		Expect(account.asked).To(Equal(1))
	})
})
