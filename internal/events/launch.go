// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events is every event that this provider publishes, in one place: reason, text, and how often it may repeat.
package events

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events about launches.
const (
	ReasonAccountLimit           = "AccountLimitReached"
	ReasonQuotaTooSmall          = "QuotaTooSmall"
	ReasonStaticNodePoolWaits    = "StaticNodePoolWaits"
	ReasonLaunchFailed           = "LaunchFailed"
	ReasonLaunchSlow             = "LaunchSlow"
	ReasonLaunchesPaused         = "LaunchesPaused"
	ReasonNodeNotRegistered      = "NodeNotRegistered"
	ReasonServerLaunched         = "ServerLaunched"
	ReasonOfferingUnavailable    = "OfferingUnavailable"
	ReasonLaunchRejected         = "LaunchRejected"
	ReasonNodeSmallerThanPlanned = "NodeSmallerThanPlanned"
	ReasonNodeWithoutPods        = "NodeWithoutPods"
)

const (
	// maxMessage bounds what BizFly Cloud's answers add to a message, in characters: the API server rejects more than 1024
	// bytes.
	maxMessage = 500
	// maxNames bounds how many objects an event names.
	maxNames = 5
	// seldom is how often an event repeats whose cause lasts until a user changes something.
	seldom = 10 * time.Minute
	// untilActed is how often one repeats of which a user must hear once.
	untilActed = 24 * time.Hour
)

// warning returns an event about what a user may have to act on. It is published once per dedupe key and two minutes,
// unless the caller asks for longer.
func warning(object runtime.Object, dedupe, reason, format string, args ...any) karpevents.Event {
	return karpevents.Event{
		InvolvedObject: object,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        lo.Ellipsis(fmt.Sprintf(format, args...), maxMessage),
		DedupeValues:   []string{reason, dedupe},
	}
}

// normal returns an event about which nothing has to be done, published as often as a warning.
func normal(object runtime.Object, dedupe, reason, format string, args ...any) karpevents.Event {
	event := warning(object, dedupe, reason, format, args...)
	event.Type = corev1.EventTypeNormal
	return event
}

// every returns the event as one that repeats at most as often.
func every(interval time.Duration, event karpevents.Event) karpevents.Event {
	event.DedupeTimeout = interval
	return event
}

// some joins the first names of a list in alphabetical order, and counts the rest.
func some(names []string) string {
	names = slices.Sorted(slices.Values(names))
	list := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// AccountLimitReached reports that balance or credentials stop every launch for a while.
func AccountLimitReached(claim *karpv1.NodeClaim, reason string, pause time.Duration, cause error) karpevents.Event {
	return every(pause, warning(claim, reason, ReasonAccountLimit,
		"%s: all launches pause for %s. Check the account's balance and its credentials. BizFly Cloud answered: %s", reason,
		pause, cause))
}

// StaticNodePoolWaits reports that a static NodePool lacks nodes and nothing that it allows can be launched now.
func StaticNodePoolWaits(pool *karpv1.NodePool, lacking int64) karpevents.Event {
	return warning(pool, string(pool.UID), ReasonStaticNodePoolWaits,
		"%d nodes are missing, and nothing that this NodePool allows can be launched at the moment (see events of its "+
			"NodeClaims). No NodeClaim is created until an offering is available again. Allow more flavors or zones, or lower "+
			"spec.replicas", lacking)
}

// QuotaTooSmall reports that the quota of vCPUs or memory does not allow a server of this size.
func QuotaTooSmall(claim *karpv1.NodeClaim, cpu, memoryMiB int, pause time.Duration, cause error) karpevents.Event {
	return every(pause, warning(claim, fmt.Sprintf("%d-%d", cpu, memoryMiB), ReasonQuotaTooSmall,
		"Quota exceeded by a server of %d vCPUs and %d MiB: that size and bigger ones are unavailable for %s. Raise the "+
			"quota of vCPUs or memory. BizFly Cloud answered: %s",
		cpu, memoryMiB, pause, cause))
}

// ServerLaunched reports which server the NodeClaim got, its price in VND per hour, and why it was chosen.
func ServerLaunched(claim *karpv1.NodeClaim, server, id, flavor, zone string, price float64,
	why string) karpevents.Event {
	return normal(claim, fmt.Sprintf("%s-%s", claim.UID, id), ReasonServerLaunched,
		"Server %s (%s) is a %s in %s for %.0f VND per hour (%s)", server, id, flavor, zone, price, why)
}

// OfferingUnavailable reports that BizFly Cloud lacks capacity for an offering, and that the next cheapest is tried.
func OfferingUnavailable(claim *karpv1.NodeClaim, flavor, zone, reason string, cause error) karpevents.Event {
	return warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, flavor, zone), ReasonOfferingUnavailable,
		"Insufficient capacity for %s in %s (%s); retrying with the next cheapest offering. The offering is unavailable for "+
			"a few minutes. BizFly Cloud answered: %s",
		flavor, zone, reason, cause)
}

