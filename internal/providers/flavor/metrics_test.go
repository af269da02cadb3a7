/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package flavor_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

var _ = Describe("The metrics of offerings", func() {
	// gathered is the value by flavor and zone of a family.
	gathered := func(name string) map[[2]string]float64 {
		GinkgoHelper()
		var gatherer prometheus.Gatherer = crmetrics.Registry
		families, err := gatherer.Gather()
		Expect(err).NotTo(HaveOccurred())
		family, found := lo.Find(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
		Expect(found).To(BeTrue())
		reported := map[[2]string]float64{}
		for _, metric := range family.GetMetric() {
			labels := lo.SliceToMap(metric.GetLabel(), func(l *dto.LabelPair) (string, string) { return l.GetName(), l.GetValue() })
			Expect(labels).To(HaveKeyWithValue("nodeclass", "default"))
			reported[[2]string{labels["flavor"], labels["zone"]}] = metric.GetGauge().GetValue()
		}
		return reported
	}

	It("should report the price of each offering once, also when a NodeClass was deleted and made again", func(ctx context.Context) {
		r := newRoom(newHandmade(manyFlavors(3)...), env.Client)
		for range 2 {
			_, err := r.List(ctx, newNodeClass("HN1", "HN2"))
			Expect(err).NotTo(HaveOccurred())
		}
		types := r.list(ctx, newNodeClass("HN1", "HN2"))

		expected := map[[2]string]float64{}
		for name, it := range types {
			for _, offering := range it.Offerings {
				expected[[2]string{name, offering.Zone()}] = offering.Price
			}
		}
		Expect(expected).NotTo(BeEmpty())
		Expect(gathered("karpenter_bizfly_offering_price_vnd_per_hour")).To(Equal(expected))
		Expect(gathered("karpenter_bizfly_instance_types")).To(Equal(map[[2]string]float64{{"", ""}: 3}))
	})
	It("should report what is sold out", func(ctx context.Context) {
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), env.Client)
		r.marks.MarkUnavailable(ctx, capacity.Offering{Zone: "HN2"}, capacity.ReasonInsufficientCapacity, time.Minute)
		r.list(ctx, newNodeClass("HN1", "HN2"))
		Expect(gathered("karpenter_bizfly_offering_available")).To(Equal(map[[2]string]float64{{"p2.2c_4g", "HN1"}: 1, {"p2.2c_4g", "HN2"}: 0}))
	})
})
