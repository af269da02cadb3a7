// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// offer is what a NodePool leaves of the catalog. Without a NodePool it is that of a NodePool without requirements.
type offer struct {
	pool    *karpv1.NodePool
	flavors []*corecloudprovider.InstanceType
}

func readOffers(ctx context.Context, r *reading) ([]offer, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	nodeClasses, err := factClassesOrDefaults.in(ctx, r)
	if err != nil {
		return nil, err
	}
	pools := &karpv1.NodePoolList{}
	if r.Cluster != nil {
		if pools, err = factAnyNodePools.in(ctx, r); err != nil {
			return nil, err
		}
	}
	if len(pools.Items) == 0 {
		all, _, err := price.StandardFlavors(ctx, cloud)
		return []offer{{flavors: lo.Filter(all, func(it *corecloudprovider.InstanceType, _ int) bool {
			return len(it.Offerings.Available()) > 0
		})}}, err
	}
	objects := unresolved(nodeClasses)
	for i := range pools.Items {
		objects = append(objects, &pools.Items[i])
	}
	simulation, err := sim.New(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	return lo.FilterMap(pools.Items, func(pool karpv1.NodePool, _ int) (offer, bool) {
		known := lo.ContainsBy(nodeClasses, func(n v1alpha1.BizflyNodeClass) bool {
			return n.Name == lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
		})
		flavors, err := simulation.FlavorsOf(ctx, &pool)
		return offer{&pool, flavors}, err == nil && known && sim.Foreign(&pool) == ""
	}), nil
}

var flavorRules = []rule{{
	code: "NoFlavorLeft", about: "flavors", severity: Error, why: "no node is launched for it",
	given: given1(factOffers, func(offers []offer) outcome {
		var result outcome
		for _, o := range offers {
			whose, command := "a NodePool without requirements", "kubectl bizfly flavors"
			if o.pool != nil {
				whose, command = "NodePool "+o.pool.Name, "kubectl bizfly flavors --nodepool "+o.pool.Name
			}
			if len(o.flavors) == 0 {
				result.state = fails
				result.findings = append(result.findings, Finding{What: whose + " leaves no flavor that can be launched",
					Fix: command})
				continue
			}
			result.known = append(result.known, Known{Name: "flavors of " + whose, Value: describeOffer(o)})
		}
		return result
	}),
}}

// describeOffer says how much is left, where, and from which price on.
func describeOffer(o offer) string {
	var cheapest struct {
		flavor string
		price  float64
	}
	zones := map[string]bool{}
	wanted := requirementsOf(o.pool)
	for _, it := range o.flavors {
		for _, offering := range it.Offerings.Available().Compatible(wanted) {
			zones[offering.Zone()] = true
			if cheapest.flavor == "" || offering.Price < cheapest.price {
				cheapest.flavor, cheapest.price = it.Name, offering.Price
			}
		}
	}
	return fmt.Sprintf("%d in %s, from %s at %s VND per hour", len(o.flavors), strings.Join(sortedKeys(zones), " and "),
		cheapest.flavor,
		output.VND(cheapest.price))
}
