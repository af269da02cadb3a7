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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of events about the node of a server.
const (
	// ReasonLeaveFailed is that of a node that BKE still lists.
	ReasonLeaveFailed = "BKELeaveFailed"
	// ReasonNodeSmallerThanPlanned is that of a node that offers pods less than its instance type promises.
	ReasonNodeSmallerThanPlanned = "NodeSmallerThanPlanned"
)

// NodeSmallerThanPlanned says that a node offers pods noticeably less than its instance type promises, which no second node
// has confirmed yet.
func NodeSmallerThanPlanned(claim *karpv1.NodeClaim, node *corev1.Node) events.Event {
	planned, offers := claim.Status.Allocatable, node.Status.Allocatable
	return warning(claim, string(claim.UID), ReasonNodeSmallerThanPlanned, fmt.Sprintf(
		"Node %s offers pods cpu %s, memory %s, ephemeral-storage %s and %s pods; planned were %s, %s, %s and %s. "+
			"New nodes of %s are planned like this once a second node reports the same; set spec.kubelet of the NodeClass to plan so now",
		node.Name, offers.Cpu(), offers.Memory(), offers.StorageEphemeral(), offers.Pods(),
		planned.Cpu(), planned.Memory(), planned.StorageEphemeral(), planned.Pods(), claim.Labels[corev1.LabelInstanceTypeStable]))
}

// LeaveFailed says that BizFly Kubernetes Engine still lists a node whose server is gone.
func LeaveFailed(nodeName string, err error) events.Event {
	return events.Event{
		InvolvedObject: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: types.UID(nodeName)}},
		Type:           corev1.EventTypeWarning,
		Reason:         ReasonLeaveFailed,
		Message:        shorten(fmt.Sprintf("The server is deleted, but BizFly Kubernetes Engine still lists the node; remove it there: %s", err)),
		DedupeValues:   []string{nodeName},
	}
}
