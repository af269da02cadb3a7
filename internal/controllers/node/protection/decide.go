// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"fmt"
	"slices"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// accountUnpaid is the reason of a silent node while the account is unpaid.
const accountUnpaid = "AccountUnpaid"

// facts are what decides whether a node may be disrupted or repaired.
type facts struct {
	now  time.Time
	zone string
	// settings are nil while the ProviderConfig does not say them; then a reason that follows from them stays as it is
	// written.
	settings *options.Options
	written  string
	// created is when the server began to cost money; zero where that is not known.
	created time.Time
	unpaid  bool
}

// decide returns why the node must not be disrupted, empty where it may be, and after what time that changes by itself;
// 0 is never.
func decide(f facts) (why string, changes time.Duration) {
	switch {
	case f.settings == nil && f.written != "" && f.written != accountUnpaid:
		return f.written, 0
	case f.settings != nil && f.zone != "" && slices.Contains(f.settings.ClosedZones, f.zone):
		return "ZoneClosed: " + f.zone, 0
	case f.unpaid:
		return accountUnpaid, 0
	case f.settings == nil || f.created.IsZero() || f.settings.BillingPeriod <= f.settings.BillingWindow:
		return "", 0
	}
	// Of a server that was created by a clock ahead of ours it is negative, so that the end of the hour does not move.
	paid := f.now.Sub(f.created) % f.settings.BillingPeriod
	opens, closes := f.settings.BillingPeriod-f.settings.BillingWindow, f.settings.BillingPeriod-ttl.PaidHourEnd
	switch {
	case paid < opens:
		changes = opens - paid
	case paid < closes:
		return "", closes - paid
	default: // too late to be gone before the next one begins
		changes = f.settings.BillingPeriod - paid + opens
	}
	return fmt.Sprintf("HourPaid: until %s", f.now.Add(changes).UTC().Round(time.Second).Format(time.RFC3339)), changes
}
