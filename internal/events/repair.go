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

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of the events about servers that were stopped.
const (
	ReasonServerStopped  = "ServerStopped"
	ReasonServerStarted  = "ServerStarted"
	ReasonServerReplaced = "ServerReplaced"
)

// ServerStopped says that somebody stopped the claim's server, and what becomes of it.
func ServerStopped(claim *karpv1.NodeClaim, consequence string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerStopped, fmt.Sprintf("The server %s was stopped outside Kubernetes: %s", claim.Status.ProviderID, consequence))
}

// ServerStarted says that the server runs again.
func ServerStarted(claim *karpv1.NodeClaim, after time.Duration) karpevents.Event {
	event := warning(claim, string(claim.UID), ReasonServerStarted, fmt.Sprintf("The server %s runs again after %s", claim.Status.ProviderID, after.Round(time.Second)))
	event.Type = "Normal"
	return event
}

// ServerReplaced says that the claim of a server that stayed stopped is deleted, so that core replaces it.
func ServerReplaced(claim *karpv1.NodeClaim, after time.Duration) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerReplaced,
		fmt.Sprintf("The server %s has been stopped for %s: the node is replaced", claim.Status.ProviderID, after.Round(time.Second)))
}
