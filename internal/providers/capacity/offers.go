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

package capacity

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// observed is the catalog that is reported: a process has one, tests the one observed last.
var observed atomic.Pointer[catalog.Provider]

// Observe makes the metrics show what this catalog says can be launched.
func Observe(provider catalog.Provider) { observed.Store(&provider) }

// What the cloud sells, as the catalog has it; what recent launches have shown is in unavailable_offerings.
var (
	zoneActiveDesc = prometheus.NewDesc("karpenter_bizfly_zone_active",
		"1 while the zone takes new servers, else 0. By zone.", []string{"zone"}, nil)
	categoryEnabledDesc = prometheus.NewDesc("karpenter_bizfly_category_enabled",
		"1 while servers of the category are sold, else 0. By category.", []string{"category"}, nil)
	generationDesc = prometheus.NewDesc("karpenter_bizfly_zone_generation_flavors",
		"Flavors of a hardware generation that the zone has. By zone, category and generation.", []string{"zone", "category", "generation"}, nil)
	volumeTypeDesc = prometheus.NewDesc("karpenter_bizfly_zone_volume_type",
		"1 for each volume type that the zone has. By zone, category and volume_type.", []string{"zone", "category", "volume_type"}, nil)
	billingPlanDesc = prometheus.NewDesc("karpenter_bizfly_flavor_billing_plan",
		"1 for each billing plan with which the flavor is sold. By flavor and billing_plan.", []string{"flavor", "billing_plan"}, nil)
	maxNodesDesc = prometheus.NewDesc("karpenter_bizfly_cluster_max_nodes",
		"Nodes that the package of the BKE cluster allows; absent without BKE and where it does not say.", nil, nil)
)

func init() { crmetrics.Registry.MustRegister(offersCollector{}) }

// offersCollector reads the snapshot that is there when it is asked, so that nothing outlives its offer.
type offersCollector struct{}

// Describe implements prometheus.Collector.
func (offersCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{zoneActiveDesc, categoryEnabledDesc, generationDesc, volumeTypeDesc, billingPlanDesc, maxNodesDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (offersCollector) Collect(metrics chan<- prometheus.Metric) {
	provider := observed.Load()
	if provider == nil {
		return
	}
	snapshot, err := (*provider).Snapshot()
	if err != nil {
		return
	}
	for series, value := range offers(snapshot) {
		metrics <- prometheus.MustNewConstMetric(series.desc, prometheus.GaugeValue, value, lo.Compact([]string{series.a, series.b, series.c})...)
	}
}

// series is one metric with its labels; a map of them has none twice, which would fail the whole scrape.
type series struct {
	desc    *prometheus.Desc
	a, b, c string
}

// offers returns everything that is reported of a snapshot. What has no name is left out.
func offers(snapshot *catalog.Snapshot) map[series]float64 {
	all := map[series]float64{}
	for _, zone := range snapshot.Region.Zones {
		all[series{zoneActiveDesc, zone.ShortName, "", ""}] = lo.Ternary(zone.Active, 1.0, 0)
	}
	for _, category := range snapshot.ServerTypes {
		all[series{categoryEnabledDesc, strings.ToLower(category.Name), "", ""}] = lo.Ternary(category.Enabled, 1.0, 0)
	}
	for _, flavor := range snapshot.Flavors {
		for _, plan := range flavor.BillingPlans {
			all[series{billingPlanDesc, flavor.Name, plan, ""}] = 1
		}
		for _, zone := range flavor.Generation.AvailabilityZones {
			all[series{generationDesc, zone, strings.ToLower(flavor.Category), flavor.Generation.Code}]++
		}
	}
	for _, volumeType := range snapshot.VolumeTypes {
		for _, zone := range volumeType.AvailabilityZones {
			all[series{volumeTypeDesc, zone, strings.ToLower(volumeType.Category), volumeType.Name}] = 1
		}
	}
	if snapshot.MaxNodes > 0 {
		all[series{maxNodesDesc, "", "", ""}] = float64(snapshot.MaxNodes)
	}
	labels := map[*prometheus.Desc]int{zoneActiveDesc: 1, categoryEnabledDesc: 1, generationDesc: 3, volumeTypeDesc: 3, billingPlanDesc: 2}
	return lo.PickBy(all, func(s series, _ float64) bool { return len(lo.Compact([]string{s.a, s.b, s.c})) == labels[s.desc] })
}
