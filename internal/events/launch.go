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

// Package events is every event that this provider publishes, in one place: reason, text, and how often it may repeat.
package events

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events around the life of a node.
const (
	ReasonNodeClassUnresolved        = "NodeClassUnresolved"
	ReasonNoCompatibleFlavor         = "NoCompatibleFlavor"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonAccountLimit               = "AccountLimitReached"
	ReasonLaunchFailed               = "LaunchFailed"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchSlow                 = "LaunchSlow"
	ReasonLaunchesKeepFailing        = "LaunchesKeepFailing"
	ReasonLaunchNotSent              = "LaunchNotSent"
	ReasonNodeNotRegistered          = "NodeNotRegistered"
	ReasonServerLaunched             = "ServerLaunched"
	ReasonOfferingRefused            = "OfferingRefused"
	ReasonOrderRefused               = "OrderRefused"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeDrifted                = "ServerDrifted"
	ReasonGarbageCollectionSuspended = "GarbageCollectionSuspended"
)

// maxText keeps what a cloud says from filling an event; the API server refuses more than 1024 bytes.
const maxText = 700

// NodeClassUnresolved says that the NodeClass of a claim does not exist or is being deleted.
func NodeClassUnresolved(claim *karpv1.NodeClaim, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonNodeClassUnresolved, fmt.Sprintf("No server is launched: %s", cause))
}

// NoCompatibleFlavor says that no flavor of the cloud, sold out or not, can ever satisfy the NodePool.
func NoCompatibleFlavor(pool *karpv1.NodePool, detail string) karpevents.Event {
	event := warning(pool, fmt.Sprintf("%s-%d", pool.UID, pool.Generation), ReasonNoCompatibleFlavor,
		fmt.Sprintf("No flavor satisfies spec.template.spec.requirements, so no server is ever launched for this NodePool: %s", detail))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// CapacityTypeUnsupported says that the claim allows only capacity types that cannot be bought.
func CapacityTypeUnsupported(claim *karpv1.NodeClaim, allowed string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonCapacityTypeUnsupported, CapacityTypeAdvice(allowed))
}

// NodePoolCapacityTypeUnsupported says that the NodePool allows only capacity types that cannot be bought, so that it
// never launches anything.
func NodePoolCapacityTypeUnsupported(pool *karpv1.NodePool, allowed string) karpevents.Event {
	event := warning(pool, fmt.Sprintf("%s-%d", pool.UID, pool.Generation), ReasonCapacityTypeUnsupported, CapacityTypeAdvice(allowed))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// CapacityTypeAdvice is why spot and reserved cannot be had, and what can be had instead.
func CapacityTypeAdvice(allowed string) string {
	return fmt.Sprintf("The requirement is %s, but BizFly Cloud servers are only launched as %s: its API takes no spot bid, and a saving plan is no reservation, but prepaid at each create and forfeited at each delete. "+
		"Allow %s. To pay another way, set spec.billingPlan of the BizflyNodeClass: %s for nodes that come and go, and %s only with a static NodePool (spec.replicas), whose nodes stay.",
		allowed, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeOnDemand, v1alpha1.BillingPlanOnDemand, v1alpha1.BillingPlanSavingPlan)
}

// AccountLimitReached says that quota, balance or credentials stop every launch for a while.
func AccountLimitReached(claim *karpv1.NodeClaim, reason string, pause time.Duration, cause error) karpevents.Event {
	event := warning(claim, reason, ReasonAccountLimit,
		fmt.Sprintf("%s: all launches pause for %s. Check the project's quota, balance and credentials. BizFly Cloud answered: %s", reason, pause, cause))
	event.DedupeTimeout = pause
	return event
}

// ServerLaunched says which server the claim got, what it costs in VND per hour, and why it was chosen.
func ServerLaunched(claim *karpv1.NodeClaim, server, id, flavor, zone string, price float64, why string) karpevents.Event {
	event := warning(claim, fmt.Sprintf("%s-%s", claim.UID, id), ReasonServerLaunched,
		fmt.Sprintf("Server %s (%s) is a %s in %s for %.0f VND per hour (%s)", server, id, flavor, zone, price, why))
	event.Type = corev1.EventTypeNormal
	return event
}

// OfferingRefused says that BizFly Cloud has no capacity for an offering, and that the next cheapest is tried.
func OfferingRefused(claim *karpv1.NodeClaim, flavor, zone, reason string, cause error) karpevents.Event {
	return warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, flavor, zone), ReasonOfferingRefused,
		fmt.Sprintf("Insufficient capacity for %s in %s (%s): the offering is unavailable for a few minutes and the next cheapest is tried. BizFly Cloud answered: %s", flavor, zone, reason, cause))
}

