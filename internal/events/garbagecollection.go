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
	karpevents "sigs.k8s.io/karpenter/pkg/events"
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

// aboutServers is an event about a server that no object of the cluster stands for.
func aboutServers(id, reason, message string) karpevents.Event {
	return warning(&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem},
	}, id, reason, message)
}
