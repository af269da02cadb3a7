// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	// Metrics are registered by the packages that count, which the operator and the controllers are made of.
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/surplus"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

// prefix is that of every metric of ours, except those about instance types, which other providers have too.
const (
	prefix       = "karpenter_bizfly_"
	sharedPrefix = "karpenter_cloudprovider_instance_type_"
)

// metric is what is known of one metric.
type metric struct {
	name, help string
	labels     []string
	desc       *prometheus.Desc
}

// byLabels is the end of a help that only lists the labels, which have a column, or the values of the class, which has a row.
var byLabels = regexp.MustCompile(`(, by [a-z, ]+( \(delete, read, create, leave\))?|\. By [a-z_, ]+)\.$`)

// metricTable has everything that this provider counts.
func metricTable() (string, error) {
	metrics, err := registered()
	table := row("metric", "type", "labels", "") + row("---", "---", "---", "---")
	for _, m := range metrics {
		switch {
		case strings.HasPrefix(m.name, prefix), strings.HasPrefix(m.name, sharedPrefix):
			table += row(code(m.name), kindOf(m), strings.Join(lo.Map(m.labels, func(l string, _ int) string { return code(l) }), ", "),
				byLabels.ReplaceAllString(m.help, "."))
		case strings.Contains(m.name, "bizfly") && !strings.HasPrefix(m.name, "operator_"):
			err = errors.Join(err, fmt.Errorf("metric %s lacks the prefix %s", m.name, prefix))
		}
	}
	return table, err
}

// client registers the metrics of the client of BizFly Cloud, which happens when it is made; it sends nothing.
var client = sync.OnceValues(func() (*bizfly.Client, error) {
	return bizfly.NewClient(bizfly.Config{Region: "HN", AuthMethod: bizfly.AuthMethodPassword, Email: "none@example.com", Password: "none"})
})

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// registered are all metrics of the registry that the controller serves, by name.
func registered() ([]metric, error) {
	if _, err := client(); err != nil {
		return nil, fmt.Errorf("making a client for its metrics: %w", err)
	}
	registry, ok := crmetrics.Registry.(prometheus.Collector)
	if !ok {
		return nil, errors.New("the registry does not describe its metrics")
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	var metrics []metric
	var errs []error
	// All of them first: the registry is locked until it has described the last.
	for _, desc := range lo.ChannelToSlice(descs) {
		match := descPattern.FindStringSubmatch(desc.String()) // its only public form
		if match == nil {
			errs = append(errs, fmt.Errorf("description %s cannot be read", desc))
			continue
		}
		name, nameErr := strconv.Unquote(match[1])
		help, helpErr := strconv.Unquote(match[2])
		errs = append(errs, nameErr, helpErr)
		metrics = append(metrics, metric{name, help, strings.FieldsFunc(match[3], func(r rune) bool { return r == ',' }), desc})
	}
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return metrics, errors.Join(errs...)
}

// double claims to be the collector of a description, so that the registry names the one that is.
type double struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d double) Describe(descs chan<- *prometheus.Desc) { descs <- d.desc }

// Collect implements prometheus.Collector.
func (d double) Collect(chan<- prometheus.Metric) {}

// kindOf is the type of a metric, which a description does not tell but its collector does. One that is none of the usual
// ones makes its metrics when it is asked: by the convention of their names, counters end in _total and others are gauges.
func kindOf(m metric) string {
	var known prometheus.AlreadyRegisteredError
	if errors.As(crmetrics.Registry.Register(double{m.desc}), &known) {
		switch known.ExistingCollector.(type) {
		case *prometheus.HistogramVec, prometheus.Histogram:
			return "histogram"
		}
	}
	return lo.Ternary(strings.HasSuffix(m.name, "_total"), "counter", "gauge")
}
