// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("A scope", func() {
	here := bizfly.Scope{Host: "manage.bizflycloud.vn", Region: "HaNoi", ProjectID: "p1"}
	region, project := here, here
	region.Region, project.ProjectID = "HoChiMinh", "p2"
	waiting, launched := karpv1.NodeClaim{}, karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://1"}}

	requested := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationLaunchIntent: "{}"}}}

	DescribeTable("should be", func(recorded *bizfly.Scope, wanted bizfly.Scope, named string, claims []karpv1.NodeClaim, expected decision, rejected error) {
		is, err := decide(recorded, wanted, named, claims)
		Expect(is).To(Equal(expected))
		if rejected == nil {
			Expect(err).ToNot(HaveOccurred())
			return
		}
		Expect(err).To(BeAssignableToTypeOf(rejected))
	},
		Entry("adopted where nothing is recorded and nothing exists", nil, here, "", nil, adopt, nil),
		Entry("adopted where nothing is recorded and no server exists", nil, here, "", []karpv1.NodeClaim{waiting}, adopt, nil),
		Entry("rejected where nothing is recorded and a server exists", nil, here, "", []karpv1.NodeClaim{waiting, launched}, reject, &ScopeUnrecordedError{}),
		Entry("rejected where nothing is recorded and a server may exist", nil, here, "", []karpv1.NodeClaim{requested}, reject, &ScopeUnrecordedError{}),
		Entry("rejected where nothing is recorded and another project is named", nil, here, "p2", []karpv1.NodeClaim{launched}, reject, &ScopeUnrecordedError{}),
		Entry("adopted where nothing is recorded and its project is named", nil, here, "p1", []karpv1.NodeClaim{launched}, adopt, nil),
		Entry("kept where it is the recorded one", &here, here, "", []karpv1.NodeClaim{launched}, keep, nil),
		Entry("adopted where it is another one and nothing exists", &here, project, "", nil, adopt, nil),
		Entry("rejected where it is another project and a NodeClaim exists", &here, project, "p2", []karpv1.NodeClaim{waiting}, reject, &ScopeChangedError{}),
		Entry("rejected where it is another region and a NodeClaim exists", &here, region, "p1", []karpv1.NodeClaim{launched}, reject, &ScopeChangedError{}),
	)
})
