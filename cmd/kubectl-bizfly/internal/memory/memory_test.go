// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestMemory(t *testing.T) { suite.Run(t, "Memory") }

func pod(namespace, name, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
}

var _ = Describe("Objects", func() {
	It("should keep the last of the same kind, namespace and name", func() {
		first, other, last := pod("shop", "web", "a", nil), pod("blog", "web", "b", nil), pod("shop", "web", "c", nil)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		objects := memory.Objects{first}
		Expect(objects.With(other, claim, last)).To(Equal(memory.Objects{last, other, claim}))
		Expect(objects).To(Equal(memory.Objects{first}))
		Expect(memory.Of[*corev1.PersistentVolumeClaim](objects.With(claim))).To(HaveExactElements(claim))
	})
})

var _ = Describe("Client", func() {
	names := func(pods *corev1.PodList) []string {
		return lo.Map(pods.Items, func(p corev1.Pod, _ int) string { return p.Namespace + "/" + p.Name })
	}

	It("should list pods by node, namespace and labels", func(ctx SpecContext) {
		kube := memory.New(memory.Objects{pod("shop", "web", "a", map[string]string{"app": "web"}), pod("shop", "db", "", nil), pod("blog", "web", "", nil)})
		pods := &corev1.PodList{}
		Expect(kube.List(ctx, pods)).To(Succeed())
		Expect(names(pods)).To(ConsistOf("shop/web", "shop/db", "blog/web"))
		Expect(kube.List(ctx, pods, client.MatchingFields{"spec.nodeName": "a"})).To(Succeed())
		Expect(names(pods)).To(ConsistOf("shop/web"))
		Expect(kube.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""})).To(Succeed())
		Expect(names(pods)).To(ConsistOf("shop/db", "blog/web"))
		Expect(kube.List(ctx, pods, client.MatchingLabels{"app": "web"}, client.InNamespace("shop"))).To(Succeed())
		Expect(names(pods)).To(ConsistOf("shop/web"))
		Expect(kube.List(ctx, pods,
			client.MatchingFields{"status.phase": "Running"})).To(MatchError(ContainSubstring("listing pods by status.phase=Running is not supported")))
		kube.SetPods([]*corev1.Pod{pod("shop", "api", "b", nil)})
		Expect(kube.List(ctx, pods, client.MatchingFields{"spec.nodeName": "b"})).To(Succeed())
		Expect(names(pods)).To(ConsistOf("shop/api"))
	})

	It("should give every object a UID of its own, and leave the caller's objects alone", func(ctx SpecContext) {
		given := pod("shop", "web", "", nil)
		kube := memory.New(memory.Objects{given, pod("shop", "db", "", nil)})
		pods := &corev1.PodList{}
		Expect(kube.List(ctx, pods)).To(Succeed())
		claims := []*karpv1.NodeClaim{{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}}, {ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}}}
		for _, claim := range claims {
			Expect(kube.Create(ctx, claim)).To(Succeed())
		}
		Expect(lo.Uniq([]any{pods.Items[0].UID, pods.Items[1].UID, claims[0].UID, claims[1].UID})).To(And(HaveLen(4), Not(ContainElement(BeEmpty()))))
		Expect(given.UID).To(BeEmpty())
		again := memory.New(memory.Objects{claims[0], claims[1]})
		third, fourth := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}},
			&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}}
		Expect(again.Create(ctx, third)).To(Succeed())
		Expect(again.Create(ctx, fourth)).To(Succeed())
		Expect(lo.Uniq([]string{claims[0].Name, claims[1].Name, third.Name, fourth.Name})).To(HaveLen(4), "no generated name is one that exists")
	})

	It("should keep objects that are being deleted without a finalizer in their metadata", func(ctx SpecContext) {
		kube := memory.New(memory.Objects{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: lo.ToPtr(metav1.Now())}}})
		namespace := &corev1.Namespace{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "shop"}, namespace)).To(Succeed())
		Expect(namespace.DeletionTimestamp).NotTo(BeNil())
	})

	It("should find a PersistentVolume by a key with a namespace, which an API server ignores", func(ctx SpecContext) {
		kube := memory.New(memory.Objects{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}})
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "data"}, &corev1.PersistentVolume{})).To(Succeed())
	})

	It("should write object and status apart, as the definition of the kind says", func(ctx SpecContext) {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: karpv1.NodeClaimStatus{NodeName: "lost"}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		kube := memory.New(memory.Objects{node})
		Expect(kube.Create(ctx, claim)).To(Succeed())
		Expect(claim.Status.NodeName).To(BeEmpty())
		claim.Labels, claim.Status.NodeName = map[string]string{"a": "b"}, "a"
		Expect(kube.Status().Update(ctx, claim)).To(Succeed())
		Expect(claim.Labels).To(BeEmpty())
		Expect(claim.Status.NodeName).To(Equal("a"))
		changed := claim.DeepCopy()
		changed.Labels, changed.Status.NodeName = map[string]string{"a": "b"}, "lost"
		Expect(kube.Patch(ctx, changed, client.MergeFrom(claim))).To(Succeed())
		Expect(changed.Labels).To(HaveKey("a"))
		Expect(changed.Status.NodeName).To(Equal("a"))
		Expect(withoutStatus()).To(BeEmpty(), "all definitions have a status of their own")
	})

	It("should reject what is not based on the last version, and what it does not support", func(ctx SpecContext) {
		kube := memory.New(memory.Objects{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
		first, second := &corev1.Node{}, &corev1.Node{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "a"}, first)).To(Succeed())
		Expect(kube.Get(ctx, client.ObjectKey{Name: "a"}, second)).To(Succeed())
		Expect(kube.Update(ctx, first)).To(Succeed())
		Expect(apierrors.IsConflict(kube.Update(ctx, second))).To(BeTrue())
		stored := second.DeepCopy()
		second.Labels = map[string]string{"a": "b"}
		Expect(apierrors.IsConflict(kube.Patch(ctx, second, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})))).To(BeTrue())
		Expect(apierrors.IsAlreadyExists(kube.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))).To(BeTrue())
		for _, err := range []error{
			kube.Patch(ctx, second, client.StrategicMergeFrom(stored)), kube.DeleteAllOf(ctx, second), kube.SubResource("scale").Update(ctx, second),
			kube.SubResource("eviction").Create(ctx, second, second), kube.List(ctx, &metav1.PartialObjectMetadataList{}),
			kube.Delete(ctx, second, client.Preconditions{}),
		} {
			Expect(err).To(HaveOccurred())
		}
	})

	It("should keep what has finalizers until the last of them is gone", func(ctx SpecContext) {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"keep"}}}
		kube := memory.New(memory.Objects{claim})
		Expect(kube.Delete(ctx, claim)).To(Succeed())
		Expect(kube.Get(ctx, client.ObjectKey{Name: "a"}, claim)).To(Succeed())
		Expect(claim.DeletionTimestamp).ToNot(BeNil())
		claim.Finalizers = nil
		Expect(kube.Update(ctx, claim)).To(Succeed())
		Expect(apierrors.IsNotFound(kube.Get(ctx, client.ObjectKey{Name: "a"}, claim))).To(BeTrue())
	})
})

// withoutStatus are the kinds of our definitions and of core's whose status is written with the object.
func withoutStatus() []string {
	return lo.FilterMap(apis.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition, _ int) (string, bool) {
		return crd.Name, crd.Spec.Versions[0].Subresources == nil || crd.Spec.Versions[0].Subresources.Status == nil
	})
}
