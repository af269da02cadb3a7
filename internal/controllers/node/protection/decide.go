// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"fmt"
	"slices"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// facts are what decides whether a node may be disrupted.
type facts struct {
	now         time.Time
	zone        string
	closedZones []string
	// created is when the server began to cost money; zero where that is not known.
	created time.Time
	// period is what BizFly Cloud charges at once, and window the end of it in which a node may be disrupted.
	period, window time.Duration
}

// decide returns why the node must not be disrupted, empty where it may be, and after what time that changes by itself; 0 is never.
func decide(f facts) (why string, changes time.Duration) {
	if f.zone != "" && slices.Contains(f.closedZones, f.zone) {
		return "ZoneClosed: " + f.zone, 0
	}
	if f.created.IsZero() || f.period <= f.window {
		return "", 0
	}
	// A server that was created by a clock ahead of ours is new.
	paid := max(0, f.now.Sub(f.created)) % f.period
	opens, closes := f.period-f.window, f.period-ttl.PaidHourEnd
	switch {
	case paid < opens:
		changes = opens - paid
	case paid < closes:
		return "", closes - paid
	default: // too late to be gone before the next one begins
		changes = f.period - paid + opens
	}
	return fmt.Sprintf("HourPaid: until %s", f.now.Add(changes).UTC().Round(time.Second).Format(time.RFC3339)), changes
}
