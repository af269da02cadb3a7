// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

var _ = Describe("The version", func() {
	It("should name the binary, its version, its commit and Go's version", func() {
		Expect(operator.Version()).To(MatchRegexp(`^karpenter-provider-bizflycloud \S+ \(commit \S+, go1\.\S+.*\)$`))
		Expect(operator.Version()).To(ContainSubstring(operator.Commit()))
	})
	It("should be a metric", func() {
		families, err := crmetrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		family, ok := lo.Find(families, func(f *dto.MetricFamily) bool { return f.GetName() == "karpenter_bizfly_build_info" })
		Expect(ok).To(BeTrue())
		Expect(family.GetMetric()).To(HaveLen(1))
		Expect(family.GetMetric()[0].GetGauge().GetValue()).To(Equal(1.0))
		labels := lo.SliceToMap(family.GetMetric()[0].GetLabel(), func(l *dto.LabelPair) (string, string) { return l.GetName(), l.GetValue() })
		Expect(labels).To(HaveKeyWithValue("commit", operator.Commit()))
		Expect(labels).To(And(HaveKey("version"), HaveKey("goversion"), HaveLen(3)))
	})
})
