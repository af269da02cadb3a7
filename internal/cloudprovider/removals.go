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

package cloudprovider

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/journal"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
)

// Reasons of the journal's lines beside those of failures.
const (
	// ReasonCheapest says that the offering was the cheapest that fits and is for sale.
	ReasonCheapest = "Cheapest"
	// ReasonFailedOver says that a cheaper offering, or one as cheap, was refused just before.
	ReasonFailedOver = "FailedOver"
	// ReasonFound says that the server is that of an earlier order, which had been left without an answer.
	ReasonFound = "Found"
	// ReasonNoOffering says that nothing was ordered, because nothing that fits is for sale.
	ReasonNoOffering = "NoOfferingAvailable"

	// ReasonNotRegistered says that the node did not join in time.
	ReasonNotRegistered = "NotRegistered"
	// ReasonExpired says that the node had reached its NodePool's expireAfter.
	ReasonExpired = "Expired"
	// ReasonDeleted says that somebody deleted the NodeClaim, the Node or the NodePool.
	ReasonDeleted = "Deleted"
)

// entry is the journal's line about an order.
func (c *CloudProvider) entry(claim *karpv1.NodeClaim, types cloudprovider.InstanceTypes, intent instance.Intent, reason string) journal.Entry {
	entry := journal.Entry{NodeClaim: claim.Name, Flavor: intent.Flavor, Zone: intent.Zone,
		CapacityType: karpv1.CapacityTypeOnDemand, Reason: reason}
	if _, offering := find(types, intent.Flavor, intent.Zone); offering != nil {
		entry.Price = offering.Price
	}
	if !intent.RequestedAt.IsZero() {
		entry.Took = c.clock.Since(intent.RequestedAt)
	}
	return entry
}

// removalReason is why the server of a NodeClaim is deleted, as far as the NodeClaim or its failed launch tell.
func (c *CloudProvider) removalReason(claim *karpv1.NodeClaim) string {
	if known, ok := c.removals.Get(string(claim.UID)); ok {
		return known.(string)
	}
	conditions := claim.StatusConditions()
	if disruption := conditions.Get(karpv1.ConditionTypeDisruptionReason); disruption.IsTrue() {
		return disruption.Reason
	}
	switch {
	case expired(claim):
		return ReasonExpired
	case !conditions.Get(karpv1.ConditionTypeRegistered).IsTrue():
		return ReasonNotRegistered
	}
	return ReasonDeleted
}

// expired says that the claim's time was up when it was deleted.
func expired(claim *karpv1.NodeClaim) bool {
	after := claim.Spec.ExpireAfter.Duration
	return after != nil && claim.DeletionTimestamp != nil && claim.DeletionTimestamp.Sub(claim.CreationTimestamp.Time) >= *after
}

// describeClaim identifies the NodeClaim's server in the removal log line.
func describeClaim(claim *karpv1.NodeClaim) instance.Description {
	return instance.Description{
		NodeClaim:    claim.Name,
		NodeClaimUID: string(claim.UID),
		Flavor:       claim.Labels[corev1.LabelInstanceTypeStable],
		Zone:         claim.Labels[corev1.LabelTopologyZone],
	}
}
