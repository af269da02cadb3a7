// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	It("should fill, and a start should read, although the API server answers 429 at first", func(ctx SpecContext) {
		server := httputil.NewSingleHostReverseProxy(lo.Must(url.Parse(env.Config.Host)))
		server.Transport, server.FlushInterval = lo.Must(rest.TransportFor(env.Config)), -1
		var rejected sync.Map
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, again := rejected.LoadOrStore(r.URL.Path, true); again {
				server.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		running, stop := context.WithCancel(ctx)
		DeferCleanup(func() { stop(); busy.CloseClientConnections(); busy.Close() })
		config := &rest.Config{Host: busy.URL}
		informers, err := cache.New(config, cache.Options{Scheme: env.Client.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Expect(operator.StripManagedFields(ctx, informers, &corev1.Node{})).To(Succeed())
		go func() { _ = informers.Start(running) }()
		Expect(informers.WaitForCacheSync(ctx)).To(BeTrue())
		reader, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Expect(reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})).To(Succeed())
		for _, path := range []string{"/api", "/api/v1/nodes", "/api/v1/namespaces/kube-system"} {
			_, was := rejected.Load(path)
			Expect(was).To(BeTrue(), path)
		}
	})
})