// LaunchRejected reports that BizFly Cloud rejected a create request for another reason than capacity.
func LaunchRejected(claim *karpv1.NodeClaim, flavor, zone, reason string, cause error) karpevents.Event {
	return warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, flavor, zone), ReasonLaunchRejected,
		"BizFly Cloud rejected the create request for %s in %s (%s). The offering is unavailable to this NodeClass for a "+
			"few minutes; another offering or NodeClaim is tried. BizFly Cloud answered: %s",
		flavor, zone, reason, cause)
}

// NodeNotRegistered reports that a server was created and its node did not join the cluster in time.
func NodeNotRegistered(claim *karpv1.NodeClaim, server, flavor, zone string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonNodeNotRegistered,
		"Server %s (%s in %s) was created, but its node did not register within 15 minutes. It is deleted, and the offering "+
			"is unavailable to this NodeClass for an hour. Check bootstrap, network and firewalls",
		server, flavor, zone)
}

// LaunchFailed reports that BizFly Cloud accepted a create request and then failed to build the server.
func LaunchFailed(claim *karpv1.NodeClaim, server, flavor, zone string, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonLaunchFailed,
		"BizFly Cloud failed to build server %s, which is deleted. %s in %s is unavailable for a few minutes, and the "+
			"NodeClaim is replaced: %s",
		server, flavor, zone, cause)
}

// LaunchSlow reports that a server takes unusually long to be built.
func LaunchSlow(claim *karpv1.NodeClaim, server string, since time.Duration) karpevents.Event {
	return every(seldom, warning(claim, string(claim.UID), ReasonLaunchSlow,
		"Server %s is still BUILD after %s; Karpenter replaces the NodeClaim when its node has not registered after 15 "+
			"minutes", server,
		since.Round(time.Second)))
}

// LaunchesPaused reports that nothing is launched with a NodeClass for a while, because its launches fail whatever the
// offering.
func LaunchesPaused(nodeClass *v1alpha1.BizflyNodeClass, reason string, pause time.Duration,
	cause error) karpevents.Event {
	return every(pause, warning(nodeClass, fmt.Sprintf("%s-%s", nodeClass.UID, reason), ReasonLaunchesPaused,
		"Launches with this NodeClass fail (%s) and pause for %s; other NodeClasses go on. Check its quotas, addresses, "+
			"image, firewalls, user data and permissions. The last failure: %s",
		reason, pause, cause))
}

// NodeSmallerThanPlanned reports that a node offers pods noticeably less than was planned for its instance type.
func NodeSmallerThanPlanned(claim *karpv1.NodeClaim, node *corev1.Node) karpevents.Event {
	planned, offers := claim.Status.Allocatable, node.Status.Allocatable
	return warning(claim, string(claim.UID), ReasonNodeSmallerThanPlanned,
		"Node %s offers pods cpu %s, memory %s, ephemeral-storage %s and %s pods; planned were %s, %s, %s and %s. New ones "+
			"of %s are planned like this until two others report more, as far as it is credible; set spec.kubelet of the "+
			"NodeClass to plan so always",
		node.Name, offers.Cpu(), offers.Memory(), offers.StorageEphemeral(), offers.Pods(),
		planned.Cpu(), planned.Memory(), planned.StorageEphemeral(), planned.Pods(),
		claim.Labels[corev1.LabelInstanceTypeStable])
}

// NodeWithoutPods reports that a node was launched for pods, none of which was ever bound to it.
func NodeWithoutPods(claim *karpv1.NodeClaim) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonNodeWithoutPods,
		"No pod was bound to node %s within 10 minutes, or until its deletion. It costs %s VND per hour: its pods ended, "+
			"found another node, or do not fit on it (kubectl bizfly top --idle says what holds it)",
		claim.Status.NodeName, lo.CoalesceOrEmpty(claim.Labels[v1alpha1.LabelLaunchPrice], "an unknown number of"))
}
