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

package bizfly

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter"
	metricsSubsystem = "bizfly_api"
)

// metrics are what can be seen of the traffic to the cloud. No label holds an id, so their number is bounded.
type metrics struct {
	duration      *prometheus.HistogramVec
	retries       *prometheus.CounterVec
	admissionWait *prometheus.HistogramVec
	inFlight      *prometheus.GaugeVec
	rateLimit     *prometheus.GaugeVec
	logins        *prometheus.CounterVec
	outage        prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	if registerer == nil {
		registerer = crmetrics.Registry
	}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, Help: help}
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, Help: help, Buckets: buckets}
	}
	var errs [7]error
	m := &metrics{}
	m.duration, errs[0] = register(registerer, prometheus.NewHistogramVec(histogram("request_duration_seconds",
		"Duration of HTTP requests to the BizFly Cloud API, by route template, method, status (0 without an answer) and outcome (success or the error's class).",
		prometheus.ExponentialBuckets(0.01, 2, 13)), []string{"route", "method", "status", "outcome"}))
	m.retries, errs[1] = register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts(opts("retries_total",
		"Requests to the BizFly Cloud API that were repeated, by route template and method.")), []string{"route", "method"}))
	m.admissionWait, errs[2] = register(registerer, prometheus.NewHistogramVec(histogram("admission_wait_seconds",
		"Time that calls waited for a pause, their rate and a free slot before they were sent, by class (delete, read, create).",
		prometheus.ExponentialBuckets(0.001, 4, 9)), []string{"class"}))
	m.inFlight, errs[3] = register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("in_flight",
		"Calls that are admitted and not yet answered, by class (delete, read, create).")), []string{"class"}))
	m.logins, errs[4] = register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts(opts("logins_total",
		"Logins, by outcome (`success`, `refused` for rejected credentials, `failure`).")), []string{"outcome"}))
	m.outage, errs[5] = register(registerer, prometheus.NewGauge(prometheus.GaugeOpts(opts("outage",
		"1 while the BizFly Cloud API does not answer or answers with server errors, else 0."))))
	m.rateLimit, errs[6] = register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("rate_limit",
		"Requests per second that are admitted now, by class (delete, read, create): the configured rate, lowered when the cloud answers 429 and raised again "+
			"slowly.")), []string{"class"}))
	if errs[4] == nil {
		// A counter that first appears with its first count hides that count from every rate.
		for _, outcome := range []string{"success", "refused", "failure"} {
			m.logins.WithLabelValues(outcome)
		}
	}
	return m, errors.Join(errs[:]...)
}

// register returns the collector that is registered already under this name, where there is one: a client that only
// tries a new configuration counts into the same metrics.
func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) (C, error) {
	err := registerer.Register(collector)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return collector, err
}

// outcome is the label of an exchange.
func outcome(err *APIError) string {
	switch {
	case err == nil:
		return "success"
	case err.Ambiguous:
		return "Ambiguous"
	}
	return string(err.class())
}

func statusLabel(status int) string {
	return strconv.Itoa(status)
}
