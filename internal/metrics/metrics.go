// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics registers this provider's metrics in the registry that the controller serves. Each has its full name
// in one literal, so that a search for the name of a dashboard or an alert finds where it is measured.
//
// Labels are described in docs/reference/metrics.md, whose table hack/docs writes.
package metrics

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Label is a label whose values follow from what is measured.
func Label(name string) opmetrics.Label { return opmetrics.Label{Name: name} }

// Enum is a label with a fixed set of values.
func Enum(name string, values ...string) opmetrics.Label {
	return opmetrics.Label{Name: name, Values: lo.Map(values, func(v string, _ int) opmetrics.Value {
		return opmetrics.Value{Name: v}
	})}
}

// Counter registers a counter. Without labels, or with one Enum, its series start at zero: a series that
// first appears with its first count hides that count from every rate. So every label of a counter is an Enum.
func Counter(name, help string, labels ...opmetrics.Label) opmetrics.CounterMetric {
	counter := opmetrics.NewPrometheusCounter(crmetrics.Registry,
		prometheus.CounterOpts{Name: name, Help: help}, labels, opmetrics.Alpha)
	switch len(labels) {
	case 0:
		counter.Add(0, nil)
	case 1:
		for _, value := range labels[0].Values {
			counter.Add(0, map[string]string{labels[0].Name: value.Name})
		}
	}
	return counter
}

// Gauge registers a gauge.
func Gauge(name, help string, labels ...opmetrics.Label) opmetrics.GaugeMetric {
	return opmetrics.NewPrometheusGauge(crmetrics.Registry,
		prometheus.GaugeOpts{Name: name, Help: help}, labels, opmetrics.Alpha)
}

// Histogram registers a histogram with the upper bounds of its buckets.
func Histogram(name, help string, buckets []float64, labels ...opmetrics.Label) opmetrics.ObservationMetric {
	return opmetrics.NewPrometheusHistogram(crmetrics.Registry,
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels, opmetrics.Alpha)
}
