// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The join token of a NodeClaim", func() {
	var (
		tokens *jointoken.DefaultProvider
		claim  *karpv1.NodeClaim
	)
	BeforeEach(func() {
		tokens = jointoken.NewDefaultProvider(env.Client, clock.RealClock{}, nil)
		claim = coretest.NodeClaim(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{karpv1.TerminationFinalizer}},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "general"}},
		})
		expectations.ExpectApplied(ctx, env.Client, claim)
		DeferCleanup(func() {
			expectations.ExpectCleanedUp(ctx, env.Client)
			Expect(env.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
		})
		_, err := tokens.Issue(ctx, jointoken.Request{NodeClaim: claim, NodeName: "n", Attempt: 1, TTL: time.Hour})
		Expect(err).ToNot(HaveOccurred())
	})
	secrets := func() []corev1.Secret {
		GinkgoHelper()
		list := &corev1.SecretList{}
		Expect(env.Client.List(ctx, list, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
		return list.Items
	}
	look := func() {
		GinkgoHelper()
		expectations.ExpectObjectReconciled(ctx, env.Client,
			server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, tokens, env.Recorder, env.Clock),
			claim)
	}

	It("should stay while the node has not registered", func() {
		look()
		Expect(secrets()).To(HaveLen(1))
	})
	It("should be revoked once the node has registered", func() {
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		expectations.ExpectApplied(ctx, env.Client, claim)
		look()
		Expect(secrets()).To(BeEmpty())
	})
	It("should be revoked once the NodeClaim is being deleted", func() {
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		claim = expectations.ExpectExists(ctx, env.Client, claim)
		look()
		Expect(secrets()).To(BeEmpty())
	})
})
