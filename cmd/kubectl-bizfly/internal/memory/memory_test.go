// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
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
		Expect(kube.List(ctx, pods, client.MatchingFields{"status.phase": "Running"})).To(MatchError(ContainSubstring("only spec.nodeName is indexed")))
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
})
