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
	"math"
	"slices"
	"strings"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// candidate is one offering that the NodeClaim may be launched with.
type candidate struct {
	instanceType *cloudprovider.InstanceType
	offering     *cloudprovider.Offering
	key          capacity.Offering
	// preference is what the placement strategy compares: less is better.
	preference float64
	// failures and seconds are what is known of the offering: recent failed launches, and what launches take.
	failures int
	seconds  float64
	// lastFailure is when the offering last failed; zero unless the launch is the trial of a paused NodeClass.
	lastFailure time.Time
}

// candidates returns the offerings that fit the NodeClaim, the one to try first in front. The price comes first, exactly as core
// computes it, since a more expensive choice would be consolidated at once; among equal prices the placement strategy of the
// NodeClass decides. The order is total, so that the same NodeClaim always gets the same result.
func (c *CloudProvider) candidates(ctx context.Context, l *launch) ([]candidate, error) {
	claim, instanceTypes := l.claim, l.types
	plan, nodeClassKey := billingPlan(l.nodeClass), capacity.NodeClassKey(l.nodeClass)
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	// Each is compared by itself as well: requirements that contradict each other (generation 2, and no generation) would
	// otherwise be met by whatever has no such label.
	single := lo.Map(claim.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) scheduling.Requirements {
		return scheduling.NewNodeSelectorRequirementsWithMinValues(r)
	})
	fitting := lo.Filter(instanceTypes, func(it *cloudprovider.InstanceType, _ int) bool {
		return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			lo.EveryBy(single, func(r scheduling.Requirements) bool {
				return r.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels)
			}) &&
			resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) &&
			it.Offerings.Launchable().HasCompatible(requirements)
	})
	if len(fitting) == 0 {
		return nil, fmt.Errorf("none of %d flavors is available for the requirements of NodeClaim %s", len(instanceTypes), claim.Name)
	}
	if !c.BestEffortMinValues {
		if _, _, err := fitting.SatisfiesMinValues(requirements); err != nil {
			return nil, fmt.Errorf("%d flavors are left for NodeClaim %s: %w", len(fitting), claim.Name, err)
		}
	}
	var all []candidate
	for _, it := range fitting {
		for _, offering := range it.Offerings.Launchable().Compatible(requirements) {
			key := capacity.Offering{Flavor: it.Name, Zone: offering.Zone(), BillingPlan: plan, NodeClass: nodeClassKey}
			all = append(all, candidate{instanceType: it, offering: offering, key: key})
		}
	}
	c.place(ctx, l, all)
	return all, nil
}

// price sorts an offering whose price is not a number last, where cmp would sort it first.
func price(c candidate) float64 {
	if math.IsNaN(c.offering.Price) {
		return math.Inf(1)
	}
	return c.offering.Price
}

// poolChecks reports NodePools that no flavor, available or not, can satisfy; core would only say that pods cannot be scheduled. A
// NodePool is checked when it or the instance types have changed: core asks for instance types hundreds of times per minute,
// and the slice is shared until something changes.
type poolChecks struct {
	recorder karpevents.Recorder
	checked  *cache.Cache
}

// poolCheck is the input for which a NodePool's requirements were checked.
type poolCheck struct {
	generation int64
	first      *cloudprovider.InstanceType
	count      int
}

func (p *poolChecks) check(pool *karpv1.NodePool, instanceTypes []*cloudprovider.InstanceType) {
	input := poolCheck{generation: pool.Generation, count: len(instanceTypes)}
	if len(instanceTypes) > 0 {
		input.first = instanceTypes[0]
	}
	if known, ok := p.checked.Get(string(pool.UID)); ok && known.(poolCheck) == input {
		return
	}
	p.checked.SetDefault(string(pool.UID), input)
	requirements := poolRequirements(pool)
	if !lo.ContainsBy(instanceTypes, func(it *cloudprovider.InstanceType) bool { return satisfies(it, requirements) }) {
		p.recorder.Publish(events.NoCompatibleFlavor(pool, explain(requirements, instanceTypes)))
	}
}

// poolRequirements are those of the NodePool's NodeClaims.
func poolRequirements(pool *karpv1.NodePool) scheduling.Requirements {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	return requirements
}

// satisfies reports whether the flavor, available or not, meets the requirements.
func satisfies(it *cloudprovider.InstanceType, requirements scheduling.Requirements) bool {
	return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
		it.Offerings.HasCompatible(requirements)
}

