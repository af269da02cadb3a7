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

package catalog

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	metricsNamespace = "karpenter"
	metricsSubsystem = "bizfly_catalog"
)

// observed is the catalog whose age is reported: a process has one, tests the one made last.
var observed atomic.Pointer[DefaultProvider]

var (
	ageSeconds = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "age_seconds",
		Help: "Time since the whole catalog of the cloud was last read without an error; 0 until it was read for the first time.",
	}, func() float64 {
		if p := observed.Load(); p != nil {
			return p.age().Seconds()
		}
		return 0
	})
	lastReadFailed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "last_read_failed",
		Help: "1 while the last read of a part of the catalog ended with an error and its last good content is served, else 0. By part.",
	}, []string{"part"})
	sequence = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "sequence",
		Help: "Number of the catalog's content, raised by one whenever it changes; 0 until it was read for the first time.",
	})
)

func init() {
	crmetrics.Registry.MustRegister(ageSeconds, lastReadFailed, sequence)
}

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
