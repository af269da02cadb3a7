// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity knows which offerings are unavailable at the moment, as recent launches have shown.
package capacity

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Offering is one way to launch a flavor. As the scope of a mark an empty field means any, so that {Zone: "HN1"} is a zone,
// {NodeClass: key} is all that a NodeClass can launch, and {} the account.
type Offering struct {
	Flavor      string
	Zone        string
	BillingPlan string
	// NodeClass is a NodeClassKey and limits a mark to launches with that NodeClass: where nothing proves that a failure is the
	// offering's, it stays available to other NodeClasses. A mark has it with all of the other fields, or with none.
	NodeClass string
}

// NodeClassKey identifies what a NodeClass launches. A changed spec or image is another key, so that marks and failures of
// the former one no longer count.
func NodeClassKey(nodeClass *v1alpha1.BizflyNodeClass) string {
	return fmt.Sprintf("%s/%d/%s", nodeClass.UID, nodeClass.Generation, lo.FromPtr(nodeClass.Status.Image()).ID)
}

// Reasons of unavailability, also the values of the metric's label.
const (
	ReasonInsufficientCapacity = "InsufficientCapacity"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonBalanceExhausted     = "BalanceExhausted"
	// ReasonLaunchFailed says that a launch failed there for an unclassified reason.
	ReasonLaunchFailed = "LaunchFailed"
	// ReasonTrial says that one launch is under way that shows whether nodes of the NodeClass register again.
	ReasonTrial = "TrialUnderWay"
)

// Launch is what the time that a server takes depends on.
type Launch struct {
	Flavor  string
	Zone    string
	ImageID string
}

// Size is how big a server is.
type Size struct {
	CPU       int
	MemoryMiB int
}

// atLeast reports whether a server of this size needs at least as much of everything as one of the other size.
func (s Size) atLeast(other Size) bool { return s.CPU >= other.CPU && s.MemoryMiB >= other.MemoryMiB }

// Provider keeps the marks. It is safe for concurrent use and its reads are cheap.
type Provider interface {
	// Unavailable reports whether any mark covers the offering, and the reason of one that does.
	Unavailable(offering Offering) (reason string, unavailable bool)
	// MarkFailed counts a failed launch of exactly this offering and marks it unavailable for period, doubled for each failure
	// before it within the last two hours, up to eight times period. It returns for how long.
	MarkFailed(ctx context.Context, offering Offering, reason string, period time.Duration) time.Duration
	// MarkUnavailable marks the scope unavailable for a while. A mark that is renewed is not prolonged beyond period from
	// now, and one that exists with a later end keeps it.
	MarkUnavailable(ctx context.Context, scope Offering, reason string, period time.Duration)
	// MarkAll marks several scopes unavailable at once, like MarkUnavailable each. It reports whether any of them had been
	// available, which of launches that fail at once is true for one.
	MarkAll(ctx context.Context, scopes []Offering, reason string, period time.Duration) (news bool)
	// MarkAvailable ends the mark of exactly this scope.
	MarkAvailable(scope Offering)
	// RecordFailure counts a failed launch of exactly this offering; MarkFailed does so by itself.
	RecordFailure(offering Offering)
	// RecordSuccess forgets the failures of the offering: its next one counts as the first.
	RecordSuccess(offering Offering)
	// RecentFailures counts the failed launches of the offering within the last two hours: those with its NodeClass, and
	// those that are the offering's with any.
	RecentFailures(offering Offering) int
	// LearnQuota marks unavailable for a while, in every zone and plan, those of the flavors that need at least as much
	// of everything as the size that the quota has just rejected. Smaller ones stay available.
	LearnQuota(ctx context.Context, rejected Size, flavors map[string]Size, period time.Duration)
	// RecordLaunch remembers how long it took from the create request until the node had registered.
	RecordLaunch(launch Launch, took time.Duration)
	// LaunchSeconds returns the moving average of what such launches took, and false when none was seen in the last day.
	LaunchSeconds(launch Launch) (seconds float64, seen bool)
	// SeqNum changes whenever the answer of Unavailable may have changed, the end of a mark included.
	SeqNum() uint64
	// Flush forgets everything, for tests.
	Flush()
}

var (
	unavailableOfferings = metrics.Gauge("karpenter_bizfly_unavailable_offerings",
		"Active marks that make an offering, or a wider scope such as a zone (counted once), unavailable. By reason.", metrics.Label("reason"))
	launchSecondsAverage = metrics.Gauge("karpenter_bizfly_launch_seconds_average",
		"Moving average of the seconds from a create request until the node has registered. By flavor, zone and image.",
		metrics.Label("flavor"), metrics.Label("zone"), metrics.Label("image"))
)

func (l Launch) labels() map[string]string {
	return map[string]string{"flavor": l.Flavor, "zone": l.Zone, "image": l.ImageID}
}
