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
	dto "github.com/prometheus/client_model/go"
	"github.com/samber/lo"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	// Metrics are registered by the packages that count, which the operator and the controllers are made of.
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

// prefix is that of every metric of ours, except those about instance types, which other providers have too.
const (
	prefix       = "karpenter_bizfly_"
	sharedPrefix = "karpenter_cloudprovider_instance_type_"
)

// labels say what a label holds, by its name or, where that differs, by metric and name; nothing where its name or the help of its metrics
// does. A metric with a label that is not here is an error, so that none goes undocumented.
var labels = map[string]string{
	"route":         "path of the request with its ids replaced, such as `/servers/{id}`",
	"method":        "",
	"status":        "HTTP status, `0` without an answer",
	"class":         "queue of the call: `delete`, `read`, `create` or `leave` (of BKE)",
	"part":          "what was read, such as `flavors`",
	"flavor":        "",
	"zone":          "",
	"nodeclass":     "",
	"instance_type": "the flavor",
	"source":        "the least certain number of the price: `configured`, `published`, `derived` or `assumed` ([prices](../concepts/pricing.md))",
	"capacity_type": "always `on-demand`",
	"version":       "",
	"commit":        "`unknown` where the build does not set it",
	"goversion":     "",
	"change":        "",
	"reason":        "as in the events and conditions",
	"outcome":       "",

	"karpenter_bizfly_api_request_duration_seconds/outcome": "`success`, `Ambiguous` where a change may or may not have had its effect, or the class of the " +
		"error: `Unknown`, `NotFound`, `Capacity`, `Quota`, `Balance`, `Throttled`, `Auth`, `Permission`, `Invalid`, `Conflict` or `Outage`",
}

// metric is what is known of one metric.
type metric struct {
	name, kind, help string
	labels           []string
}

const metricsIntroduction = `# Metrics

<!-- Written by make generate. -->

The controller serves these metrics at ` + "`:8080/metrics`" + ` (` + "`METRICS_PORT`" + `), beside
[Karpenter's](https://karpenter.sh/docs/reference/metrics/). The conditions of NodeClasses and ProviderConfigs are
` + "`operator_bizflynodeclass_status_condition_*` and `operator_providerconfig_status_condition_*`" + `, with the labels
` + "`name`, `type`, `status` and `reason`" + `. No label holds the id of a server or a secret.

| metric | type | labels | |
| --- | --- | --- | --- |
`

// byLabels is the end of a help that only lists the labels, which have a column, or the values of the class, which has a row.
var byLabels = regexp.MustCompile(`(, by [a-z, ]+( \(delete, read, create, leave\))?|\. By [a-z_, ]+)\.$`)

// metricsPage is the page of everything that this provider counts.
func metricsPage() (string, error) {
	metrics, err := registered()
	if err != nil {
		return "", err
	}
	page := &strings.Builder{}
	page.WriteString(metricsIntroduction)
	for _, m := range metrics {
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(lo.Map(m.labels, code), ", "), byLabels.ReplaceAllString(m.help, "."))
	}
	page.WriteString("\n## Labels\n\nAll other labels hold what their name means.\n\n| label | |\n| --- | --- |\n")
	rows, err := labelRows(metrics)
	if err != nil {
		return "", err
	}
	page.WriteString(strings.Join(rows, ""))
	return page.String(), nil
}

