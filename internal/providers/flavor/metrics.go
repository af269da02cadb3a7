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

package flavor

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// observed is the provider whose offerings are reported: a process has one, tests the one made last.
var observed atomic.Pointer[DefaultProvider]

// The offerings that NodeClasses have, sold out or not.
var (
	priceDesc = prometheus.NewDesc(
		"karpenter_bizfly_offering_price_vnd_per_hour",
		"Estimated price of one server of the flavor in the zone, with the root disk and plans of the NodeClass, in VND per hour. By nodeclass, flavor, zone and capacity_type.",
		[]string{"nodeclass", "flavor", "zone", "capacity_type"}, nil,
	)
	availableDesc = prometheus.NewDesc(
		"karpenter_bizfly_offering_available",
		"1 while the flavor can be launched in the zone as far as catalog, NodeClass and recent launches tell, else 0. By nodeclass, flavor, zone and capacity_type.",
		[]string{"nodeclass", "flavor", "zone", "capacity_type"}, nil,
	)
	typesDesc = prometheus.NewDesc(
		"karpenter_bizfly_instance_types",
		"Instance types that the NodeClass can use, sold out or not, and those that its nodes run on. By nodeclass.",
		[]string{"nodeclass"}, nil,
	)
)

func init() { crmetrics.Registry.MustRegister(offeringCollector{}) }

// offeringCollector reads the answers that are there when it is asked, so that nothing outlives its offering.
type offeringCollector struct{}

// Describe implements prometheus.Collector.
func (offeringCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- priceDesc
	descs <- availableDesc
	descs <- typesDesc
}

// Collect implements prometheus.Collector.
func (offeringCollector) Collect(metrics chan<- prometheus.Metric) {
	p := observed.Load()
	if p == nil {
		return
	}
	// A NodeClass may have been deleted and made again, and one series twice would fail the whole scrape.
	newest := map[string]*entry{}
	for _, e := range p.entries.Load().byUID {
		if other := newest[e.nodeClass]; other == nil || other.stamp < e.stamp {
			newest[e.nodeClass] = e
		}
	}
	for nodeClass, e := range newest {
		metrics <- prometheus.MustNewConstMetric(typesDesc, prometheus.GaugeValue, float64(len(e.types)), nodeClass)
		for _, instanceType := range e.types {
			for _, offering := range instanceType.Offerings {
				labels := []string{nodeClass, instanceType.Name, offering.Zone(), offering.CapacityType()}
				metrics <- prometheus.MustNewConstMetric(priceDesc, prometheus.GaugeValue, offering.Price, labels...)
				metrics <- prometheus.MustNewConstMetric(availableDesc, prometheus.GaugeValue, lo.Ternary(offering.Available, 1.0, 0), labels...)
			}
		}
	}
}
