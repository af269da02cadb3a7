// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var env *coretest.Environment

func TestOperator(t *testing.T) { suite.Run(t, "Operator") }

var _ = unit.APIServer(&env)

var _ = Describe("The version", func() {
	It("should name the binary, its version, its commit and Go's version", func() {
		Expect(operator.Version()).To(MatchRegexp(`^karpenter-provider-bizflycloud \S+ \(commit \S+, go1\.\S+.*\)$`))
		Expect(operator.Version()).To(ContainSubstring(operator.Commit()))
	})
	It("should be a metric", func() {
		info, err := metrics.Gather(crmetrics.Registry, "karpenter_bizfly_build_info")
		Expect(err).NotTo(HaveOccurred())
		Expect(info).To(HaveLen(1))
		Expect(info[0].Value).To(Equal(1.0))
		labels := info[0].Labels
		Expect(labels).To(HaveKeyWithValue("commit", operator.Commit()))
		Expect(labels).To(And(HaveKey("version"), HaveKey("goversion"), HaveLen(3)))
	})
})
