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
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the events on a BizflyNodeClass. What is wrong with one is published under the reason of its condition.
const (
	ReasonWaitingOnNodeClaimTermination = "WaitingOnNodeClaimTermination"
	ReasonInsecureJoinEndpoint          = "InsecureJoinEndpoint"
	ReasonNetworkOutOfAddresses         = "NetworkOutOfAddresses"
	ReasonNodeClassStale                = "NodeClassStale"
	ReasonNodeClassUnknown              = "CloudUnavailable"
)

// maxNames bounds how many objects an event names.
const maxNames = 5

// NodeClassNotReady says that a condition of a NodeClass has become false, or unknown after it was true, and why. The condition's own reason is the
// event's, for example ImageNotFound.
func NodeClassNotReady(nodeClass *v1alpha1.BizflyNodeClass, condition status.Condition) karpevents.Event {
	return warning(nodeClass, fmt.Sprintf("%s-%s-%s", nodeClass.UID, condition.Type, condition.Message), condition.Reason,
		fmt.Sprintf("%s: %s", condition.Type, condition.Message))
}

// NodeClassStale says that a condition of a NodeClass stays true on what was resolved before, because it cannot be checked.
func NodeClassStale(nodeClass *v1alpha1.BizflyNodeClass, condition status.Condition) karpevents.Event {
	return warning(nodeClass, fmt.Sprintf("%s-%s", nodeClass.UID, condition.Type), ReasonNodeClassStale,
		fmt.Sprintf("%s: %s", condition.Type, condition.Message))
}

// WaitingOnNodeClaimTermination says that a NodeClass which is being deleted stays until nothing uses it any more.
func WaitingOnNodeClaimTermination(nodeClass *v1alpha1.BizflyNodeClass, nodeClaims []string) karpevents.Event {
	names := slices.Sorted(slices.Values(nodeClaims))
	list := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	event := warning(nodeClass, string(nodeClass.UID), ReasonWaitingOnNodeClaimTermination,
		fmt.Sprintf("Waiting until the %d NodeClaims that use it are gone: %s", len(names), list))
	event.Type = corev1.EventTypeNormal
	return event
}

// InsecureJoinEndpoint says that servers join without TLS, and what to do about it.
func InsecureJoinEndpoint(nodeClass *v1alpha1.BizflyNodeClass, message string) karpevents.Event {
	return warning(nodeClass, string(nodeClass.UID), ReasonInsecureJoinEndpoint, message)
}

// NetworkOutOfAddresses says that a VPC network of a NodeClass, or one of several where the cloud does not say which, has no
// address left for another server.
func NetworkOutOfAddresses(nodeClass *v1alpha1.BizflyNodeClass, networks []string, pause time.Duration, cause error) karpevents.Event {
	names := slices.Sorted(slices.Values(networks))
	which := "VPC network " + strings.Join(names, "")
	if len(names) > 1 {
		which = "At least one of the VPC networks " + strings.Join(names[:min(len(names), maxNames)], ", ")
	}
	event := warning(nodeClass, strings.Join(names, ","), ReasonNetworkOutOfAddresses, fmt.Sprintf(
		"%s has no address left: launches in it pause for %s. Make room in it, or give spec.networkSelectorTerms a bigger network. The cloud said: %s",
		which, pause, cause))
	event.DedupeTimeout = pause
	return event
}

// ReasonQuotaTooSmall is the reason of an event about a quota that has room only for smaller servers.
const ReasonQuotaTooSmall = "QuotaTooSmall"

// ReasonPackageLimit is the reason of an event about a BKE package that allows no more nodes.
const ReasonPackageLimit = "PackageLimitReached"

// PackageLimitReached says that the package of the BKE cluster allows no more nodes.
func PackageLimitReached(claim *karpv1.NodeClaim, nodes, limit int, pause time.Duration) karpevents.Event {
	event := warning(claim, "package", ReasonPackageLimit, fmt.Sprintf(
		"The cluster has %d nodes and the package of the BKE cluster allows %d: launches pause for %s. Choose a bigger package, or set ENFORCE_CLUSTER_MAX_NODES=false",
		nodes, limit, pause))
	event.DedupeTimeout = pause
	return event
}

// QuotaTooSmall says that the quota of vCPUs or memory has no room for a server of this size.
func QuotaTooSmall(claim *karpv1.NodeClaim, cpu, memoryMiB int, pause time.Duration, cause error) karpevents.Event {
	event := warning(claim, fmt.Sprintf("%d-%d", cpu, memoryMiB), ReasonQuotaTooSmall,
		fmt.Sprintf("The quota has no room for a server of %d vCPUs and %d MiB: none of that size or bigger is ordered for %s. Raise the quota of vCPUs or memory. The cloud said: %s",
			cpu, memoryMiB, pause, cause))
	event.DedupeTimeout = pause
	return event
}
