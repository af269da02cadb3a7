// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("A NodeClass", func() {
	var nodeClass *v1alpha1.BizflyNodeClass
	BeforeEach(func() { nodeClass = fresh() })
	using := func(group, kind, name string) *karpv1.NodeClaim {
		GinkgoHelper()
		return claimOf(karpv1.NodeClassReference{Group: group, Kind: kind, Name: name}, v1alpha1.NodeClassHashVersion)
	}
	ourClaim := func() *karpv1.NodeClaim { return claimOf(ours, v1alpha1.NodeClassHashVersion) }

	It("should get our finalizer beside those of others, once", func() {
		nodeClass.Finalizers = []string{"example.com/other"}
		expectations.ExpectApplied(ctx, env.Client, nodeClass)
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		first := expectations.ExpectExists(ctx, env.Client, nodeClass)
		Expect(first.Finalizers).To(ConsistOf("example.com/other", v1alpha1.TerminationFinalizer))
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(expectations.ExpectExists(ctx, env.Client, nodeClass).ResourceVersion).To(Equal(first.ResourceVersion))
	})
	It("should go when nothing uses it", func() {
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectNotFound(ctx, env.Client, nodeClass)
		Expect(env.Recorder.Events()).To(BeEmpty())
	})
	It("should stay while NodeClaims use it, say which, and go after the last", func() {
		claims := lo.Times(7, func(int) *karpv1.NodeClaim { return ourClaim() })
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		result := expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(result.RequeueAfter).To(Equal(time.Minute))
		Expect(expectations.ExpectExists(ctx, env.Client, nodeClass).Finalizers).To(ContainElement(v1alpha1.TerminationFinalizer))
		Expect(env.Recorder.Events()).To(HaveExactElements(And(
			HaveField("Type", corev1.EventTypeNormal), HaveField("Reason", events.ReasonWaitingOnNodeClaimTermination),
			HaveField("Message", And(ContainSubstring("the 7 NodeClaims"), HaveSuffix(" and 2 more"))))))

		for _, claim := range claims[1:] {
			expectations.ExpectDeleted(ctx, env.Client, claim)
		}
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Recorder.Events()[1].Message).To(HaveSuffix(": " + claims[0].Name))
		expectations.ExpectDeleted(ctx, env.Client, claims[0])
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectNotFound(ctx, env.Client, nodeClass)
	})
	It("should stay while a NodeClaim that uses it is still being deleted", func() {
		claim := ourClaim()
		claim.Finalizers = []string{karpv1.TerminationFinalizer}
		expectations.ExpectApplied(ctx, env.Client, claim)
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectExists(ctx, env.Client, nodeClass)
		expectations.ExpectFinalizersRemoved(ctx, env.Client, claim)
		expectations.ExpectNotFound(ctx, env.Client, claim)
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectNotFound(ctx, env.Client, nodeClass)
	})
	DescribeTable("should not be held by a NodeClaim", func(group, kind, name string) {
		using(group, kind, name)
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		expectations.ExpectNotFound(ctx, env.Client, nodeClass)
	},
		Entry("of another NodeClass", v1alpha1.Group, "BizflyNodeClass", "other"),
		Entry("of another kind", v1alpha1.Group, "OtherNodeClass", "general"),
		Entry("of another provider", "karpenter.k8s.aws", "BizflyNodeClass", "general"),
	)
	It("should be left alone while it is being deleted and holds only the finalizers of others", func() {
		nodeClass.Finalizers = []string{"example.com/other"}
		expectations.ExpectApplied(ctx, env.Client, nodeClass)
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(expectations.ExpectExists(ctx, env.Client, nodeClass).Finalizers).To(Equal([]string{"example.com/other"}))
	})
	It("should keep a finalizer that another client adds meanwhile", func() {
		stale := expectations.ExpectExists(ctx, env.Client, nodeClass).DeepCopy()
		nodeClass.Finalizers = []string{"example.com/other"}
		expectations.ExpectApplied(ctx, env.Client, nodeClass)
		result := lo.Must(controller().Reconcile(ctx, stale))
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		Expect(expectations.ExpectExists(ctx, env.Client, nodeClass).Finalizers).To(ConsistOf("example.com/other", v1alpha1.TerminationFinalizer))
	})
	It("should be freed at once by the deletion of its last NodeClaim", func() {
		manager := unit.NewManager(env.Environment.Config)
		Expect(coretest.NodeClaimNodeClassRefFieldIndexer(ctx)(manager.GetCache())).To(Succeed())
		managed := usage.NewController(manager.GetClient(), env.Recorder, env.Clock, env.CloudProvider)
		Expect(managed.Register(ctx, manager)).To(Succeed())
		Expect(managed.Name()).To(Equal("nodeclass.usage"))
		claim := ourClaim()
		defer unit.RunManager(ctx, manager)() // or it gives NodeClasses that are cleaned up their finalizer again
		Eventually(func() []string { return expectations.ExpectExists(ctx, env.Client, nodeClass).Finalizers }).
			Should(ContainElement(v1alpha1.TerminationFinalizer))
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		Eventually(env.Recorder.Events).ShouldNot(BeEmpty())
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		// Far less than the minute after which it would have looked again by itself.
		Eventually(func() bool {
			return apierrors.IsNotFound(env.Client.Get(ctx, client.ObjectKeyFromObject(nodeClass), &v1alpha1.BizflyNodeClass{}))
		}).
			Should(BeTrue())
	})
})
