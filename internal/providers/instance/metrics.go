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

package instance

import (
	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter"
	metricsSubsystem = "bizfly_instance"

	labelOutcome = "outcome"
	labelFlavor  = "flavor"
	labelZone    = "zone"
	labelType    = "type"
)

// Outcomes of a launch and of a deletion.
const (
	outcomeLaunched = "launched"
	outcomeRefused  = "refused"
	outcomeFailed   = "failed"
	outcomeUnknown  = "unknown"
	outcomeAccepted = "accepted"
	outcomeError    = "error"
)

var (
	launchesTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "launches_total",
		Help:      "Servers ordered, by flavor, zone and what became of the order: launched, refused, failed or unknown.",
	}, []string{labelOutcome, labelFlavor, labelZone})
	launchSeconds = opmetrics.NewPrometheusHistogram(crmetrics.Registry, prometheus.HistogramOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "launch_seconds",
		Help:      "Seconds from the order of a server until the cloud named it, by flavor and zone.",
		Buckets:   []float64{0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480},
	}, []string{labelFlavor, labelZone})
	deletionsTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "deletions_total",
		Help:      "Deletions of servers sent to the cloud, by whether it accepted them: accepted or error.",
	}, []string{labelOutcome})
	startsTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "starts_total",
		Help:      "Stopped servers that the cloud was told to start.",
	}, nil)
	addressesReleasedTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "addresses_released_total",
		Help:      "Network interfaces that outlived their server and were released, by type: LAN or WAN.",
	}, []string{labelType})
	diskDeletionsTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Subsystem: metricsSubsystem,
		Name:      "disk_deletions_total",
		Help:      "Deletions of disks that outlived their server, by whether the cloud accepted them: accepted or error.",
	}, []string{labelOutcome})
)

// A counter that first appears with its first count hides that count from every rate.
func init() {
	for _, outcome := range []string{outcomeAccepted, outcomeError} {
		deletionsTotal.Add(0, map[string]string{labelOutcome: outcome})
		diskDeletionsTotal.Add(0, map[string]string{labelOutcome: outcome})
	}
	startsTotal.Add(0, nil)
}
