// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/packing"
)

func BenchmarkBest(b *testing.B) {
	for _, size := range []struct {
		name  string
		items int
	}{{"30 items", 30}, {"60 items", 60}, {"200 items", 200}, {"2000 items", 2000}} {
		in := random(1, size.items, false)
		b.Run(size.name, func(b *testing.B) {
			for b.Loop() {
				best := packing.Best(b.Context(), in.items, in.bins, packing.Options{Iterations: 100})
				b.ReportMetric(best.VNDPerHour/packing.Bound(in.items, in.bins), "times-the-bound")
			}
		})
	}
}
