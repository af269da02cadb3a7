// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events about servers that exist.
const (
	ReasonNodeDrifted        = "ServerDrifted"
	ReasonServerUpdated      = "ServerUpdated"
	ReasonServerUpdateFailed = "ServerUpdateFailed"

	ReasonGarbageCollected           = "ServerGarbageCollected"
	ReasonWouldGarbageCollect        = "ServerWouldBeGarbageCollected"
	ReasonGarbageCollectionSuspended = "GarbageCollectionSuspended"
	ReasonServerLeft                 = "ServerLeft"
	ReasonServerKept                 = "ServerKept"
	ReasonServerElsewhere            = "ServerElsewhere"

	ReasonLeaveFailed          = "BKELeaveFailed"
	ReasonDiskDeletionFailed   = "DiskDeletionFailed"
	ReasonServerDeletionFailed = "ServerDeletionFailed"
	ReasonServerNotStarted     = "ServerNotStarted"
)

// ServerDrifted reports in what the NodeClaim's server differs from what its NodeClass asks for.
func ServerDrifted(claim *karpv1.NodeClaim, reason, got, wanted string) karpevents.Event {
	// Drift is compared every few minutes, and the replacement may wait long for a disruption budget.
	return every(time.Hour, normal(claim, fmt.Sprintf("%s-%s-%s", claim.UID, reason, wanted), ReasonNodeDrifted,
		"%s: the server has %s, new ones get %s. It is replaced as the NodePool's disruption budgets allow", reason, got,
		wanted))
}

// ServerUpdated reports that a running server was changed to what its NodeClass specifies, without being replaced.
func ServerUpdated(claim *karpv1.NodeClaim, what string) karpevents.Event {
	return normal(claim, string(claim.UID)+what, ReasonServerUpdated, "Server %s was changed in place: %s",
		claim.Status.ProviderID, what)
}

// ServerUpdateFailed reports that a running server could not be changed to what its NodeClass specifies.
func ServerUpdateFailed(claim *karpv1.NodeClaim, err error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerUpdateFailed,
		"Server %s could not be changed in place; retrying: %s", claim.Status.ProviderID, err)
}

// Servers for which the cluster has no object are reported on the ProviderConfig, which stands for the account that
// pays.

// GarbageCollected reports that a server without a NodeClaim was deleted.
func GarbageCollected(config *v1alpha1.ProviderConfig, name, id string) karpevents.Event {
	return normal(config, id, ReasonGarbageCollected, "Server %s (%s) had no NodeClaim and was deleted with its own disks",
		name, id)
}

// WouldGarbageCollect reports that a server without a NodeClaim would be deleted, and why it is not.
func WouldGarbageCollect(config *v1alpha1.ProviderConfig, name, id, claim, because string) karpevents.Event {
	return every(time.Hour, warning(config, id, ReasonWouldGarbageCollect,
		"Server %s (%s) has no NodeClaim any more (it was %s) and would be deleted, but %s", name, id, claim, because))
}

// GarbageCollectionSuspended reports that so many servers have no NodeClaim that lost NodeClaims are more likely.
func GarbageCollectionSuspended(config *v1alpha1.ProviderConfig, servers int, orphans []string) karpevents.Event {
	return every(seldom, warning(config, "all", ReasonGarbageCollectionSuspended,
		"%d of %d servers of this cluster have no NodeClaim: NodeClaims may be lost, so none is deleted until the Nodes are "+
			"gone. Scale the controller to 0 now, then do what the page of the alert "+
			"KarpenterBizflyGarbageCollectionSuspended says: %s",
		len(orphans), servers, some(orphans)))
}

// ServerLeft reports that the server of a deleted NodeClaim is not deleted, since nothing proves it to be this
// cluster's.
func ServerLeft(claim *karpv1.NodeClaim, id string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerLeft,
		"Server %s is not deleted and still paid for: its metadata %s is not this cluster's UID. If it is this NodeClaim's, "+
			"delete it with its disks manually",
		id, v1alpha1.MetadataClusterUID)
}

