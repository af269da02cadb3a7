// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

var _ = Describe("The cache", func() {
	It("should hold no managed fields, and no patch or update should remove them", func(ctx SpecContext) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "cached-"}}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Client.Delete(ctx, node)).To(Succeed()) })
		Expect(node.ManagedFields).NotTo(BeEmpty())

		informers, err := cache.New(env.Config, cache.Options{Scheme: env.Client.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Expect(operator.StripManagedFields(ctx, informers, &corev1.Node{})).To(Succeed())
		running, stop := context.WithCancel(ctx)
		DeferCleanup(stop)
		go func() { _ = informers.Start(running) }()
		Expect(informers.WaitForCacheSync(ctx)).To(BeTrue())
		cached := &corev1.Node{}
		Expect(informers.Get(ctx, client.ObjectKeyFromObject(node), cached)).To(Succeed())
		Expect(cached.ManagedFields).To(BeEmpty())

		patched := cached.DeepCopy()
		patched.Labels = map[string]string{"example.test/a": "b"}
		Expect(env.Client.Patch(ctx, patched, client.MergeFrom(cached))).To(Succeed())
		Expect(patched.ManagedFields).NotTo(BeEmpty())
		patched.ManagedFields = nil
		patched.Labels["example.test/c"] = "d"
		Expect(env.Client.Update(ctx, patched)).To(Succeed())
		Expect(patched.ManagedFields).NotTo(BeEmpty())
	})
})
