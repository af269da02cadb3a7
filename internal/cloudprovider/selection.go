// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ranked is a candidate with what its place in the order depends on.
type ranked struct {
	candidate launch.Candidate
	// preference is what the placement strategy compares: less is better.
	preference float64
	// complete is true for a flavor that the cloud describes completely. Of others it is not known whether they can
	// still be launched.
	complete bool
	// failures and seconds are what is known of the offering: recent failed launches, and what launches take.
	failures int
	seconds  float64
}

// selectCandidates returns the offerings that fit the NodeClaim, the one to try first in front. The price comes first,
// exactly as core computes it, since a more expensive choice would be consolidated at once; among equal prices flavors
// that the cloud describes completely, and among those the placement strategy of the NodeClass decides. The order is
// total, so that the same NodeClaim always gets the same result.
func (c *CloudProvider) selectCandidates(ctx context.Context, l *launch.Launch) ([]launch.Candidate, error) {
	claim := l.NodeClaim
	plan, nodeClassKey := bizfly.PlanWord(l.NodeClass.EffectiveBillingPlan()), capacity.NodeClassKey(l.NodeClass)
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	// Each is compared by itself as well: requirements that contradict each other (generation 2, and no generation)
	// would otherwise be met by whatever has no such label.
	single := lo.Map(claim.Spec.Requirements,
		func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) scheduling.Requirements {
			return scheduling.NewNodeSelectorRequirementsWithMinValues(r)
		})
	fitting := lo.Filter(l.Types, func(it *cloudprovider.InstanceType, _ int) bool {
		return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			lo.EveryBy(single, func(r scheduling.Requirements) bool {
				return r.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels)
			}) &&
			resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) &&
			it.Offerings.Launchable().HasCompatible(requirements)
	})
	if len(fitting) == 0 {
		return nil, fmt.Errorf("none of %d flavors is available for the requirements of NodeClaim %s",
			len(l.Types), claim.Name)
	}
	if err := flavor.SatisfyMinValues(ctx, fitting, requirements); err != nil {
		return nil, fmt.Errorf("%d flavors are left for NodeClaim %s: %w", len(fitting), claim.Name, err)
	}
	var all []ranked
	for _, it := range fitting {
		for _, offering := range it.Offerings.Launchable().Compatible(requirements) {
			key := capacity.Offering{Flavor: it.Name, Zone: offering.Zone(), BillingPlan: plan, NodeClass: nodeClassKey}
			all = append(all, ranked{candidate: launch.Candidate{InstanceType: it, Offering: offering, Key: key}})
		}
	}
	c.place(ctx, l, all)
	return lo.Map(all, func(r ranked, _ int) launch.Candidate { return r.candidate }), nil
}

// place sorts the candidates by the strategy of the NodeClass. The price comes first in every strategy: core assumes
// that the cheapest is launched, and would replace anything more expensive at once and indefinitely.
func (c *CloudProvider) place(ctx context.Context, l *launch.Launch, all []ranked) {
	strategy := l.NodeClass.Spec.PlacementStrategy
	for i := range all {
		key := all[i].candidate.Key
		all[i].complete = c.config.Flavors.Complete(key.Flavor)
		all[i].failures = c.config.Capacity.RecentFailures(key)
		// What was never launched counts as fast, so that it is tried once.
		all[i].seconds = c.config.Capacity.LaunchSeconds(key)
		if strategy == v1alpha1.PlacementStrategyBinPack {
			all[i].preference = idle(l.NodeClaim.Spec.Resources.Requests, all[i].candidate.InstanceType.Allocatable())
		}
	}
	if strategy == v1alpha1.PlacementStrategySpread && l.NodeClaim.Labels[karpv1.NodePoolLabelKey] != "" {
		c.spread(ctx, l.NodeClaim, all)
		return
	}
	sortCandidates(all)
}

// sortCandidates sorts by price, then flavors that the cloud describes completely first, since others may be closed,
// then by what the strategy prefers, then by what is known of the offerings, and at last by names, so that the same
// knowledge gives the same choice.
func sortCandidates(all []ranked) {
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(
			cmp.Compare(a.candidate.Offering.Price, b.candidate.Offering.Price),
			cmp.Compare(lo.Ternary(a.complete, 0, 1), lo.Ternary(b.complete, 0, 1)),
			cmp.Compare(a.preference, b.preference),
			cmp.Compare(a.failures, b.failures),
			cmp.Compare(a.seconds, b.seconds),
			cmp.Compare(a.candidate.Key.Flavor, b.candidate.Key.Flavor),
			cmp.Compare(a.candidate.Key.Zone, b.candidate.Key.Zone),
		)
	})
}

// idle is how much of a server was not requested: the share of its CPU plus the share of its memory, each from 0 to 1.
// Shares, because cores and bytes do not add up.
func idle(requests, allocatable corev1.ResourceList) float64 {
	total := 0.0
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		has, asked := allocatable[resource], requests[resource]
		if has.IsZero() {
			continue
		}
		total += 1 - asked.AsApproximateFloat64()/has.AsApproximateFloat64()
	}
	// Rounded, so that the order does not depend on the last bit of a division.
	return math.Round(total*1e6) / 1e6
}

// spread sorts the candidates so that, among the cheapest, the zone with the fewest nodes of the NodePool comes first,
// and counts the NodeClaim in the zone of the first candidate: launches at the same time must see each other. A
// preference prevents no launch, so an error leaves none.
func (c *CloudProvider) spread(ctx context.Context, claim *karpv1.NodeClaim, all []ranked) {
	pool, claims := claim.Labels[karpv1.NodePoolLabelKey], &karpv1.NodeClaimList{}
	ofPool := client.MatchingLabels{karpv1.NodePoolLabelKey: pool}
	if err := c.config.KubeClient.List(ctx, claims, ofPool, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "counting the nodes of the NodePool by zone", "NodePool", pool)
	}
	c.Launches.ReserveByZone(claim, claims.Items, func(nodes map[string]int) capacity.Offering {
		for i := range all {
			all[i].preference = float64(nodes[all[i].candidate.Key.Zone])
		}
		sortCandidates(all)
		return lo.FirstOrEmpty(all).candidate.Key
	})
}

// planning is the client of PlanningClient.
type planning struct{ client.Client }

// PlanningClient returns the client with which core plans launches and consolidation. It lists NodePools that allow
// on-demand as if they allowed nothing else. Where spot is allowed too, also by no requirement at all, core requires it
// of what replaces a node (computeConsolidation), and compares with spot prices, of which there are none: it would
// replace no two nodes by one, and every saving would look like the complete price.
func PlanningClient(kubeClient client.Client) client.Client { return planning{kubeClient} }

// List implements client.Client.
func (p planning) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := p.Client.List(ctx, list, options...); err != nil {
		return err
	}
	pools, ok := list.(*karpv1.NodePoolList)
	if !ok {
		return nil
	}
	for i := range pools.Items {
		spec := &pools.Items[i].Spec.Template.Spec
		if v1alpha1.IsOurs(spec.NodeClassRef) &&
			flavor.RequirementsOf(&pools.Items[i]).Get(karpv1.CapacityTypeLabelKey).Has(karpv1.CapacityTypeOnDemand) {
			// In a list of its own: that of the cache may be shared.
			spec.Requirements = slices.Concat(spec.Requirements, []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
					Values: []string{karpv1.CapacityTypeOnDemand}},
			})
		}
	}
	return nil
}
