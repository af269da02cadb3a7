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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/karpenter/pkg/events"
)

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
)

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
