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
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// weight is that of the newest launch in the average: what was slow yesterday is soon forgotten, one slow server
	// does not decide.
	weight = 0.3
)

var launchSecondsAverage = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Namespace: "karpenter", Subsystem: "bizfly", Name: "launch_seconds_average",
	Help: "Moving average of the seconds from the order of a server until its node has registered. By flavor, zone and image.",
}, []string{"flavor", "zone", "image"})

func init() {
	crmetrics.Registry.MustRegister(launchSecondsAverage)
}

// launches are the averages.
type launches struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  map[Launch]average
}

type average struct {
	seconds float64
	at      time.Time
}

func (l *launches) record(launch Launch, took time.Duration) {
	if took <= 0 {
		return
	}
	now, seconds := l.clock.Now(), took.Seconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.seen[launch]; ok && now.Sub(known.at) < ttl.LaunchSeconds {
		seconds = weight*seconds + (1-weight)*known.seconds
	}
	if len(l.seen) >= maxScopes {
		maps.DeleteFunc(l.seen, func(old Launch, known average) bool {
			forget := now.Sub(known.at) >= ttl.LaunchSeconds
			if forget {
				launchSecondsAverage.DeleteLabelValues(old.Flavor, old.Zone, old.ImageID)
			}
			return forget
		})
		if _, known := l.seen[launch]; !known && len(l.seen) >= maxScopes {
			return
		}
	}
	l.seen[launch] = average{seconds: seconds, at: now}
	launchSecondsAverage.WithLabelValues(launch.Flavor, launch.Zone, launch.ImageID).Set(seconds)
}

func (l *launches) average(launch Launch) (float64, bool) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.seen[launch]
	if !ok || now.Sub(known.at) >= ttl.LaunchSeconds {
		return 0, false
	}
	return known.seconds, true
}

func (l *launches) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = map[Launch]average{}
	launchSecondsAverage.Reset()
}

// RecordLaunch remembers how long a server took from its order until its node had registered.
func (p *DefaultProvider) RecordLaunch(launch Launch, took time.Duration) {
	p.launches.record(launch, took)
}

// LaunchSeconds returns the moving average of what such launches took, and false when none was seen in the last day.
func (p *DefaultProvider) LaunchSeconds(launch Launch) (float64, bool) {
	return p.launches.average(launch)
}
