// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/protection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// account answers what is set.
type account struct {
	unpaid string
	err    error
}

// Unpaid implements protection.Account.
func (a *account) Unpaid(context.Context) (string, error) { return a.unpaid, a.err }

// servers has one server in the status that is set, and counts its starts.
type servers struct {
	status   string
	rejected error
	started  int
}

// Get implements protection.Servers.
func (s *servers) Get(context.Context, string) (*instance.Instance, error) {
	return &instance.Instance{Status: s.status}, nil
}

// Reboot implements protection.Servers.
func (s *servers) Reboot(context.Context, string, string) error {
	s.started++
	return s.rejected
}

var _ = Describe("A silent node", func() {
	const (
		repair, disrupt = karpv1.DoNotRepairAnnotationKey, karpv1.DoNotDisruptAnnotationKey
		reason          = "AccountUnpaid"
		debt            = "the account's balance is negative"
	)
	var (
		ctx        = context.Background()
		kubeClient client.Client
		owed       *account
		cloud      *servers
		recorder   *coretest.EventRecorder
		controller *protection.Controller
	)
	BeforeEach(func() {
		kubeClient, owed, cloud, recorder = unit.FakeClientBuilder().Build(), &account{unpaid: debt}, &servers{status: "SHUTOFF"}, coretest.NewEventRecorder()
		controller = protection.NewController(kubeClient, clock.RealClock{}, owed, cloud, recorder)
	})
	node := func(ready corev1.ConditionStatus, annotations map[string]string) *corev1.Node {
		GinkgoHelper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-", Annotations: annotations,
			Labels: map[string]string{karpv1.NodeRegisteredLabelKey: "true"}},
			Spec:   corev1.NodeSpec{ProviderID: "bizflycloud://7f3e2b4c-0000-4000-8000-000000000001"},
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
	kept := map[string]string{repair: "true", v1alpha1.AnnotationDoNotRepairReason: reason, disrupt: "true", v1alpha1.AnnotationDoNotDisruptReason: reason}

	It("should be neither repaired nor disrupted while the account is unpaid, and start later", func() {
		n := node(corev1.ConditionUnknown, nil)
		Expect(annotated(n)).To(Equal(kept))
		Expect(cloud.started).To(BeZero())
		owed.unpaid = ""
		Expect(annotated(n)).To(BeEmpty())
		Expect(cloud.started).To(Equal(1))
	})
	It("should stay protected when its closed zone is opened, which only a ProviderConfig says", func() {
		closed := lo.Assign(kept, map[string]string{v1alpha1.AnnotationDoNotDisruptReason: "ZoneClosed: HN1"})
		n := node(corev1.ConditionUnknown, closed)
		Expect(annotated(n)).To(Equal(closed))
		config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady)
		Expect(kubeClient.Create(ctx, config)).To(Succeed())
		Expect(kubeClient.Status().Update(ctx, config)).To(Succeed())
		Expect(annotated(n)).To(Equal(kept))
	})
	It("should be left to core where the account is paid", func() {
		owed.unpaid = ""
		Expect(annotated(node(corev1.ConditionUnknown, nil))).To(BeEmpty())
		Expect(cloud.started).To(BeZero())
	})
	It("should lose the annotations when its kubelet reports again", func() {
		Expect(annotated(node(corev1.ConditionTrue, kept))).To(BeEmpty())
		Expect(cloud.started).To(BeZero())
	})
	It("should not be started where its server runs", func() {
		owed.unpaid, cloud.status = "", "ACTIVE"
		Expect(annotated(node(corev1.ConditionUnknown, kept))).To(BeEmpty())
		Expect(cloud.started).To(BeZero())
	})
	DescribeTable("should keep what a user has written", func(users string, started int) {
		n := node(corev1.ConditionUnknown, map[string]string{users: "true"})
		Expect(annotated(n)).To(And(HaveKey(repair), HaveKey(disrupt), HaveLen(3)))
		owed.unpaid = ""
		Expect(annotated(n)).To(Equal(map[string]string{users: "true"}))
		Expect(cloud.started).To(Equal(started), "a user who wants no repair may have stopped the server")
	},
		Entry("against repair", repair, 0),
		Entry("against disruption", disrupt, 1),
	)
	It("should keep the annotations while its server does not start, and report that", func() {
		owed.unpaid, cloud.rejected = "", errors.New("no")
		n := node(corev1.ConditionUnknown, kept)
		Expect(annotated(n)).To(Equal(kept))
		Expect(recorder.Calls(events.ReasonServerNotStarted)).To(Equal(1))
		cloud.rejected = nil
		Expect(annotated(n)).To(BeEmpty())
	})
	It("should stay as it is while the account cannot be asked, which is tried again", func() {
		n := node(corev1.ConditionUnknown, kept)
		owed.unpaid, owed.err = "", errors.New("down")
		Expect(annotated(n)).To(Equal(kept))
		Expect(controller.Reconcile(ctx, n)).To(HaveField("RequeueAfter", ttl.Account))
	})
})
