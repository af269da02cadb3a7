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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

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
