// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Events returns one event of each function of internal/events by its name; text is that of the cloud or of a user.
func Events(text string) map[string]karpevents.Event {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = "default-x", "uid"
	class, config := &v1alpha1.BizflyNodeClass{}, &v1alpha1.ProviderConfig{}
	cause := errors.New(text)
	return map[string]karpevents.Event{
		"ServerLaunched":                events.ServerLaunched(claim, "server", "id", "nix.2c_4g", "HN1", 1234.5, "Cheapest"),
		"OfferingUnavailable":           events.OfferingUnavailable(claim, "nix.2c_4g", "HN1", "InsufficientCapacity", cause),
		"LaunchRejected":                events.LaunchRejected(claim, "nix.2c_4g", "HN1", "LaunchRequestInvalid", cause),
		"LaunchFailed":                  events.LaunchFailed(claim, "server", "nix.2c_4g", "HN1", cause),
		"NodeNotRegistered":             events.NodeNotRegistered(claim, "server", "nix.2c_4g", "HN1"),
		"LaunchSlow":                    events.LaunchSlow(claim, "server", time.Minute),
		"LaunchesPaused":                events.LaunchesPaused(class, "LaunchFailed", time.Minute, cause),
		"StaticNodePoolWaits":           events.StaticNodePoolWaits(&karpv1.NodePool{}, 1),
		"AccountLimitReached":           events.AccountLimitReached(claim, "QuotaExceeded", time.Minute, cause),
		"QuotaTooSmall":                 events.QuotaTooSmall(claim, 4, 8192, time.Minute, cause),
		"ServerDrifted":                 events.ServerDrifted(claim, "ImageDrift", "image a", text),
		"ServerUpdated":                 events.ServerUpdated(claim, text),
		"ServerUpdateFailed":            events.ServerUpdateFailed(claim, cause),
		"GarbageCollected":              events.GarbageCollected(config, "server", "id"),
		"WouldGarbageCollect":           events.WouldGarbageCollect(config, "server", "id", "nodeclaim", text),
		"GarbageCollectionSuspended":    events.GarbageCollectionSuspended(config, 10, []string{text}),
		"ServerLeft":                    events.ServerLeft(claim, "id"),
		"NodeSmallerThanPlanned":        events.NodeSmallerThanPlanned(claim, &corev1.Node{}),
		"ServerKept":                    events.ServerKept(config, "server", "id"),
		"ServerElsewhere":               events.ServerElsewhere(claim),
		"NodeWithoutPods":               events.NodeWithoutPods(claim),
		"ServerDeletionFailed":          events.ServerDeletionFailed("server", "id", cause),
		"LeaveFailed":                   events.LeaveFailed("server", cause),
		"LeftoverDisk":                  events.LeftoverDisk("server", "id", cause),
		"WaitingOnNodeClaimTermination": events.WaitingOnNodeClaimTermination(class, []string{text}),
		"ControlPlaneUnconfirmed":       events.ControlPlaneUnconfirmed(claim, cause),
		"ServerNotStarted":              events.ServerNotStarted(&corev1.Node{}, cause),
		"TuningIgnored":                 events.TuningIgnored(config, "tuning", text),
	}
}