// ServerElsewhere reports a node whose kubelet reports, while BizFly Cloud has no server of this cluster with its id.
func ServerElsewhere(claim *karpv1.NodeClaim) karpevents.Event {
	return every(time.Hour, warning(claim, string(claim.UID), ReasonServerElsewhere,
		"Server %s is not among this cluster's, but its kubelet reports: it was moved to another project, or has lost its "+
			"metadata. The node stays, and nothing is deleted. Ask the support to undo it, or delete the NodeClaim",
		claim.Status.ProviderID))
}

// ServerKept reports that a server has this cluster's metadata and is no NodeClaim's, and is kept because its name does
// not prove that this cluster has launched it.
func ServerKept(config *v1alpha1.ProviderConfig, name, id string) karpevents.Event {
	return every(untilActed, warning(config, id, ReasonServerKept,
		"Server %s (%s) is kept: it has this cluster's metadata, but a name that this cluster did not give, like a user's "+
			"copy of a node. If it is not needed, delete it; kubectl bizfly doctor lists what is left", name, id))
}

// ServerDeletionFailed reports that a server still exists although its deletion began, and why as far as that is known.
func ServerDeletionFailed(name, id string, cause error) karpevents.Event {
	return every(time.Hour, warning(nodeNamed(name), id, ReasonServerDeletionFailed,
		"Server %s still exists although it is to be deleted. Retrying: %s",
		id, cause))
}

// LeaveFailed reports that the node of a deleted server could not be removed from BizFly Kubernetes Engine.
func LeaveFailed(node string, err error) karpevents.Event {
	return warning(nodeNamed(node), node, ReasonLeaveFailed,
		"The server is deleted, but BizFly Kubernetes Engine may still list the node. Remove it there if it stays: %s", err)
}

// LeftoverDisk reports that a disk which a deleted server has left is still there.
func LeftoverDisk(server, id string, err error) karpevents.Event {
	return every(time.Hour, warning(nodeNamed(server), id, ReasonDiskDeletionFailed,
		"The server is deleted, but one of its disks is still paid for. Delete its snapshots if it has any, or rename it to "+
			"keep it: %s", err))
}

// ServerNotStarted reports that the server of a node, which was stopped while the account was unpaid, does not start.
func ServerNotStarted(node *corev1.Node, err error) karpevents.Event {
	return every(time.Hour, warning(node, string(node.UID), ReasonServerNotStarted,
		"The account is paid again, and the server is still stopped. Retrying every minute; start it in the console, or "+
			"delete the NodeClaim: %s", err))
}

// nodeNamed is the object of events about a server whose Node may be gone.
func nodeNamed(name string) runtime.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

// Reasons of the events on a BizflyNodeClass and a ProviderConfig. What their conditions say is not repeated.
const (
	ReasonWaitingOnNodeClaimTermination = "WaitingOnNodeClaimTermination"

	ReasonTuningIgnored = "TuningIgnored"

	// ReasonControlPlaneUnconfirmed says that this cluster may be a clone.
	ReasonControlPlaneUnconfirmed = "ControlPlaneUnconfirmed"
)

// WaitingOnNodeClaimTermination reports that a NodeClass which is being deleted stays until nothing uses it any more.
func WaitingOnNodeClaimTermination(nodeClass *v1alpha1.BizflyNodeClass, nodeClaims []string) karpevents.Event {
	return normal(nodeClass, string(nodeClass.UID), ReasonWaitingOnNodeClaimTermination,
		"Waiting until the %d NodeClaims that use it are deleted: %s", len(nodeClaims), some(nodeClaims))
}

// ControlPlaneUnconfirmed reports that nothing is done for a NodeClaim in a cluster that may be a clone.
func ControlPlaneUnconfirmed(claim *karpv1.NodeClaim, err error) karpevents.Event {
	return every(time.Hour, warning(claim, string(claim.UID), ReasonControlPlaneUnconfirmed,
		"No server is launched, deleted or rebooted for this NodeClaim until the control plane is confirmed: %s", err))
}

// TuningIgnored names an invalid key of the tuning ConfigMap, with its value, what may be used instead, and which value
// is active meanwhile.
func TuningIgnored(config *v1alpha1.ProviderConfig, configMap, problem string) karpevents.Event {
	return every(seldom, warning(config, fmt.Sprintf("%s-%s", config.UID, problem), ReasonTuningIgnored,
		"ConfigMap %s: %s", configMap, problem))
}