// explain names the requirements that no flavor satisfies even alone, and what there is instead.
func explain(requirements scheduling.Requirements, instanceTypes []*cloudprovider.InstanceType) string {
	if len(instanceTypes) == 0 {
		return "the NodeClass leaves no flavor at all"
	}
	var unmet []string
	for _, requirement := range requirements {
		alone := scheduling.NewRequirements(requirement)
		if lo.ContainsBy(instanceTypes, func(it *cloudprovider.InstanceType) bool { return satisfies(it, alone) }) {
			continue
		}
		unmet = append(unmet, fmt.Sprintf("%s, where there is %s", requirement, available(requirement.Key, instanceTypes)))
	}
	if len(unmet) == 0 {
		return fmt.Sprintf("each requirement alone is satisfied by some flavor, but no flavor satisfies all of them: %s", requirements)
	}
	slices.Sort(unmet)
	return strings.Join(unmet, "; ")
}

// available lists some values of the key that flavors and offerings have.
func available(key string, instanceTypes []*cloudprovider.InstanceType) string {
	const most = 10
	values := map[string]struct{}{}
	add := func(requirements scheduling.Requirements) {
		if requirements.Has(key) && requirements.Get(key).Operator() == corev1.NodeSelectorOpIn {
			for _, value := range requirements.Get(key).Values() {
				values[value] = struct{}{}
			}
		}
	}
	for _, it := range instanceTypes {
		add(it.Requirements)
		for _, offering := range it.Offerings {
			add(offering.Requirements)
		}
	}
	sorted := lo.Keys(values)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return "no value"
	}
	if len(sorted) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(sorted[:most], ", "), len(sorted)-most)
	}
	return strings.Join(sorted, ", ")
}

// dropUnsupportedCapacityTypes returns the NodeClaim as it is to be launched. Where a NodePool allows any capacity type, core
// names in a new NodeClaim those that are launchable, which is on-demand. Only consolidation still assumes that spot exists:
// it requires nothing else when it replaces a node by a cheaper one (disruption.computeConsolidation), so that lack of spot
// capacity never makes the replacement more expensive than what it replaces. Core has compared on-demand prices there, and
// the user has not asked for spot, so that requirement is left out. One that the NodePool makes itself stays, and is rejected.
func (c *config) dropUnsupportedCapacityTypes(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	name := claim.Labels[karpv1.NodePoolLabelKey]
	if name == "" || capacityType.Has(karpv1.CapacityTypeOnDemand) || !capacityType.Has(karpv1.CapacityTypeSpot) {
		return claim, nil
	}
	pool := &karpv1.NodePool{}
	if err := c.KubeClient.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return claim, nil
		}
		return nil, fmt.Errorf("reading the capacity types of NodePool %q: %w", name, err)
	}
	if !poolRequirements(pool).Get(karpv1.CapacityTypeLabelKey).Has(karpv1.CapacityTypeOnDemand) {
		return claim, nil
	}
	// Core patches the object that it has passed.
	claim = claim.DeepCopy()
	claim.Spec.Requirements = lo.Reject(claim.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool {
		return r.Key == karpv1.CapacityTypeLabelKey
	})
	return claim, nil
}

// CountNodes returns how many nodes the cluster has, servers that are no nodes yet included, except that of one NodeClaim.
func CountNodes(ctx context.Context, kubeClient client.Reader, except types.UID) (int, error) {
	nodes, claims := &corev1.NodeList{}, &karpv1.NodeClaimList{}
	if err := kubeClient.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting nodes: %w", err)
	}
	if err := kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting NodeClaims: %w", err)
	}
	return len(nodes.Items) + lo.CountBy(claims.Items, func(claim karpv1.NodeClaim) bool {
		return claim.UID != except && claim.Status.ProviderID != "" && claim.Status.NodeName == ""
	}), nil
}

// checkPackage ends a NodeClaim beyond what the package of the BKE cluster allows, where that is enforced: whether nodes outside
// of BKE's own worker pools count is not documented, so it is not the default. Launches at the same moment may exceed the limit a
// little, as far as caches lag.
func (c *CloudProvider) checkPackage(ctx context.Context, claim *karpv1.NodeClaim) error {
	if c.MaxNodes == nil {
		return nil
	}
	limit := c.MaxNodes()
	if limit <= 0 {
		return nil
	}
	count, err := CountNodes(ctx, c.KubeClient, claim.UID)
	if err != nil || count < limit {
		return err
	}
	pause := c.Settings.Load().AccountPause
	c.Capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonPackageLimit, pause)
	c.Recorder.Publish(events.PackageLimitReached(claim, count, limit, pause))
	return c.unlaunchable(claim, capacity.ReasonPackageLimit, fmt.Errorf("the package of the BKE cluster allows %d nodes and there are %d", limit, count))
}
