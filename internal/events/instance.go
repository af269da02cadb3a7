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

// ReasonLeaveFailed is the reason of an event about a node that BKE still lists.
const ReasonLeaveFailed = "BKELeaveFailed"

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
