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
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// observed is the provider whose prices are reported: a process has one, tests the one made last.
var observed atomic.Pointer[DefaultProvider]

// priceDesc describes the price of every offering that a NodeClass has, sold out or not.
var priceDesc = prometheus.NewDesc(
	"karpenter_bizfly_offering_price_vnd_per_hour",
	"Estimated price of one server of the flavor in the zone, with the root disk and plans of the NodeClass, in VND per hour. By nodeclass, flavor, zone and capacity_type.",
	[]string{"nodeclass", "flavor", "zone", "capacity_type"}, nil,
)

func init() { crmetrics.Registry.MustRegister(priceCollector{}) }

// priceCollector reads the answers that are there when it is asked, so that no price outlives its offering.
type priceCollector struct{}

// Describe implements prometheus.Collector.
func (priceCollector) Describe(descs chan<- *prometheus.Desc) { descs <- priceDesc }

// Collect implements prometheus.Collector.
func (priceCollector) Collect(metrics chan<- prometheus.Metric) {
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
		for _, instanceType := range e.types {
			for _, offering := range instanceType.Offerings {
				metrics <- prometheus.MustNewConstMetric(priceDesc, prometheus.GaugeValue, offering.Price,
					nodeClass, instanceType.Name, offering.Zone(), offering.CapacityType())
			}
		}
	}
}
