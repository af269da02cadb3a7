// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("A scope", func() {
	here := bizfly.Scope{Host: "manage.bizflycloud.vn", Region: "HaNoi", ProjectID: "p1"}
	region, project := here, here
	region.Region, project.ProjectID = "HoChiMinh", "p2"
	waiting, launched := karpv1.NodeClaim{}, karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://1"}}

	DescribeTable("should be", func(recorded *bizfly.Scope, wanted bizfly.Scope, named string, claims []karpv1.NodeClaim, rejected error) {
		err := decide(recorded, wanted, named, claims)
		if rejected == nil {
			Expect(err).ToNot(HaveOccurred())
			return
		}
		Expect(err).To(BeAssignableToTypeOf(rejected))
	},
		Entry("taken where nothing is recorded and nothing exists", nil, here, "", nil, nil),
		Entry("taken where nothing is recorded and no server exists", nil, here, "", []karpv1.NodeClaim{waiting}, nil),
		Entry("rejected where nothing is recorded and a server exists", nil, here, "", []karpv1.NodeClaim{waiting, launched}, &ScopeUnrecordedError{}),
		Entry("rejected where nothing is recorded and another project is named", nil, here, "p2", []karpv1.NodeClaim{launched}, &ScopeUnrecordedError{}),
		Entry("taken where nothing is recorded and its project is named", nil, here, "p1", []karpv1.NodeClaim{launched}, nil),
		Entry("kept where it is the recorded one", &here, here, "", []karpv1.NodeClaim{launched}, nil),
		Entry("taken where it is another one and nothing exists", &here, project, "", nil, nil),
		Entry("rejected where it is another project and a NodeClaim exists", &here, project, "p2", []karpv1.NodeClaim{waiting}, &ScopeChangedError{}),
		Entry("rejected where it is another region and a NodeClaim exists", &here, region, "p1", []karpv1.NodeClaim{launched}, &ScopeChangedError{}),
	)
})