// labelRows are one line per label and meaning.
func labelRows(metrics []metric) ([]string, error) {
	users := map[string][]string{}
	var unknown []error
	for _, m := range metrics {
		for _, label := range m.labels {
			key := m.name + "/" + label
			if _, ok := labels[key]; !ok {
				key = label
			}
			if _, ok := labels[key]; !ok {
				unknown = append(unknown, fmt.Errorf("label %s of %s has no description: add it to labels in hack/docs/metrics.go", label, m.name))
			}
			users[key] = append(users[key], m.name)
		}
	}
	for key := range labels {
		if len(users[key]) == 0 {
			unknown = append(unknown, fmt.Errorf("no metric has the label %s: remove it from labels in hack/docs/metrics.go", key))
		}
	}
	var rows []string
	for key, of := range users {
		if labels[key] == "" {
			continue
		}
		name := code(key[strings.LastIndex(key, "/")+1:], 0)
		if strings.Contains(key, "/") {
			name += " of " + strings.Join(lo.Map(of, code), ", ")
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", name, labels[key]))
	}
	slices.Sort(rows)
	return rows, errors.Join(unknown...)
}

func code(text string, _ int) string { return "`" + strings.TrimPrefix(text, prefix) + "`" }

// client registers the metrics of the client of BizFly Cloud, which happens when it is made; it sends nothing.
var client = sync.OnceValues(func() (*bizfly.Client, error) {
	return bizfly.NewClient(bizfly.Config{Region: "HN", AuthMethod: bizfly.AuthMethodPassword, Email: "none@example.com", Password: "none"})
})

// described are all metrics in the registry that the controller serves.
func described() ([]*prometheus.Desc, error) {
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
	// All of them first: the registry is locked until it has described the last.
	return lo.ChannelToSlice(descs), nil
}

// registered are this provider's metrics among them, by name.
func registered() ([]metric, error) {
	all, err := described()
	if err != nil {
		return nil, err
	}
	var metrics []metric
	var errs []error
	for _, desc := range all {
		m, err := parse(desc.String())
		switch {
		case err != nil:
			errs = append(errs, err)
		case strings.HasPrefix(m.name, prefix), strings.HasPrefix(m.name, sharedPrefix):
			if m.kind, err = kindOf(m.name, desc); err != nil {
				errs = append(errs, err)
			}
			metrics = append(metrics, m)
		case strings.Contains(m.name, "bizfly") && !strings.HasPrefix(m.name, "operator_"):
			errs = append(errs, fmt.Errorf("metric %s lacks the prefix %s", m.name, prefix))
		}
	}
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return metrics, errors.Join(errs...)
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// parse reads a description's only public form.
func parse(desc string) (metric, error) {
	match := descPattern.FindStringSubmatch(desc)
	if match == nil {
		return metric{}, fmt.Errorf("description %s cannot be read", desc)
	}
	name, nameErr := strconv.Unquote(match[1])
	help, helpErr := strconv.Unquote(match[2])
	m := metric{name: name, help: strings.ReplaceAll(help, "|", `\|`)}
	if match[3] != "" {
		m.labels = strings.Split(match[3], ",")
	}
	return m, errors.Join(nameErr, helpErr)
}

// double claims to be the collector of a description, so that the registry names the one that is.
type double struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d double) Describe(descs chan<- *prometheus.Desc) { descs <- d.desc }

// Collect implements prometheus.Collector.
func (d double) Collect(chan<- prometheus.Metric) {}

// kindOf is the type of a metric, which a description does not tell but its collector does. One that is none of the usual
// ones makes its metrics when it is asked: by the convention of their names, counters end in _total and others are gauges.
func kindOf(name string, desc *prometheus.Desc) (string, error) {
	var known prometheus.AlreadyRegisteredError
	if errors.As(crmetrics.Registry.Register(double{desc}), &known) {
		switch collector := known.ExistingCollector.(type) {
		case *prometheus.CounterVec:
			return "counter", nil
		case *prometheus.GaugeVec:
			return "gauge", nil
		case *prometheus.HistogramVec:
			return "histogram", nil
		case prometheus.Metric:
			return kindOfSample(name, collector)
		}
	}
	return lo.Ternary(strings.HasSuffix(name, "_total"), "counter", "gauge"), nil
}

func kindOfSample(name string, collector prometheus.Metric) (string, error) {
	sample := &dto.Metric{}
	if err := collector.Write(sample); err != nil {
		return "", fmt.Errorf("reading metric %s: %w", name, err)
	}
	switch {
	case sample.Counter != nil:
		return "counter", nil
	case sample.Gauge != nil:
		return "gauge", nil
	case sample.Histogram != nil:
		return "histogram", nil
	}
	return "", fmt.Errorf("the type of metric %s is not known", name)
}
