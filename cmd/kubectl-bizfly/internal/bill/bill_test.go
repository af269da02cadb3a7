// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"

	workloads "github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
)

func TestBill(t *testing.T) {
	suite.ReadsRepository()
	suite.Run(t, "Bill")
}

var _ = Describe("The page on what workloads cost", func() {
	It("should have the figures of the last measurement", func() {
		page, err := os.ReadFile(filepath.Join(root, pageFile))
		Expect(err).ToNot(HaveOccurred())
		Expect(insert(string(page), load())).To(Equal(string(page)), "make bench WHAT=bill BENCH_FLAGS=report writes it")
	})

	It("should be of the workloads and the ways that are measured", func() {
		results := load()
		rows := map[string][]*Row{"settle": results.Settle, "day": results.Day}
		for _, k := range kinds() {
			Expect(rows[k.name]).To(HaveLen(len(k.workloads)))
			for i, w := range k.workloads {
				row := rows[k.name][i]
				Expect(row).To(And(HaveField("Name", w.Name), HaveField("Title", w.Title), HaveField("Pods", len(w.Pods))))
				for _, c := range columns() {
					Expect(row.Ways).To(HaveKey(c.name))
					bill := row.Ways[c.name].Bill
					Expect(k.money(bill)).To(BeNumerically(">=", row.Bound*0.999), "%s with %s costs less than what its pods request", w.Name, c.name)
				}
			}
		}
	})
})

var _ = Describe("What follows from the figures", func() {
	var r *Results
	BeforeEach(func() { r = load() })
	settled := func(way string) float64 { return sumOf(r.Settle, way, perHour).vnd }
	days := func(way string) sums { return sumOf(r.Day, way, ofDay) }

	It("should be true of the policies", func() {
		for _, c := range policies()[1:] {
			Expect(settled(c.name)).To(BeNumerically(">=", settled("underutilized-30s")*0.99), c.name)
			Expect(days(c.name).vnd).To(BeNumerically(">=", days("underutilized-30s").vnd), c.name)
			Expect(days(c.name).byHours).To(BeNumerically("<", days("underutilized-30s").byHours), c.name)
			Expect(days(c.name).evictions).To(BeNumerically("<", days("underutilized-30s").evictions), c.name)
		}
		cheapest := lo.MinBy(ofHours(), func(a, b column) bool { return days(a.name).byHours < days(b.name).byHours })
		Expect(cheapest.name).To(Equal("empty-30s-1h"))
		lowest := days(cheapest.name).byHours
		Expect(days(poolBest).byHours).To(BeNumerically("~", 0.93*lowest, 0.01*lowest))
		Expect(days("balanced-5m").vnd).To(BeNumerically("<", days("underutilized-30s").vnd*1.04))
		Expect(days("balanced-5m").byHours).To(BeNumerically("<", lowest*1.04))
		Expect(days("balanced-5m").evictions).To(BeNumerically("<", days("underutilized-30s").evictions/3))
		Expect(days("underutilized-30s-1h").byHours).To(BeNumerically("<", days("underutilized-30s").byHours*0.85))
		without, with := days("balanced-30s"), days("balanced-30s-1h")
		Expect(with.byHours).To(BeNumerically("~", without.byHours*0.93, without.byHours*0.01))
		Expect(with.vnd).To(BeNumerically("~", without.vnd*1.1, without.vnd*0.01))
		for _, name := range []string{"balanced-10m", "underutilized-10m"} {
			Expect(days(name+"-1h").byHours).To(BeNumerically(">", days(name).byHours), name)
		}
	})

	It("should be true of the suggested NodePool", func() {
		lower := 0
		for _, row := range r.Settle {
			part := row.Ways[waySuggested].VNDPerHour / row.Ways["underutilized-30s"].VNDPerHour
			Expect(part).To(And(BeNumerically("<", 1.045), BeNumerically(">", 0.7)), row.Name)
			if part < 0.92 {
				lower++
			}
		}
		Expect(lower).To(Equal(3))
		Expect(days(waySuggested).vnd).To(BeNumerically("~", days("underutilized-30s").vnd, 0.02*days("underutilized-30s").vnd))
	})

	It("should be true of repacked nodes", func() {
		var far []string
		for _, row := range r.Settle {
			repacked, before := row.Ways[wayRepacked], row.Ways["underutilized-30s"]
			Expect(repacked.VNDPerHour).To(BeNumerically("<=", before.VNDPerHour+0.01), row.Name)
			if row.Ways[waySuggested].VNDPerHour > 1.1*repacked.VNDPerHour {
				far = append(far, row.Name)
			}
			Expect(repacked.Evictions).To(BeNumerically("<=", row.Pods), "%s: a pod was evicted twice", row.Name)
		}
		Expect(far).To(Equal([]string{"mix-60"}))
		Expect(days(wayRepacked).vnd).To(BeNumerically("~", days("underutilized-30s").vnd, 0.02*days("underutilized-30s").vnd))
	})

	It("should be true of fixed pools", func() {
		for _, c := range policies() {
			Expect(settled(poolUsual)).To(BeNumerically(">", settled(c.name)), c.name)
			Expect(days(poolUsual).vnd).To(BeNumerically(">", days(c.name).vnd), c.name)
		}
		best := map[string]bool{}
		for _, row := range append(r.Settle, r.Day...) {
			best[row.Ways[poolBest].Flavor] = true
		}
		Expect(len(best)).To(BeNumerically(">=", 4), "%v", best)
	})
})

var _ = Describe("A run", func() {
	It("should be paid as the sandbox counts it, and leave no pod without a node", func() {
		ctx := unit.CoreContext()
		b := newBench(ctx)
		w := workloads.Settling()[0]
		bound := packing.Bound(itemsAt(w.Pods, 0), b.bins)
		for _, c := range append(policies()[:1], column{name: poolUsual, flavor: usualFlavor}) {
			bill := b.once(ctx, kinds()[0], c, w)
			Expect(bill.Unserved).To(BeZero())
			price := 0.0
			for name, count := range bill.Flavors {
				for _, f := range b.flavors {
					if f.name == name {
						price += f.vndPerHour * float64(count)
					}
				}
			}
			Expect(bill.VNDPerHour).To(And(BeNumerically("~", price, 1), BeNumerically(">=", bound)))
			Expect(bill.Waited/float64(len(w.Pods))).To(BeNumerically("~", 75, 15), "all wait for the first node")
		}
	})

	It("should count an eviction and a wait when a node is removed with its pods", func() {
		ctx := unit.CoreContext()
		b := newBench(ctx)
		// What needs two nodes leaves each half empty after an hour.
		pod := func(name string, milliCPU int64, leaves time.Duration) workloads.Pod {
			return workloads.Pod{Name: name, App: name, MilliCPU: milliCPU, MiB: 512, Leaves: leaves}
		}
		w := workloads.Workload{Name: "halves", Pods: []workloads.Pod{
			pod("large-a", 14_000, time.Hour), pod("small-a", 1_000, 0), pod("large-b", 14_000, time.Hour), pod("small-b", 1_000, 0),
		}}
		day := kinds()[1]
		moved := b.once(ctx, day, policies()[0], w)
		Expect(moved.Evictions).To(BeNumerically(">=", 1))
		Expect(moved.Unserved).To(BeZero())
		kept := b.once(ctx, day, policies()[len(policies())-1], w)
		Expect(kept.Evictions).To(BeZero(), "WhenEmpty moves no pod")
		Expect(kept.VND).To(BeNumerically(">", 2*moved.VND))
	})
})
