// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// recently is how far back events are looked at.
const recently = 24 * time.Hour

var launchRules = []rule{
	{code: "QuotaRejected", about: "rejected launches", severity: Warning,
		why: "pods stay pending, or run on flavors that cost more",
		fix: "raise the project's quota in the BizFly Cloud console, or top up the balance",
		given: given2(factEvents, factTime, func(all []corev1.Event, now time.Time) outcome {
			quota := lo.Filter(failedLaunches(all, now), func(e corev1.Event, _ int) bool { return ofQuota(&e) })
			return failsIf(len(quota) > 0, "%d launches were rejected by quota or balance within a day; the last one: %s",
				len(quota), lo.LastOrEmpty(quota).Message)
		})},
	{code: "LaunchesFailed", about: "rejected launches", severity: Warning,
		why: "nodes come late, and each attempt is paid for",
		fix: "kubectl get events --namespace default --field-selector type=Warning",
		given: given2(factEvents, factTime, func(all []corev1.Event, now time.Time) outcome {
			other := lo.Reject(failedLaunches(all, now), func(e corev1.Event, _ int) bool { return ofQuota(&e) })
			return failsIf(len(other) > 0, "%d launches failed within a day; the last one: %s", len(other),
				lo.LastOrEmpty(other).Message)
		})},
}

// failedLaunches are the events of the last day that report one, the oldest first.
func failedLaunches(all []corev1.Event, now time.Time) []corev1.Event {
	of := lo.Filter(all, func(e corev1.Event, _ int) bool {
		return now.Sub(lastSeen(&e)) <= recently && (ofQuota(&e) || lo.Contains([]string{events.ReasonLaunchesPaused,
			events.ReasonLaunchRejected,
			events.ReasonLaunchFailed, events.ReasonNodeNotRegistered}, e.Reason))
	})
	slices.SortStableFunc(of, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	return of
}

// ofQuota reports whether a launch was rejected by quota or balance.
func ofQuota(e *corev1.Event) bool {
	return e.Reason == events.ReasonAccountLimit || e.Reason == events.ReasonQuotaTooSmall ||
		e.Reason == events.ReasonLaunchesPaused && strings.Contains(e.Message, capacity.ReasonQuotaExceeded)
}
