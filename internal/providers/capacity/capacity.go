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

// Package capacity knows what can be launched right now: what the catalog sells, less what recent launches have shown
// to be sold out.
package capacity

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Offering is one way to buy a flavor. As the scope of a mark an empty field means any, so that {Zone: "HN1"} is a
// whole zone and {} the whole account.
type Offering struct {
	// Flavor is the flavor's name.
	Flavor string
	// Zone is the zone's name.
	Zone string
	// BillingPlan is the billing plan, for example on_demand.
	BillingPlan string
	// Network is the id of a VPC network, alone: as the scope of a mark it is every server in that network, and the question
	// whether it is unavailable is asked once for a NodeClass and not for each offering.
	Network string
	// NodeClass is a NodeClassKey and makes a mark one of launches with that NodeClass alone: where nothing proves that a
	// failure is the offering's, other NodeClasses find out by themselves.
	NodeClass string
}

// NodeClassKey identifies what a NodeClass launches. A changed spec or image is another key, so that marks and failures of
// the former one no longer count.
func NodeClassKey(nodeClass *v1alpha1.BizflyNodeClass) string {
	return fmt.Sprintf("%s/%d/%s", nodeClass.UID, nodeClass.Generation, lo.FromPtr(nodeClass.Status.Image()).ID)
}

// Reasons of unavailability, also the values of the metric's label.
const (
	// ReasonInsufficientCapacity says that the cloud has no room.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonQuotaExceeded says that the project may not have more.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonBalanceExhausted says that the account must be topped up first.
	ReasonBalanceExhausted = "BalanceExhausted"
	// ReasonPackageLimit says that the package of the BKE cluster allows no more nodes.
	ReasonPackageLimit = "PackageLimit"
	// ReasonLaunchFailed says that a launch failed there for a reason that nothing recognises.
	ReasonLaunchFailed = "LaunchFailed"
)

// Launch is what the time that a server takes depends on.
type Launch struct {
	// Flavor is the flavor's name.
	Flavor string
	// Zone is the zone's name.
	Zone string
	// ImageID is the image that the server boots.
	ImageID string
}

// Size is how big a server is.
type Size struct {
	// CPU is the number of vCPUs.
	CPU int
	// MemoryMiB is the memory in MiB.
	MemoryMiB int
}

// holds says whether a server of this size needs at least as much of everything as one of the other size.
func (s Size) holds(other Size) bool { return s.CPU >= other.CPU && s.MemoryMiB >= other.MemoryMiB }

// Provider keeps the marks. It is safe for concurrent use and its reads are cheap.
type Provider interface {
	// Unavailable says whether any mark covers the offering, and the reason of one that does.
	Unavailable(offering Offering) (reason string, unavailable bool)
	// MarkFailed counts a failed launch of exactly this offering and marks it unavailable for ttl, doubled for each failure
	// before it within the last two hours, up to eight times ttl. It returns for how long.
	MarkFailed(ctx context.Context, offering Offering, reason string, ttl time.Duration) time.Duration
	// MarkUnavailable marks the scope unavailable for a while. A mark that is renewed is not prolonged beyond ttl from
	// now, and one that exists with a later end keeps it.
	MarkUnavailable(ctx context.Context, scope Offering, reason string, ttl time.Duration)
	// MarkAll marks several scopes unavailable at once, like MarkUnavailable each. It reports whether any of them had been
	// available, which of launches that fail at once is true for one.
	MarkAll(ctx context.Context, scopes []Offering, reason string, ttl time.Duration) (news bool)
	// RecordFailure counts a failed launch of exactly this offering; MarkFailed does so by itself.
	RecordFailure(offering Offering)
	// RecordSuccess forgets the failures of the offering: its next one counts as the first.
	RecordSuccess(offering Offering)
	// RecentFailures counts the failed launches of the offering within the last two hours: those with its NodeClass, and
	// those that are the offering's with any.
	RecentFailures(offering Offering) int
	// LastFailure is when a launch of the offering with its NodeClass last failed; zero when none is known.
	LastFailure(offering Offering) time.Time
	// LearnQuota takes out of sale for a while, in every zone and plan, those of the flavors that need at least as much
	// of everything as the size that the quota has just refused. What is smaller stays for sale.
	LearnQuota(ctx context.Context, refused Size, flavors map[string]Size, ttl time.Duration)
	// RecordLaunch remembers how long a server took from its order until its node had registered.
	RecordLaunch(launch Launch, took time.Duration)
	// LaunchSeconds returns the moving average of what such launches took, and false when none was seen in the last day.
	LaunchSeconds(launch Launch) (seconds float64, seen bool)
	// SeqNum changes whenever the answer of Unavailable may have changed, the end of a mark included.
	SeqNum() uint64
	// Flush forgets everything, for tests.
	Flush()
}

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
