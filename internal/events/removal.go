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
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events about single servers that the garbage collector takes.
const (
	ReasonGarbageCollected    = "ServerGarbageCollected"
	ReasonWouldGarbageCollect = "ServerWouldBeGarbageCollected"
)

// GarbageCollected says that a server without a claim is gone.
func GarbageCollected(name, id string) karpevents.Event {
	event := aboutServers(id, ReasonGarbageCollected, fmt.Sprintf("Server %s (%s) had no NodeClaim and is deleted with its root disk", name, id))
	event.Type = corev1.EventTypeNormal
	return event
}

// WouldGarbageCollect says in a dry run that a server without a claim would be deleted.
func WouldGarbageCollect(name, id, claim string) karpevents.Event {
	event := aboutServers(id, ReasonWouldGarbageCollect, fmt.Sprintf(
		"Server %s (%s) has no NodeClaim any more (it was %s) and would be deleted, but GARBAGE_COLLECTION_DRY_RUN is on", name, id, claim))
	event.DedupeTimeout = time.Hour
	return event
}

// On returns the event for the ProviderConfig as well, where `kubectl describe` shows it beside the configuration.
func On(config *v1alpha1.ProviderConfig, event karpevents.Event) karpevents.Event {
	event.InvolvedObject = config
	event.DedupeValues = append(slices.Clone(event.DedupeValues), string(config.UID))
	return event
}

// aboutServers is an event about a server that no object of the cluster stands for.
func aboutServers(id, reason, message string) karpevents.Event {
	return warning(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem},
	}, id, reason, message)
}

// Reasons of the events about servers that are not deleted, for what is known of their owner.
const (
	// ReasonServerLeft is for a server that outlives its NodeClaim.
	ReasonServerLeft = "ServerLeft"
	// ReasonServerHeld is for a server that was launched for another NodeClaim.
	ReasonServerHeld = "ServerOfAnotherNodeClaim"
)

// ServerHeld reports that a NodeClaim has the server of another one, as after it was restored from a backup.
func ServerHeld(claim *karpv1.NodeClaim, id, launchedFor string) karpevents.Event {
	event := warning(claim, string(claim.UID)+id, ReasonServerHeld, fmt.Sprintf(
		"Server %s was launched for a NodeClaim with the UID %s, not %s. It is kept as long as this NodeClaim has it; delete the NodeClaim to replace the server",
		id, launchedFor, claim.UID))
	event.DedupeTimeout = time.Hour
	return event
}

// ServerLeft reports that the server of a deleted NodeClaim is not deleted, since nothing proves it to be this cluster's.
func ServerLeft(claim *karpv1.NodeClaim, id string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerLeft, fmt.Sprintf(
		"The server %s is left alone and paid for: its metadata %s is not this cluster's UID, so nothing proves whose it is. If it is this claim's, delete it with its disks by hand",
		id, v1alpha1.MetadataClusterUID))
}

// Reasons of the events about what is changed on running servers.
const (
	ReasonServerUpdated      = "ServerUpdated"
	ReasonServerUpdateFailed = "ServerUpdateFailed"
	ReasonServerRenamed      = "ServerRenamed"
)

// ServerUpdated says that a running server got what its NodeClass says now, without being replaced.
func ServerUpdated(claim *karpv1.NodeClaim, what string) karpevents.Event {
	event := warning(claim, string(claim.UID)+what, ReasonServerUpdated, fmt.Sprintf("The server %s was changed in place: %s", claim.Status.ProviderID, what))
	event.Type = corev1.EventTypeNormal
	return event
}

// ServerUpdateFailed says that a running server could not be given what its NodeClass says; it is tried again.
func ServerUpdateFailed(claim *karpv1.NodeClaim, err error) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerUpdateFailed,
		fmt.Sprintf("The server %s could not be changed in place and is tried again: %s", claim.Status.ProviderID, err))
}

// ServerRenamed says that somebody had renamed the server, and that it has its name back.
func ServerRenamed(claim *karpv1.NodeClaim, name, was string) karpevents.Event {
	return warning(claim, string(claim.UID)+was, ReasonServerRenamed,
		fmt.Sprintf("The server %s was renamed to %q outside Kubernetes and is called %s again: the cloud controller manager finds it by its name",
			claim.Status.ProviderID, was, name))
}

// Reasons of the events about servers that do not run.
const (
	ReasonServerNotRunning  = "ServerNotRunning"
	ReasonServerRunning     = "ServerRunning"
	ReasonServerStartFailed = "ServerStartFailed"
)

// ServerNotRunning reports that the NodeClaim's server runs nothing: why, and what happens next.
func ServerNotRunning(claim *karpv1.NodeClaim, reason, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+reason, ReasonServerNotRunning,
		fmt.Sprintf("The server %s of node %s does not run (%s); %s", claim.Status.ProviderID, claim.Status.NodeName, reason, consequence))
}

// ServerRunning reports that the server runs again.
func ServerRunning(claim *karpv1.NodeClaim, after time.Duration) karpevents.Event {
	event := warning(claim, string(claim.UID), ReasonServerRunning,
		fmt.Sprintf("The server %s of node %s runs again after %s", claim.Status.ProviderID, claim.Status.NodeName, after.Round(time.Second)))
	event.Type = "Normal"
	return event
}

// ServerStartFailed reports that a stopped server could not be started.
func ServerStartFailed(claim *karpv1.NodeClaim, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID)+consequence, ReasonServerStartFailed,
		fmt.Sprintf("The server %s of node %s is not started; %s", claim.Status.ProviderID, claim.Status.NodeName, consequence))
}
