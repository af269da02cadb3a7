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
	"context"
	"fmt"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// dropUnsupportedCapacityTypes returns the NodeClaim as it is to be launched. Where a NodePool allows any capacity type, core
// names in a new NodeClaim those that are launchable, which is on-demand. Only consolidation still assumes that spot is sold:
// it asks for nothing else when it replaces a node by a cheaper one (disruption.computeConsolidation), so that want of spot
// capacity never makes the replacement more expensive than what it replaces. Core has compared on-demand prices there, and
// the user has not asked for spot, so that requirement is left out. One that the NodePool makes itself stays, and is rejected.
func (c *CloudProvider) dropUnsupportedCapacityTypes(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	name := claim.Labels[karpv1.NodePoolLabelKey]
	if name == "" || capacityType.Has(karpv1.CapacityTypeOnDemand) || !capacityType.Has(karpv1.CapacityTypeSpot) {
		return claim, nil
	}
	pool := &karpv1.NodePool{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return claim, nil
		}
		return nil, fmt.Errorf("reading the capacity types of NodePool %q: %w", name, err)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	if !wanted.Get(karpv1.CapacityTypeLabelKey).Has(karpv1.CapacityTypeOnDemand) {
		return claim, nil
	}
	// Core patches the object that it has passed.
	claim = claim.DeepCopy()
	claim.Spec.Requirements = lo.Reject(claim.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool {
		return r.Key == karpv1.CapacityTypeLabelKey
	})
	return claim, nil
}
