// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
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
