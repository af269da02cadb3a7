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

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
)

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