// OrderRefused says that BizFly Cloud rejected a create request for another reason than capacity.
func OrderRefused(claim *karpv1.NodeClaim, flavor, zone, reason string, cause error) karpevents.Event {
	return warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, flavor, zone), ReasonOrderRefused,
		fmt.Sprintf("BizFly Cloud rejected the create request for %s in %s (%s). The offering is unavailable to this NodeClass for a few minutes; another one, or another NodeClaim, is tried: %s", flavor, zone, reason, cause))
}

// LaunchNotSent says that a NodeClaim ends because its create request could not be sent in time.
func LaunchNotSent(claim *karpv1.NodeClaim, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonLaunchNotSent,
		fmt.Sprintf("No create request could be sent before core's launch timeout, so no server was built and the NodeClaim is replaced: %s", cause))
}

// NodeNotRegistered says that a server came up and its node did not join the cluster in time.
func NodeNotRegistered(claim *karpv1.NodeClaim, server, flavor, zone string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonNodeNotRegistered,
		fmt.Sprintf("Server %s (%s in %s) came up, but its node did not register within 15 minutes. It is deleted and the offering is unavailable to this NodeClass for a while. Check bootstrap, network and firewalls", server, flavor, zone))
}

// LaunchIntentUnreadable says that a claim is given up because its record of what was ordered cannot be read.
func LaunchIntentUnreadable(claim *karpv1.NodeClaim, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonLaunchIntentUnreadable,
		fmt.Sprintf("Somebody has changed the record of what was ordered, so the claim is given up and replaced; a server of it is garbage collected: %s", cause))
}

// ServerDrifted says in what the claim's server differs from what its NodeClass asks for.
func ServerDrifted(claim *karpv1.NodeClaim, reason, got, wanted string) karpevents.Event {
	event := warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, reason, wanted), ReasonNodeDrifted,
		fmt.Sprintf("%s: the server has %s, new ones get %s. It is replaced as the NodePool's disruption budgets allow", reason, got, wanted))
	event.Type = corev1.EventTypeNormal
	// It is looked at every few minutes, and may wait long for its replacement.
	event.DedupeTimeout = time.Hour
	return event
}

// LaunchFailed says that BizFly Cloud accepted a create request and then failed to build the server.
func LaunchFailed(claim *karpv1.NodeClaim, server, flavor, zone string, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonLaunchFailed,
		fmt.Sprintf("Server %s could not be built and is deleted. %s in %s is unavailable for a few minutes, and the NodeClaim is replaced: %s", server, flavor, zone, cause))
}

// LaunchOutcomeUnknown says that a NodeClaim ends because the outcome of its create request is not known.
func LaunchOutcomeUnknown(claim *karpv1.NodeClaim, cause error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonLaunchOutcomeUnknown,
		fmt.Sprintf("The NodeClaim is replaced and its offering is unavailable for a few minutes; a server that appears late is garbage collected: %s", cause))
}

