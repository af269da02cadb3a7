// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestBill(t *testing.T) { suite.Run(t, "Bill") }

var _ = Describe("The workloads of the bill", func() {
	every := append(bill.Settling(), bill.Days()...)

	It("should be the same each time", func() {
		Expect(append(bill.Settling(), bill.Days()...)).To(Equal(every))
		Expect(lo.FindDuplicates(lo.Map(every, func(w bill.Workload, _ int) string { return w.Name }))).To(BeEmpty())
	})
	It("should fit: each pod a worker of 8 vCPUs, all pods of a moment the limit of vCPUs", func() {
		for _, w := range every {
			Expect(w.Pods).ToNot(BeEmpty(), w.Name)
			Expect(lo.FindDuplicates(lo.Map(w.Pods, func(p bill.Pod, _ int) string { return p.Name }))).To(BeEmpty(), w.Name)
			var most int64
			for _, at := range w.Pods {
				Expect(at.MilliCPU).To(BeNumerically("<=", 7_500), w.Name)
				Expect(at.MiB).To(BeNumerically("<=", 12<<10), w.Name)
				most = max(most, lo.SumBy(w.Pods, func(p bill.Pod) int64 {
					return lo.Ternary(p.Arrives <= at.Arrives && (p.Leaves == 0 || p.Leaves > at.Arrives), p.MilliCPU, 0)
				}))
			}
			AddReportEntry(w.Name, most)
			Expect(most).To(BeNumerically("<=", 80_000), w.Name)
		}
	})
	It("should come and go within a day, or all come at once and stay", func() {
		for _, w := range bill.Settling() {
			Expect(w.Pods).To(HaveEach(And(HaveField("Arrives", BeZero()), HaveField("Leaves", BeZero()))), w.Name)
		}
		for _, w := range bill.Days() {
			left := lo.CountBy(w.Pods, func(p bill.Pod) bool { return p.Leaves != 0 })
			Expect(left).To(BeNumerically(">", len(w.Pods)/2), w.Name)
			for _, p := range w.Pods {
				Expect(p.Arrives).To(BeNumerically("<", bill.Day), w.Name)
				if p.Leaves != 0 {
					Expect(p.Leaves).To(And(BeNumerically(">", p.Arrives), BeNumerically("<=", bill.Day)), w.Name)
				}
			}
		}
	})
})
