// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"time"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Window is a time in which a NodePool's budgets allow as many disruptions for a reason.
type Window struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Allowed int       `json:"allowed"`
}

// week are the windows of the next seven days. Schedules and durations of budgets have minutes, so each is asked.
func week(pool *karpv1.NodePool, nodes int, reason karpv1.DisruptionReason, now time.Time) []Window {
	const days = 7 * 24 * time.Hour
	step := days
	if lo.ContainsBy(pool.Spec.Disruption.Budgets, func(b karpv1.Budget) bool { return b.Schedule != nil }) {
		step = time.Minute
	}
	var windows []Window
	from := now.Truncate(time.Minute)
	for at := from; at.Before(from.Add(days)); at = at.Add(step) {
		allowed := min(pool.MustGetAllowedDisruptions(stoppedClock{now: at}, nodes, reason), nodes)
		if last := len(windows) - 1; last < 0 || windows[last].Allowed != allowed {
			windows = append(windows, Window{From: at, Allowed: allowed})
		}
		windows[len(windows)-1].To = at.Add(step)
	}
	return windows
}