// LaunchSlow says that a server takes unusually long to be built.
func LaunchSlow(claim *karpv1.NodeClaim, server, status string, since time.Duration) karpevents.Event {
	event := warning(claim, string(claim.UID), ReasonLaunchSlow,
		fmt.Sprintf("Server %s is still %s after %s", server, status, since.Round(time.Second)))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// LaunchesKeepFailing says on the NodeClass that its launches pause, because they failed with different offerings.
func LaunchesKeepFailing(nodeClass *v1alpha1.BizflyNodeClass, offerings int, pause time.Duration, cause error) karpevents.Event {
	event := warning(nodeClass, string(nodeClass.UID), ReasonLaunchesKeepFailing,
		fmt.Sprintf("Launches failed with at least %d different offerings for reasons other than capacity: launches with this NodeClass pause for %s, and then one at a time is tried. Check image, networks, firewalls and permissions. The last failure: %s",
			offerings, pause, cause))
	event.DedupeTimeout = pause
	return event
}

// GarbageCollectionSuspended says, on the namespace whose UID is the cluster's identity, that so many servers look
// orphaned that the evidence itself is doubted.
func GarbageCollectionSuspended(orphans, servers int, names []string) karpevents.Event {
	event := aboutServers("all", ReasonGarbageCollectionSuspended,
		fmt.Sprintf("%d of %d servers of this cluster have no NodeClaim. That many at once may be lost NodeClaims rather than lost servers, so none is deleted. Restore the NodeClaims, or delete the servers by hand: %s",
			orphans, servers, strings.Join(names, ", ")))
	event.DedupeTimeout = 10 * time.Minute
	return event
}

// warning makes an event that is published once per dedupe key and two minutes, unless the caller asks for longer.
func warning(object runtime.Object, dedupe, reason, message string) karpevents.Event {
	return karpevents.Event{
		InvolvedObject: object,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        shorten(message),
		DedupeValues:   []string{reason, dedupe},
	}
}

// shorten cuts at a rune boundary, since the cloud also speaks Vietnamese.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// Reasons of the events about what a deleted server left behind and the controller could not remove within ten minutes.
const (
	// ReasonLeaveFailed is for a node that BKE still lists.
	ReasonLeaveFailed = "BKELeaveFailed"
	// ReasonAddressReleaseFailed is for addresses that are still paid for.
	ReasonAddressReleaseFailed = "AddressReleaseFailed"
	// ReasonDiskDeletionFailed is for disks that are still paid for.
	ReasonDiskDeletionFailed = "DiskDeletionFailed"
	// ReasonServerDeletionFailed is for a server that is still there itself.
	ReasonServerDeletionFailed = "ServerDeletionFailed"
	// ReasonNodeSmallerThanPlanned is for a node that offers pods less than its instance type promises.
	ReasonNodeSmallerThanPlanned = "NodeSmallerThanPlanned"
)

// NodeSmallerThanPlanned reports that a node offers pods noticeably less than its instance type promises, which no second
// node has confirmed yet.
func NodeSmallerThanPlanned(claim *karpv1.NodeClaim, node *corev1.Node) events.Event {
	planned, offers := claim.Status.Allocatable, node.Status.Allocatable
	return warning(claim, string(claim.UID), ReasonNodeSmallerThanPlanned, fmt.Sprintf(
		"Node %s offers pods cpu %s, memory %s, ephemeral-storage %s and %s pods; planned were %s, %s, %s and %s. "+
			"New nodes of %s are planned like this once a second node reports the same; set spec.kubelet of the NodeClass to plan so now",
		node.Name, offers.Cpu(), offers.Memory(), offers.StorageEphemeral(), offers.Pods(),
		planned.Cpu(), planned.Memory(), planned.StorageEphemeral(), planned.Pods(), claim.Labels[corev1.LabelInstanceTypeStable]))
}

// leftovers are reason and message by what a deleted server leaves.
var leftovers = map[string][2]string{
	"server":  {ReasonServerDeletionFailed, "The server is still there ten minutes after its deletion began. It is tried again, and its NodeClaim waits"},
	"disk":    {ReasonDiskDeletionFailed, "The server is deleted, but a disk of it is still paid for. It is tried again; delete its snapshots if it has any"},
	"address": {ReasonAddressReleaseFailed, "The server is deleted, but an address of it is still paid for. It is tried again; release it by hand if it stays"},
	"node":    {ReasonLeaveFailed, "The server is deleted, but BizFly Kubernetes Engine still lists the node. It is tried again; remove the node there if it stays"},
}

// Leftover reports what is still there ten minutes after a deletion began: the "server" itself, or, of one that is gone, a
// "disk", an "address", or the "node" in BKE.
func Leftover(kind, nodeName string, err error) events.Event {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: types.UID(nodeName)}}
	return warning(node, nodeName+err.Error(), leftovers[kind][0], fmt.Sprintf("%s: %s", leftovers[kind][1], err))
}
