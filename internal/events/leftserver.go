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

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ReasonServerLeft is the reason of an event about a server that outlives its claim.
const ReasonServerLeft = "ServerLeft"

// ServerLeft says that the server of a claim that goes is not deleted, since nothing proves it to be this cluster's.
func ServerLeft(claim *karpv1.NodeClaim, id string) karpevents.Event {
	return warning(claim, string(claim.UID), ReasonServerLeft, fmt.Sprintf(
		"The server %s is left alone and paid for: its metadata %s is not this cluster's UID, so nothing proves whose it is. If it is this claim's, delete it with its disks by hand",
		id, v1alpha1.MetadataClusterUID))
}
