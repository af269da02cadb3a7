// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The API servers that are recorded", func() {
	recognized := func() *status.Condition {
		GinkgoHelper()
		return condition(v1alpha1.ConditionTypeControlPlaneRecognized)
	}
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{})
		apiServers = []string{"10.0.0.1", "10.0.0.2"}
		process = start(true, environment())
		process.look()
	})
	AfterEach(func() {
		sandbox.Close()
		apiServers = nil
		Expect(kubeClient.DeleteAllOf(ctx, &v1alpha1.ProviderConfig{})).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
	})

	It("should be those of the first login", func() {
		Expect(stored().RecordedAPIServers()).To(Equal([]string{"10.0.0.1:6443", "10.0.0.2:6443"}))
		Expect(recognized().IsTrue()).To(BeTrue())
	})
	It("should stay in a clone, where none of them runs", func() {
		apiServers = []string{"10.9.0.1"}
		for range 3 {
			process.look()
			process.clock.Step(time.Hour)
		}
		Expect(stored().RecordedAPIServers()).To(Equal([]string{"10.0.0.1:6443", "10.0.0.2:6443"}))
		Expect(recognized()).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", providerconfig.ReasonControlPlaneChanged),
			HaveField("Message", And(ContainSubstring("10.0.0.1:6443"), ContainSubstring("10.9.0.1:6443"), ContainSubstring("kubectl annotate")))))
		Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
	})
	It("should be recorded anew when a user deletes the annotation", func() {
		apiServers = []string{"10.9.0.1"}
		process.look()
		object := stored()
		delete(object.Annotations, v1alpha1.AnnotationAPIServers)
		Expect(kubeClient.Update(ctx, object)).To(Succeed())
		process.look()
		Expect(stored().RecordedAPIServers()).To(Equal([]string{"10.9.0.1:6443"}))
		Expect(recognized().IsTrue()).To(BeTrue())
	})
	It("should outlive a restore, which brings annotations and no status, as the scope does", func() {
		object := stored()
		scope := object.Status.Scope
		object.Status = v1alpha1.ProviderConfigStatus{}
		Expect(kubeClient.Status().Update(ctx, object)).To(Succeed())
		Expect(stored().RecordedScope()).To(Equal(scope))
		apiServers = []string{"10.9.0.1"}
		process.look()
		Expect(stored().Status.Scope).To(Equal(scope))
		Expect(recognized().IsFalse()).To(BeTrue())
		Expect(stored().Status.Reason).To(BeEmpty(), "it is ready all the same")
	})
	It("should follow API servers that are replaced one by one", func() {
		for _, next := range [][]string{{"10.0.0.2", "10.0.0.3"}, {"10.0.0.3", "10.0.0.4"}} {
			apiServers = next
			process.look()
			Expect(stored().RecordedAPIServers()).ToNot(ContainElement(next[1] + ":6443"))
			process.clock.Step(2 * time.Minute)
			process.look()
			Expect(stored().RecordedAPIServers()).To(Equal([]string{next[0] + ":6443", next[1] + ":6443"}))
			Expect(recognized().IsTrue()).To(BeTrue())
		}
	})
	It("should not take in a clone's API server that is listed beside the old ones", func() {
		apiServers = []string{"10.0.0.1", "10.9.0.1"}
		process.look()
		process.clock.Step(20 * time.Second)
		process.look()
		apiServers = []string{"10.9.0.1"}
		process.clock.Step(time.Hour)
		process.look()
		Expect(stored().RecordedAPIServers()).To(Equal([]string{"10.0.0.1:6443", "10.0.0.2:6443"}))
		Expect(recognized().IsFalse()).To(BeTrue())
	})
	It("should be reported as unknown where they cannot be read", func() {
		apiServers = nil
		process.look()
		Expect(recognized()).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", providerconfig.ReasonControlPlaneUnknown)))
		Expect(stored().RecordedAPIServers()).ToNot(BeEmpty())
	})
	It("should be no finding where none was ever read, as where API servers publish no address", func() {
		object := stored()
		delete(object.Annotations, v1alpha1.AnnotationAPIServers)
		Expect(kubeClient.Update(ctx, object)).To(Succeed())
		apiServers = nil
		process.look()
		Expect(recognized()).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", providerconfig.ReasonControlPlaneUnknown),
			HaveField("Message", ContainSubstring("a clone of this cluster would not be noticed"))))
	})
	DescribeTable("should not matter to what holds launches back, which are conditions of their own:", func(conditionType, reason string, held func() *string) {
		for _, now := range []string{"", reason, ""} {
			*held() = now
			process.look()
			Expect(condition(conditionType).IsTrue()).To(Equal(now == ""))
			Expect(condition(conditionType).Reason).To(Equal(lo.CoalesceOrEmpty(now, conditionType)))
			Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue(), "everything else goes on")
		}
	},
		Entry("limits of the cluster", v1alpha1.ConditionTypeWithinSpendingLimits, "MaxServersReached", func() *string { return &process.limit }),
		Entry("the account", v1alpha1.ConditionTypeAccountAccepted, "BalanceExhausted", func() *string { return &process.account }),
	)
})
