// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// emptyList is a cloud whose list is older than its servers.
type emptyList struct{ server.Instances }

func (emptyList) Snapshot(context.Context, time.Duration) (*instance.Snapshot, error) {
	return instance.NewSnapshot(nil), nil
}

var _ = Describe("Servers that do not run", func() {
	var controller *server.Controller
	var claim *karpv1.NodeClaim
	var node *corev1.Node
	// kubelet writes the Ready condition as a kubelet or the node lifecycle controller does.
	kubelet := func(status corev1.ConditionStatus) {
		GinkgoHelper()
		live := node.DeepCopy()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), live)).To(Succeed())
		changed := live.DeepCopy()
		changed.Status.Conditions = append(lo.Reject(changed.Status.Conditions, func(c corev1.NodeCondition, _ int) bool { return c.Type == corev1.NodeReady }),
			corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(env.Clock.Now())})
		Expect(env.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(live))).To(Succeed())
	}
	BeforeEach(func() {
		controller = newController()
		var err error
		claim, err = env.Launched(ctx)
		Expect(err).ToNot(HaveOccurred())
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}, Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		_, err = controller.Reconcile(ctx, claim)
		Expect(err).ToNot(HaveOccurred())
		claim.Status.NodeName = node.Name
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		kubelet(corev1.ConditionUnknown)
	})
	id := func() string { return unit.ServerID(claim.Status.ProviderID) }
	reconciled := func() reconcile.Result {
		GinkgoHelper()
		result, err := controller.Reconcile(ctx, claim)
		Expect(err).ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		Expect(live.DeletionTimestamp.IsZero()).To(BeTrue(), "nothing is ever deleted")
		Expect(live.ResourceVersion).To(Equal(claim.ResourceVersion), "the Node's condition is the only record")
		return result
	}
	status := func(status string) {
		GinkgoHelper()
		Expect(env.Sandbox.SetServerStatus(id(), status)).To(Succeed())
	}
	condition := func() corev1.NodeCondition { return nodeutils.GetCondition(node, v1alpha1.ConditionTypeServerRunning) }
	actions := func() int {
		return lo.CountBy(env.Sandbox.Requests(), func(r cloud.Request) bool { return r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/action") })
	}

	It("should not be reported while they run", func() {
		Expect(reconciled().RequeueAfter).To(Equal(time.Minute))
		Expect(condition()).To(BeZero())
	})
	DescribeTable("should be reported by a condition of the Node, an event and nothing else",
		func(of, reason string) {
			status(of)
			Expect(reconciled().RequeueAfter).To(Equal(30 * time.Second))
			Expect(condition().Status).To(Equal(corev1.ConditionFalse))
			Expect(condition().Reason).To(Equal(reason))
			Expect(condition().Message).To(ContainSubstring("NodeRepair"))
			Expect(nodeutils.GetCondition(node, corev1.NodeReady).Status).To(Equal(corev1.ConditionUnknown), "the kubelet's own condition stays")
			Expect(env.Recorder.Calls(events.ReasonServerNotRunning)).To(Equal(1))
			version := node.ResourceVersion
			env.Clock.Step(time.Hour)
			reconciled()
			Expect(node.ResourceVersion).To(Equal(version), "nothing is written again")
			Expect(env.Recorder.Calls(events.ReasonServerNotRunning)).To(Equal(1))
			Expect(actions()).To(BeZero(), "it is neither started nor reset")
		},
		Entry("stopped", "SHUTOFF", "Stopped"),
		Entry("suspended", "SUSPENDED", "Suspended"),
		Entry("paused", "PAUSED", "Suspended"),
		Entry("shelved", "SHELVED", "Suspended"),
		Entry("failed", "ERROR", "Failed"),
		Entry("deleted and still listed", "SOFT_DELETED", "Missing"),
	)
	It("should be reported as missing only when the cloud says so of that very server", func() {
		controller = server.NewController(env.Client, emptyList{env.Instances}, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
		reconciled()
		Expect(condition()).To(BeZero())
		Expect(env.Sandbox.RemoveServer(id())).To(Succeed())
		reconciled()
		Expect(condition().Reason).To(Equal("Missing"))
	})
	DescribeTable("should not be reported while they are on their way",
		func(of string) {
			status(of)
			reconciled()
			Expect(condition()).To(BeZero())
		},
		Entry("from a reboot", "HARD_REBOOT"), Entry("from a migration", "MIGRATING"), Entry("to their end", "DELETING"),
		Entry("from somewhere that is not known", "SOMETHING_NEW"),
	)
	for _, of := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		It("should not be believed while their kubelet reports Ready="+string(of)+", since its pods can be drained", func() {
			kubelet(of)
			status("SHUTOFF")
			reconciled()
			Expect(condition()).To(BeZero())
			kubelet(corev1.ConditionUnknown)
			reconciled()
			Expect(condition().Reason).To(Equal("Stopped"))
		})
		It("should not be believed any more when their kubelet reports Ready="+string(of)+" again, whatever the cloud's record is", func() {
			status("ERROR")
			reconciled()
			Expect(condition().Reason).To(Equal("Failed"))
			kubelet(of)
			reconciled()
			Expect(condition().Status).To(Equal(corev1.ConditionTrue), "node repair acts on the condition alone")
		})
	}
	It("should be reported as running when they run again", func() {
		status("SHUTOFF")
		reconciled()
		env.Clock.Step(4 * time.Minute)
		status("ACTIVE")
		reconciled()
		Expect(condition().Status).To(Equal(corev1.ConditionTrue))
		Expect(condition().LastTransitionTime.Time).To(BeTemporally("~", env.Clock.Now(), time.Second))
		Expect(env.Recorder.Calls(events.ReasonServerRunning)).To(Equal(1))
		env.Clock.Step(time.Hour)
		status("SHUTOFF")
		reconciled()
		Expect(condition().LastTransitionTime.Time).To(BeTemporally("~", env.Clock.Now(), time.Second), "what core tolerates begins anew")
	})
	It("should keep the time of the condition when only its reason changes", func() {
		status("SHUTOFF")
		reconciled()
		began := condition().LastTransitionTime
		env.Clock.Step(time.Minute)
		status("ERROR")
		reconciled()
		Expect(condition().Reason).To(Equal("Failed"))
		Expect(condition().LastTransitionTime.Time).To(BeTemporally("==", began.Time))
		Expect(env.Recorder.Calls(events.ReasonServerNotRunning)).To(Equal(2))
	})
	It("should be left to the next attempt where the cloud cannot be asked", func() {
		status("SHUTOFF")
		env.Sandbox.AddFaults(1, cloud.Fault{Path: "/servers**", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		Expect(reconciled().RequeueAfter).To(Equal(time.Minute))
		Expect(condition()).To(BeZero())
	})
	It("should be left alone while their NodeClaim is deleted, has no server or has no Node", func() {
		status("SHUTOFF")
		deleting := claim.DeepCopy()
		deleting.DeletionTimestamp = lo.ToPtr(metav1.Now())
		Expect(controller.Reconcile(ctx, deleting)).To(BeZero())
		fresh, err := env.NodeClaim(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(controller.Reconcile(ctx, fresh)).To(BeZero())
		alone := claim.DeepCopy()
		alone.Status.NodeName = "gone"
		_, err = controller.Reconcile(ctx, alone)
		Expect(err).ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(condition()).To(BeZero())
	})
	It("should be reported where the NodeClass is gone", func() {
		status("SHUTOFF")
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		reconciled()
		Expect(condition().Reason).To(Equal("Stopped"))
	})
})
