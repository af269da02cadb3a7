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
	"time"
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
}

// Reasons of unavailability, also the values of the metric's label.
const (
	// ReasonInsufficientCapacity says that the cloud has no room.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonQuotaExceeded says that the project may not have more.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonBalanceExhausted says that the account must be topped up first.
	ReasonBalanceExhausted = "BalanceExhausted"
	// ReasonLaunchFailed says that servers ordered there come up broken.
	ReasonLaunchFailed = "LaunchFailed"
)

// Provider keeps the marks. It is safe for concurrent use and its reads are cheap.
type Provider interface {
	// Unavailable says whether any mark covers the offering, and the reason of one that does.
	Unavailable(offering Offering) (reason string, unavailable bool)
	// MarkUnavailable takes the scope out of sale for a while. A mark that is renewed is not prolonged beyond ttl from
	// now, and one that exists with a later end keeps it.
	MarkUnavailable(ctx context.Context, scope Offering, reason string, ttl time.Duration)
	// RecentFailures counts the failed launches of exactly this offering within the last 30 minutes.
	RecentFailures(offering Offering) int
	// SeqNum changes whenever the answer of Unavailable may have changed, the end of a mark included.
	SeqNum() uint64
	// Flush forgets everything, for tests.
	Flush()
}
