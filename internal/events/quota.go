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
