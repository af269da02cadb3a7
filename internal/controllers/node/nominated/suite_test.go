// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nominated_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/nominated"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestNominated(t *testing.T) { suite.Run(t, "Node/Nominated") }

var _ = Describe("A node that kube-scheduler has chosen for a pod", func() {
	const providerID = "bizflycloud:///HN1/1"
	// The shortest batches make the shortest nominations.
	ctx := options.ToContext(context.Background(), &options.Options{BatchMaxDuration: time.Second})
	var (
		clk        *clock.FakeClock
		kubeClient client.Client
		cluster    *state.Cluster
		controller *nominated.Controller
		pod        *corev1.Pod
	)
	BeforeEach(func() {
		clk = clock.NewFakeClock(time.Now())
		kubeClient = unit.FakeClientBuilder().Build()
		cluster = state.NewCluster(clk, kubeClient, fake.NewCloudProvider())
		controller = nominated.NewController(kubeClient, cluster)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "default-abcde"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
		Expect(kubeClient.Create(ctx, node)).To(Succeed())
		Expect(cluster.UpdateNode(ctx, node)).To(Succeed())
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "database-0"},
			Status:     corev1.PodStatus{Phase: corev1.PodPending, NominatedNodeName: node.Name},
		}
	})
	nominated := func() bool { return cluster.IsNodeNominated(providerID) }

	It("should be kept from core's consolidation until the pod is bound, and then no longer", func() {
		Expect(nominated()).To(BeFalse())
		for range 100 {
			result, err := controller.Reconcile(ctx, pod)
			Expect(err).ToNot(HaveOccurred())
			Expect(nominated()).To(BeTrue())
			Expect(result.RequeueAfter).To(BeNumerically(">", 0))
			clk.Step(result.RequeueAfter)
			Expect(nominated()).To(BeTrue())
		}
		pod.Spec.NodeName = pod.Status.NominatedNodeName
		Expect(controller.Reconcile(ctx, pod)).To(BeZero())
		clk.Step(10 * time.Second)
		Expect(nominated()).To(BeFalse())
	})
	DescribeTable("should be kept for no pod that", func(change func()) {
		change()
		Expect(controller.Reconcile(ctx, pod)).To(BeZero())
		Expect(nominated()).To(BeFalse())
	},
		Entry("it was not chosen for", func() { pod.Status.NominatedNodeName = "" }),
		Entry("is of a DaemonSet, whose volume may never come on any node", func() {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}}
		}),
		Entry("has ended", func() { pod.Status.Phase = corev1.PodFailed }),
		Entry("is being deleted", func() { pod.DeletionTimestamp = &metav1.Time{Time: clk.Now()} }),
	)
	It("should be looked for again while it is gone or not known yet", func() {
		pod.Status.NominatedNodeName = "gone"
		Expect(controller.Reconcile(ctx, pod)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
		Expect(nominated()).To(BeFalse())
	})
})
