// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"errors"

	opstatus "github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	oldHash    = "a hash of another version"
	oldVersion = "v0"
)

// fresh makes a NodeClass that no controller has seen.
func fresh() *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	nodeClass := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	expectations.ExpectApplied(ctx, env.Client, nodeClass)
	return nodeClass
}

// stampedBy makes an object of an older controller: its hash and version are of another hash function.
func stampedBy(version string) map[string]string {
	return map[string]string{v1alpha1.AnnotationNodeClassHash: oldHash, v1alpha1.AnnotationNodeClassHashVersion: version, "example.com/other": "kept"}
}

func claimOf(ref karpv1.NodeClassReference, version string) *karpv1.NodeClaim {
	GinkgoHelper()
	claim := coretest.NodeClaim(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: stampedBy(version)}, Spec: karpv1.NodeClaimSpec{NodeClassRef: &ref},
	})
	expectations.ExpectApplied(ctx, env.Client, claim)
	return claim
}

// withoutClaims is a client that may not change NodeClaims.
type withoutClaims struct{ client.Client }

func (c withoutClaims) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if _, is := object.(*karpv1.NodeClaim); is {
		return errors.New("rejected by a policy")
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

var ours = karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "general"}

func stampOf(object client.Object) []string {
	return []string{object.GetAnnotations()[v1alpha1.AnnotationNodeClassHash], object.GetAnnotations()[v1alpha1.AnnotationNodeClassHashVersion]}
}

var _ = Describe("The hash of a NodeClass", func() {
	var nodeClass *v1alpha1.BizflyNodeClass
	BeforeEach(func() { nodeClass = fresh() })
	// reconcile runs the controller and reads the NodeClass again.
	reconcile := func() *v1alpha1.BizflyNodeClass {
		GinkgoHelper()
		expectations.ExpectObjectReconciled(ctx, env.Client, controller(), nodeClass)
		return expectations.ExpectExists(ctx, env.Client, nodeClass)
	}

	It("should be stamped with its version", func() {
		Expect(stampOf(reconcile())).To(Equal([]string{nodeClass.Hash(), v1alpha1.NodeClassHashVersion}))
	})
	It("should be written once and left alone while nothing changes", func() {
		first := reconcile()
		Expect(reconcile().ResourceVersion).To(Equal(first.ResourceVersion))
	})
	It("should follow the spec", func() {
		before := stampOf(reconcile())
		nodeClass = expectations.ExpectExists(ctx, env.Client, nodeClass)
		nodeClass.Spec.PublicIPv4 = lo.ToPtr(false)
		expectations.ExpectApplied(ctx, env.Client, nodeClass)
		Expect(stampOf(reconcile())).To(And(Not(Equal(before)), Equal([]string{nodeClass.Hash(), v1alpha1.NodeClassHashVersion})))
	})
	It("should not reach NodeClaims when the spec changes, because the difference is the drift", func() {
		reconcile()
		claim := claimOf(ours, v1alpha1.NodeClassHashVersion)
		nodeClass = expectations.ExpectExists(ctx, env.Client, nodeClass)
		nodeClass.Spec.BillingPlan = v1alpha1.BillingPlanSavingPlan
		expectations.ExpectApplied(ctx, env.Client, nodeClass)
		reconcile()
		Expect(stampOf(expectations.ExpectExists(ctx, env.Client, claim))).To(Equal([]string{oldHash, v1alpha1.NodeClassHashVersion}))
	})
	Context("of another version", func() {
		BeforeEach(func() {
			nodeClass.Annotations = stampedBy(oldVersion)
			expectations.ExpectApplied(ctx, env.Client, nodeClass)
		})
		It("should be re-stamped on NodeClass and NodeClaims, so that an upgrade rolls nothing", func() {
			claims := lo.Times(3, func(int) *karpv1.NodeClaim { return claimOf(ours, oldVersion) })
			stamped := reconcile()
			Expect(stampOf(stamped)).To(Equal([]string{nodeClass.Hash(), v1alpha1.NodeClassHashVersion}))
			Expect(stamped.Annotations).To(HaveKeyWithValue("example.com/other", "kept"))
			for _, claim := range claims {
				found := expectations.ExpectExists(ctx, env.Client, claim)
				Expect(stampOf(found)).To(Equal(stampOf(stamped)))
				Expect(found.Annotations).To(HaveKeyWithValue("example.com/other", "kept"))
			}
		})
		It("should stay different on a NodeClaim that has drifted already", func() {
			claim := claimOf(ours, oldVersion)
			claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "NodeClassDrifted", "")
			expectations.ExpectApplied(ctx, env.Client, claim)
			reconcile()
			Expect(stampOf(expectations.ExpectExists(ctx, env.Client, claim))).To(Equal([]string{oldHash, v1alpha1.NodeClassHashVersion}))
		})
		It("should not be re-stamped on a NodeClaim that has the new version already", func() {
			claim := claimOf(ours, v1alpha1.NodeClassHashVersion)
			reconcile()
			Expect(stampOf(expectations.ExpectExists(ctx, env.Client, claim))).To(Equal([]string{oldHash, v1alpha1.NodeClassHashVersion}))
		})
		DescribeTable("should not be re-stamped on a NodeClaim", func(ref karpv1.NodeClassReference) {
			claim := claimOf(ref, oldVersion)
			reconcile()
			Expect(stampOf(expectations.ExpectExists(ctx, env.Client, claim))).To(Equal([]string{oldHash, oldVersion}))
		},
			Entry("of another NodeClass", karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "other"}),
			Entry("of another kind", karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "OtherNodeClass", Name: "general"}),
			Entry("of another provider", karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "BizflyNodeClass", Name: "general"}),
		)
		It("should stay while NodeClaims cannot be stamped, and hold up nothing else", func() {
			claimOf(ours, oldVersion)
			rejected := usage.NewController(withoutClaims{env.Client}, env.Recorder, env.Clock, env.CloudProvider)
			for range 10 {
				Expect(expectations.ExpectObjectReconcileFailed(ctx, env.Client, rejected, nodeClass)).To(MatchError(ContainSubstring("rejected by a policy")))
				Expect(usage.Retries.When(controllerruntime.Request{})).To(BeNumerically("<=", ttl.NodeClassConditions), "what the queue does with the error")
			}
			found := expectations.ExpectExists(ctx, env.Client, nodeClass)
			Expect(stampOf(found)).To(Equal([]string{oldHash, oldVersion}))
			Expect(found.Finalizers).To(ConsistOf(v1alpha1.TerminationFinalizer))
			Expect(found.StatusConditions(opstatus.WithObservedOnly()).IsTrue(usage.ConditionTypes...)).To(BeTrue())
		})
		It("should go on where it was interrupted", func() {
			done, left := claimOf(ours, oldVersion), claimOf(ours, oldVersion)
			done.Annotations[v1alpha1.AnnotationNodeClassHash], done.Annotations[v1alpha1.AnnotationNodeClassHashVersion] = nodeClass.Hash(),
				v1alpha1.NodeClassHashVersion
			expectations.ExpectApplied(ctx, env.Client, done)
			reconcile()
			Expect(stampOf(expectations.ExpectExists(ctx, env.Client, left))).To(Equal(stampOf(expectations.ExpectExists(ctx, env.Client, done))))
		})
	})
})
