// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The scope that is written down", func() {
	var server cloud.Server
	claim := func() {
		GinkgoHelper()
		Expect(kubeClient.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"},
		}}))).To(Succeed())
	}
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{})
		process = start(true, environment())
		process.look()
		server = sandbox.AddServer(cloud.ServerSpec{Name: "worker"})
	})
	AfterEach(func() {
		sandbox.Close()
		Expect(kubeClient.DeleteAllOf(ctx, &v1alpha1.ProviderConfig{})).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
	})

	It("should be of an account whose debt is reported until it is paid", func() {
		Expect(condition(v1alpha1.ConditionTypeAccountAccepted).IsTrue()).To(BeTrue())
		sandbox.SetQuota(cloud.Quota{Suspended: true})
		process.clock.Step(4 * time.Minute)
		for range 3 {
			process.clock.Step(time.Minute)
			process.look()
			Expect(condition(v1alpha1.ConditionTypeAccountAccepted)).To(And(HaveField("Status", metav1.ConditionFalse),
				HaveField("Message", ContainSubstring("the account's balance is negative"))))
		}
		Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue(), "everything else goes on")
		sandbox.SetQuota(cloud.Quota{})
		process.clock.Step(time.Minute)
		process.look()
		Expect(condition(v1alpha1.ConditionTypeAccountAccepted).IsTrue()).To(BeTrue())
	})
	It("should be of an account whose debt stays known while it cannot be asked", func() {
		sandbox.SetQuota(cloud.Quota{Suspended: true})
		process.clock.Step(ttl.AccountAtRest)
		process.look()
		apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: "missing"}})
		restarted := start(true, environment())
		for _, each := range []*replica{process, restarted} {
			each.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).IsFalse()).To(BeTrue())
			Expect(condition(v1alpha1.ConditionTypeAccountAccepted).Reason).To(Equal(providerconfig.ReasonAccountUnpaid))
		}

		By("and is asked about as soon as it can be")
		sandbox.SetQuota(cloud.Quota{})
		apply(v1alpha1.ProviderConfigSpec{})
		restarted.look()
		Expect(condition(v1alpha1.ConditionTypeAccountAccepted).IsTrue()).To(BeTrue())
	})
	It("should outlive a replica that took another one when it saw no NodeClaim", func() {
		base := environment()
		api, err := bizfly.NewClient(base)
		Expect(err).ToNot(HaveOccurred())
		follower := config.NewDefaultProvider(config.Options{
			Reader: kubeClient, Environment: base, Namespace: namespace, SecretName: secretName, Client: api,
		})
		Expect(follower.Sync(ctx).Err()).ToNot(HaveOccurred())

		By("noticing another project before there is a NodeClaim, and the leader afterwards")
		apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
		Expect(follower.Sync(ctx).Err()).ToNot(HaveOccurred())
		claim()
		process.look()
		Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))

		By("becoming the leader, who writes down what Sync says")
		for range 3 {
			result := follower.Sync(ctx)
			Expect(result.ScopeErr).To(HaveOccurred())
			Expect(result.Scope).To(BeNil())
			_, err = api.GetServer(ctx, server.ID)
			Expect(err).To(HaveOccurred())
			Expect(bizfly.IsNotFound(err)).To(BeFalse(), "a token of another project sees nothing, which is not gone")
		}

		By("going back")
		apply(v1alpha1.ProviderConfigSpec{})
		Expect(follower.Sync(ctx).Err()).ToNot(HaveOccurred())
		Expect(api.GetServer(ctx, server.ID)).ToNot(BeNil())
	})
	It("should be that of the credentials again without a named project or NodeClaims", func() {
		own := stored().Status.Scope.ProjectID
		apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
		process.look()
		Expect(stored().Status.Scope.ProjectID).To(Equal(otherProject))
		apply(v1alpha1.ProviderConfigSpec{})
		process.look()
		Expect(stored().Status.Scope.ProjectID).To(Equal(own))
		Expect(process.client.GetServer(ctx, server.ID)).ToNot(BeNil())
	})
	It("should stay that of the NodeClaims when the ProviderConfig names no project any more", func() {
		apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
		process.look()
		claim()
		apply(v1alpha1.ProviderConfigSpec{})
		process.look()
		Expect(stored().Status.Scope.ProjectID).To(Equal(otherProject))
		Expect(condition(v1alpha1.ConditionTypeScopePinned).IsTrue()).To(BeTrue())
	})
	for _, restart := range []bool{false, true} {
		It("should be that of the credentials again when the last NodeClaim is gone"+
			lo.Ternary(restart, ", also over a restart", ""), func() {
			own := stored().Status.Scope.ProjectID
			apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
			process.look()
			claim()
			apply(v1alpha1.ProviderConfigSpec{})
			if restart {
				process = start(true, environment())
			}
			for range 3 {
				process.look()
				Expect(stored().Status.Scope.ProjectID).To(Equal(otherProject))
			}
			Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
			process.look()
			Expect(stored().Status.Scope.ProjectID).To(Equal(own))
			Expect(process.client.GetServer(ctx, server.ID)).ToNot(BeNil())
		})
	}
	It("should be defended and recorded again when another project's ProviderConfig replaces it", func() {
		claim()
		Expect(kubeClient.Delete(ctx, stored())).To(Succeed())
		Expect(kubeClient.Create(ctx, &v1alpha1.ProviderConfig{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}, Spec: v1alpha1.ProviderConfigSpec{ProjectID: otherProject},
		})).To(Succeed())
		process.look()
		Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))
		Expect(process.client.GetServer(ctx, server.ID)).ToNot(BeNil())
		Expect(stored().Status.Scope).To(HaveField("ProjectID", sandbox.Credentials().ProjectID))
	})
	Context("when the ProviderConfig was deleted while no controller ran", func() {
		var elsewhere bizfly.Config
		BeforeEach(func() {
			object := coretest.NodeClaim(karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"},
			}})
			Expect(kubeClient.Create(ctx, object)).To(Succeed())
			object.Status.ProviderID = providerid.New(server.ID)
			Expect(kubeClient.Status().Update(ctx, object)).To(Succeed())
			Expect(kubeClient.Delete(ctx, stored())).To(Succeed())
			elsewhere = environment()
			elsewhere.ProjectID = otherProject
		})
		It("should not become a project that the user has not named", func() {
			restarted := start(true, elsewhere)
			restarted.look()
			Expect(stored().Status.Scope).To(BeNil())
			Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))
			Expect(stored().Status.Reason).To(Equal(providerconfig.ReasonScopeChanged))
			Expect(condition(v1alpha1.ConditionTypeScopePinned).Message).To(And(ContainSubstring("1 NodeClaims"), ContainSubstring(otherProject)))
			_, err := restarted.client.GetServer(ctx, server.ID)
			Expect(err).To(HaveOccurred())
			Expect(bizfly.IsNotFound(err)).To(BeFalse())
		})
		It("should become the project in which the servers are once the user names it", func() {
			restarted := start(true, environment())
			restarted.look()
			Expect(stored().Status.Scope).To(BeNil())
			Expect(condition(v1alpha1.ConditionTypeScopePinned).Message).To(ContainSubstring("set spec.projectID to " + sandbox.Credentials().ProjectID))
			apply(v1alpha1.ProviderConfigSpec{ProjectID: sandbox.Credentials().ProjectID})
			restarted.look()
			Expect(stored().Status.Scope).To(HaveField("ProjectID", sandbox.Credentials().ProjectID))
			Expect(restarted.client.GetServer(ctx, server.ID)).ToNot(BeNil())
		})
		DescribeTable("should not log in, nor list servers, for each check while none is recorded",
			func(config func() bizfly.Config) {
				sandbox.ResetRequests()
				restarted := startWith(true, config(), false)
				for range 10 {
					Expect(restarted.controller.Reconcile(ctx)).Error().ToNot(HaveOccurred())
				}
				count := func(suffix string) int {
					return lo.CountBy(sandbox.Requests(), func(r cloud.Request) bool { return strings.HasSuffix(r.Path, suffix) })
				}
				Expect(count("/token")).To(And(BeNumerically(">", 0), BeNumerically("<=", 3)))
				Expect(count("/servers")).To(BeZero())
			},
			Entry("where the servers are", environment), Entry("where none of them is", func() bizfly.Config { return elsewhere }),
		)
		It("should become another project where the user names it", func() {
			restarted := start(true, elsewhere)
			restarted.look()
			apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
			restarted.look()
			Expect(stored().Status.Scope).To(HaveField("ProjectID", otherProject))
		})
	})
	It("should be kept by a process that starts with a ProviderConfig for another place", func() {
		claim()
		apply(v1alpha1.ProviderConfigSpec{Region: "HCM"})
		restarted := start(true, environment())
		restarted.look()
		Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))
		for _, notAsked := range []string{v1alpha1.ConditionTypeCredentialsReady, v1alpha1.ConditionTypeEndpointReachable} {
			Expect(condition(notAsked).Reason).To(Equal(providerconfig.ReasonScopeChanged), "kubectl get shows the first reason")
		}
		Expect(restarted.client.DeleteServer(ctx, server.ID, nil)).To(Succeed())
		Expect(restarted.catalog.Refresh(ctx)).To(Succeed())

		By("reading the catalog of the other place once it is adopted")
		Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
		restarted.look()
		Expect(stored().Status.Zones).To(ConsistOf("HCM1"))
		apply(v1alpha1.ProviderConfigSpec{})
		restarted.look()
		Expect(condition(v1alpha1.ConditionTypeScopePinned).IsTrue()).To(BeTrue())
	})
	It("should be written down again when the ProviderConfig is deleted", func() {
		claim()
		before := stored().Status.Scope
		Expect(kubeClient.Delete(ctx, stored())).To(Succeed())
		process.look()
		Expect(stored().Status.Scope).To(Equal(before))
	})
})
