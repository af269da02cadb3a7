// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
)

// observed is the catalog whose age is reported: a process has one, tests the one created last.
var observed atomic.Pointer[DefaultProvider]

var (
	lastReadFailed = metrics.Gauge("karpenter_bizfly_catalog_last_read_failed",
		"1 while the last read of a part of the catalog ended with an error and its last good content is served, else 0. By part.", metrics.Label("part"))
	sequence = metrics.Gauge("karpenter_bizfly_catalog_sequence",
		"Number of the catalog's content, raised by one whenever it changes; 0 until it was read for the first time.")

	zoneActive = metrics.Gauge("karpenter_bizfly_zone_active", "1 while the zone accepts new servers, else 0. By zone.", metrics.Label("zone"))
	category   = metrics.Gauge("karpenter_bizfly_category_enabled",
		"1 while servers of the category are available, else 0. By category.", metrics.Label("category"))
	generation = metrics.Gauge("karpenter_bizfly_zone_generation_flavors", "Flavors of a hardware generation that the zone has. By zone, category and generation.",
		metrics.Label("zone"), metrics.Label("category"), metrics.Label("generation"))
	volumeType = metrics.Gauge("karpenter_bizfly_zone_volume_type", "1 for each volume type that the zone has. By zone, category and volume_type.",
		metrics.Label("zone"), metrics.Label("category"), metrics.Label("volume_type"))
	billingPlan = metrics.Gauge("karpenter_bizfly_flavor_billing_plan", "1 for each billing plan of the flavor. By flavor and billing_plan.",
		metrics.Label("flavor"), metrics.Label("billing_plan"))
)

func init() {
	sequence.Set(0, nil)
	crmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "karpenter_bizfly_catalog_age_seconds",
		Help: "Time since the complete catalog of the cloud was last read without an error, and until then since the controller started.",
	}, func() float64 {
		p := observed.Load()
		if p == nil {
			return 0
		}
		if snapshot := p.snapshot.Load(); snapshot != nil && !snapshot.FetchedAt.IsZero() {
			return p.clock.Since(snapshot.FetchedAt).Seconds()
		}
		return p.clock.Since(p.started).Seconds()
	}))
}

// report sets the metrics of what BizFly Cloud offers. Everything without a name is left out.
func (s *Snapshot) report() {
	for _, gauge := range []interface{ Reset() }{zoneActive, category, generation, volumeType, billingPlan} {
		gauge.Reset()
	}
	set := func(gauge interface {
		Set(v float64, labels map[string]string)
	}, value float64, labels map[string]string) {
		if !lo.Contains(lo.Values(labels), "") {
			gauge.Set(value, labels)
		}
	}
	sequence.Set(float64(s.Seq), nil)
	for _, zone := range s.Region.Zones {
		set(zoneActive, lo.Ternary(zone.Active, 1.0, 0), map[string]string{"zone": zone.ShortName})
	}
	for _, t := range s.ServerTypes {
		set(category, lo.Ternary(t.Enabled, 1.0, 0), map[string]string{"category": strings.ToLower(t.Name)})
	}
	flavors := map[[3]string]float64{}
	for _, flavor := range s.Flavors {
		for _, plan := range flavor.BillingPlans {
			set(billingPlan, 1, map[string]string{"flavor": flavor.Name, "billing_plan": plan})
		}
		for _, zone := range flavor.Generation.AvailabilityZones {
			flavors[[3]string{zone, strings.ToLower(flavor.Category), flavor.Generation.Code}]++
		}
	}
	for of, count := range flavors {
		set(generation, count, map[string]string{"zone": of[0], "category": of[1], "generation": of[2]})
	}
	for _, t := range s.VolumeTypes {
		for _, zone := range t.AvailabilityZones {
			set(volumeType, 1, map[string]string{"zone": zone, "category": strings.ToLower(t.Category), "volume_type": t.Name})
		}
	}
}
