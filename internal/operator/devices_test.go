// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

var _ = Describe("Dynamic resource allocation", func() {
	It("should be counted where the API server serves its objects", func() {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "resource.k8s.io", Version: "v1"}})
		mapper.Add(schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"}, meta.RESTScopeNamespace)
		Expect(operator.DeviceAPI(mapper, false)).To(Succeed())
	})
	It("should not be counted on an older Kubernetes, which has other versions of its objects", func() {
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "resource.k8s.io", Version: "v1alpha2"}})
		mapper.Add(schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClaim"}, meta.RESTScopeNamespace)
		Expect(operator.DeviceAPI(mapper, false)).To(MatchError(And(ContainSubstring("IGNORE_DRA_REQUESTS is false"), ContainSubstring("Kubernetes 1.34"))))
		Expect(operator.DeviceAPI(mapper, true)).To(Succeed())
	})
	It("should not be taken for missing while the API server does not answer", func() {
		httpClient, err := rest.HTTPClientFor(&rest.Config{})
		Expect(err).ToNot(HaveOccurred())
		mapper, err := apiutil.NewDynamicRESTMapper(&rest.Config{Host: "http://127.0.0.1:1"}, httpClient)
		Expect(err).ToNot(HaveOccurred())
		Expect(operator.DeviceAPI(mapper, false)).To(MatchError(ContainSubstring("asking the API server for resource.k8s.io/v1")))
	})
})
