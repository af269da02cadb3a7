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
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var quotaRefused = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Namespace: "karpenter", Subsystem: "bizfly", Name: "quota_refused_size",
	Help: "The size of the last server that the project's quota had no room for: resource is vcpus or memory_mib. What needs as much of both is not tried for a while.",
}, []string{"resource"})

func init() {
	crmetrics.Registry.MustRegister(quotaRefused)
}

// LearnQuota takes out of sale what needs at least as much of everything as the size that the quota has just refused.
// The API has no call that reads a quota, so refusals are all that is known of it, and after
// ttl the answer is forgotten, because servers go and quotas are raised.
func (p *DefaultProvider) LearnQuota(ctx context.Context, refused Size, flavors map[string]Size, ttl time.Duration) {
	if ttl <= 0 || refused.CPU <= 0 || refused.MemoryMiB <= 0 {
		return
	}
	scopes := make([]Offering, 0, len(flavors))
	for flavor, size := range flavors {
		if flavor != "" && size.holds(refused) {
			scopes = append(scopes, Offering{Flavor: flavor})
		}
	}
	quotaRefused.WithLabelValues("vcpus").Set(float64(refused.CPU))
	quotaRefused.WithLabelValues("memory_mib").Set(float64(refused.MemoryMiB))
	log.FromContext(ctx).Info("marking flavors unavailable that exceed the project's quota",
		"vcpus", refused.CPU, "memory-mib", refused.MemoryMiB, "flavors", len(scopes), "ttl", ttl)
	p.MarkAll(ctx, scopes, ReasonQuotaExceeded, ttl)
}
