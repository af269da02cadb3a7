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

package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	ReasonServerRenamed      = "ServerRenamed"
	ReasonServerNotRunning   = "ServerNotRunning"
	ReasonServerRunning      = "ServerRunning"
	ReasonServerStartFailed  = "ServerStartFailed"

	ReasonGarbageCollected           = "ServerGarbageCollected"
	ReasonWouldGarbageCollect        = "ServerWouldBeGarbageCollected"
	ReasonGarbageCollectionSuspended = "GarbageCollectionSuspended"
	// ReasonServerLeft is for a server that outlives its NodeClaim.
	ReasonServerLeft = "ServerLeft"
	// ReasonServerHeld is for a server that was launched for another NodeClaim.
	ReasonServerHeld = "ServerOfAnotherNodeClaim"

	// ReasonLeaveFailed is for a node that BKE still lists.
	ReasonLeaveFailed = "BKELeaveFailed"
	// ReasonAddressReleaseFailed is for addresses that are still paid for.
	ReasonAddressReleaseFailed = "AddressReleaseFailed"
	// ReasonDiskDeletionFailed is for disks that are still paid for.
	ReasonDiskDeletionFailed = "DiskDeletionFailed"
	// ReasonServerDeletionFailed is for a server that still exists itself.
	ReasonServerDeletionFailed = "ServerDeletionFailed"
)

// ServerDrifted reports in what the NodeClaim's server differs from what its NodeClass asks for.
func ServerDrifted(claim *karpv1.NodeClaim, reason, got, wanted string) karpevents.Event {
	// Drift is compared every few minutes, and the replacement may wait long for a disruption budget.
	return every(time.Hour, normal(warning(claim, fmt.Sprintf("%s-%s-%s", claim.UID, reason, wanted), ReasonNodeDrifted,
		"%s: the server has %s, new ones get %s. It is replaced as the NodePool's disruption budgets allow", reason, got, wanted)))
}

// ServerUpdated reports that a running server was changed to what its NodeClass specifies, without being replaced.
func ServerUpdated(claim *karpv1.NodeClaim, what string) karpevents.Event {
	return normal(warning(claim, string(claim.UID)+what, ReasonServerUpdated, "Server %s was changed in place: %s", claim.Status.ProviderID, what))
}

// ServerUpdateFailed reports that a running server could not be changed to what its NodeClass specifies.
func ServerUpdateFailed(claim *karpv1.NodeClaim, err error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerUpdateFailed, "Server %s could not be changed in place; retrying: %s", claim.Status.ProviderID, err)
}

// ServerRenamed reports that the server was renamed outside Karpenter, and that its name was restored.
func ServerRenamed(claim *karpv1.NodeClaim, name, was string) karpevents.Event {
	return warning(claim, string(claim.UID)+was, ReasonServerRenamed,
		"Server %s was renamed to %q outside Karpenter; its name %s was restored, by which the cloud controller manager finds it",
		claim.Status.ProviderID, was, name)
}

// ServerNotRunning reports that the NodeClaim's server runs nothing: why, and what happens next.
func ServerNotRunning(claim *karpv1.NodeClaim, reason, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+reason, ReasonServerNotRunning,
		"Server %s of node %s does not run (%s); %s", claim.Status.ProviderID, claim.Status.NodeName, reason, consequence)
}

// ServerRunning reports that the server runs again.
func ServerRunning(claim *karpv1.NodeClaim, after time.Duration) karpevents.Event {
	return normal(warning(claim, string(claim.UID), ReasonServerRunning,
		"Server %s of node %s runs again after %s", claim.Status.ProviderID, claim.Status.NodeName, after.Round(time.Second)))
}

// ServerStartFailed reports that a stopped server could not be started.
func ServerStartFailed(claim *karpv1.NodeClaim, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+consequence, ReasonServerStartFailed,
		"Server %s of node %s was not started; %s", claim.Status.ProviderID, claim.Status.NodeName, consequence)
}

// GarbageCollected reports that a server without a NodeClaim was deleted.
func GarbageCollected(name, id string) karpevents.Event {
	return normal(warning(cluster(), id, ReasonGarbageCollected, "Server %s (%s) had no NodeClaim and was deleted with its root disk", name, id))
}

// WouldGarbageCollect reports in a dry run that a server without a NodeClaim would be deleted.
func WouldGarbageCollect(name, id, claim string) karpevents.Event {
	return every(time.Hour, warning(cluster(), id, ReasonWouldGarbageCollect,
		"Server %s (%s) has no NodeClaim any more (it was %s) and would be deleted, but GARBAGE_COLLECTION_DRY_RUN is on", name, id, claim))
}

// GarbageCollectionSuspended reports that so many servers have no NodeClaim that lost NodeClaims are more likely.
func GarbageCollectionSuspended(orphans, servers int, names []string) karpevents.Event {
	return every(seldom, warning(cluster(), "all", ReasonGarbageCollectionSuspended,
		"%d of %d servers of this cluster have no NodeClaim. That many at once may be lost NodeClaims rather than lost servers, so none is deleted. Restore the "+
			"NodeClaims, or delete the servers manually: %s",
		orphans, servers, some(names)))
}

// ServerHeld reports that a NodeClaim has the server of another one, as after a restore from a backup.
func ServerHeld(claim *karpv1.NodeClaim, id, launchedFor string) karpevents.Event {
	return every(time.Hour, warning(claim, string(claim.UID)+id, ReasonServerHeld,
		"Server %s was launched for a NodeClaim with the UID %s, not %s. It is kept as long as this NodeClaim has it; delete the NodeClaim to replace the server",
		id, launchedFor, claim.UID))
}

// ServerLeft reports that the server of a deleted NodeClaim is not deleted, since nothing proves it to be this cluster's.
func ServerLeft(claim *karpv1.NodeClaim, id string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerLeft,
		"Server %s is not deleted and still paid for: its metadata %s is not this cluster's UID. If it is this NodeClaim's, delete it with its disks manually",
		id, v1alpha1.MetadataClusterUID)
}

// leftovers are reason and message by what a deleted server leaves.
var leftovers = map[string][2]string{
	"server":  {ReasonServerDeletionFailed, "The server still exists ten minutes after its deletion began. Retrying; its NodeClaim waits"},
	"disk":    {ReasonDiskDeletionFailed, "The server is deleted, but one of its disks is still paid for. Retrying; delete its snapshots if it has any"},
	"address": {ReasonAddressReleaseFailed, "The server is deleted, but one of its addresses is still paid for. Retrying; release it manually if it stays"},
	"node":    {ReasonLeaveFailed, "The server is deleted, but BizFly Kubernetes Engine still lists the node. Retrying; remove the node there if it stays"},
}

// Leftover reports what still exists ten minutes after a deletion began: the "server" itself, or, of one that is deleted, a
// "disk", an "address", or the "node" in BKE.
func Leftover(kind, nodeName string, err error) karpevents.Event {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: types.UID(nodeName)}}
	return warning(node, nodeName+err.Error(), leftovers[kind][0], "%s: %s", leftovers[kind][1], err)
}
