// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// nodePoolRules are about one NodePool, whatever the pods. why applies them to a NodePool, and doctor to all (ofAll).
// NAME in a fix is the NodePool's.
var nodePoolRules = []rule{
	{code: "NodePoolForeign", about: "provider", severity: Warning, why: "no node is launched for it here",
		fix: "kubectl edit nodepool NAME (spec.template.spec.nodeClassRef: group " + v1alpha1.GroupVersion.Group +
			", kind BizflyNodeClass), or leave it to its provider",
		given: given1(factAsked, func(q question) outcome {
			return failsIf(sim.Foreign(q.pool) != "", "%s", sim.Foreign(q.pool))
		})},
	{code: "NodePoolNotReady", about: "ready", severity: Error, why: "no node is launched for it",
		fix: "kubectl describe nodepool NAME", remedies: []remedy{makeReady},
		given: given2(factServed, factSetup, poolReady)},
	{code: "NodePoolStaticOff", about: "feature gate", severity: Error,
		why: "no node is launched for it, and none for a pod either",
		given: given2(factServed, factSetup, func(q question, s setup) outcome {
			if q.pool.Spec.Replicas == nil || s.Core.FeatureGates.StaticCapacity || !s.installed() {
				return positive()
			}
			return found(Finding{What: "it has spec.replicas, and the feature gate StaticCapacity is off",
				Fix: s.set("settings.featureGates.staticCapacity=true")})
		})},
	{code: "NodePoolLimit", about: "limits", severity: Warning, why: "further pods stay pending",
		fix: "kubectl edit nodepool NAME", remedies: []remedy{raiseLimits},
		given: given1(factServed, func(q question) outcome {
			err := limitReached(q, nil)
			return failsIf(err != nil, "its limits are reached: %s", err)
		})},
	// What is left of a limit that is not used up may be less than any flavor of the NodePool needs.
	{code: "NodePoolLimit", about: "limits", severity: Warning, why: "further pods stay pending",
		fix: "kubectl edit nodepool NAME", remedies: []remedy{raiseLimits},
		given: given2(factServed, factUsable, func(q question, usable []*corecloudprovider.InstanceType) outcome {
			if limitReached(q, nil) != nil {
				return inapplicable("they are used up")
			}
			if err := limitReached(q, usable); err != nil {
				return no("its limits are reached: %s", err)
			}
			return yes("its limits leave room")
		})},
	{code: "NodePoolStaticWaits", about: "launches", severity: Warning, why: "it has fewer nodes than spec.replicas",
		fix: "kubectl edit nodepool NAME", remedies: []remedy{freeLaunches},
		given: given3(factServed, factEvents, factTime, func(q question, all []corev1.Event, now time.Time) outcome {
			last, waits := lo.Find(all, func(e corev1.Event) bool {
				return e.Reason == events.ReasonStaticNodePoolWaits && e.InvolvedObject.Name == q.pool.Name &&
					now.Sub(lastSeen(&e)) < repeated
			})
			return failsIf(waits, "%s", last.Message)
		})},
}

// ofAll applies a rule about one NodePool to each. Those of which it says the same are one finding. A limit of 0
// pauses a NodePool on purpose, so nothing is said of one.
func ofAll(one rule, _ int) rule {
	all := rule{code: one.code, about: "NodePools", severity: one.severity, why: one.why}
	all.needs = []need{factNodePools}
	all.decide = func(ctx context.Context, r *reading) outcome {
		pools, _ := factNodePools.in(ctx, r)
		if len(pools.Items) == 0 {
			return inapplicable("there is no NodePool")
		}
		byWhat, names := map[string]Finding{}, map[string][]string{}
		for _, pool := range lo.ToSlicePtr(pools.Items) {
			if sim.Paused(pool) {
				continue
			}
			result := one.apply(ctx, r.ask(question{pool: pool}))
			if result.state == notKnown {
				return result
			}
			for _, f := range result.findings {
				byWhat[f.What], names[f.What] = f, append(names[f.What], pool.Name)
			}
		}
		return found(lo.Map(sortedKeys(byWhat), func(what string, _ int) Finding {
			f, of := byWhat[what], names[what]
			f.What = fmt.Sprintf("NodePool%s %s: %s", lo.Ternary(len(of) > 1, "s", ""), list(of), what)
			f.Fix = strings.ReplaceAll(f.Fix, "NAME", strings.Join(of, " "))
			return f
		})...)
	}
	return all
}

// poolReady is what the controllers have stored about a NodePool. Without a controller nobody has looked at it.
func poolReady(q question, s setup) outcome {
	if invalid := sim.InvalidClaims(q.pool); invalid != "" {
		return found(Finding{What: "it is not ready: " + invalid,
			Fix: "kubectl delete nodepool NAME, and create it again without that"})
	}
	if len(q.pool.Status.Conditions) == 0 && !s.installed() {
		return inapplicable("no controller is installed")
	}
	if cause := notReady(q.pool); cause != "" {
		return no("it is not ready: %s", cause)
	}
	return yes("it is ready")
}

// limitReached says that no further node fits into the limits. The number of nodes of a static NodePool does not
// follow pods.
func limitReached(q question, usable []*corecloudprovider.InstanceType) error {
	if q.pool.Spec.Replicas != nil {
		return nil
	}
	return sim.LimitReached(q.pool, usable)
}

// offer is what a NodePool leaves of the catalog. Without a NodePool it is that of a NodePool without requirements.
type offer struct {
	pool    *karpv1.NodePool
	flavors []*corecloudprovider.InstanceType
}

// readOffers reads the NodePools of the copy. One whose NodeClass does not exist is not ready, which another rule says.
func readOffers(ctx context.Context, r *reading) ([]offer, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := factClassesOrDefaults.in(ctx, r); err != nil {
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
	w, err := factWorld.in(ctx, r)
	if err != nil {
		return nil, err
	}
	return lo.FilterMap(w.pools, func(pool *karpv1.NodePool, _ int) (offer, bool) {
		flavors, err := w.simulation.FlavorsOf(ctx, pool)
		return offer{pool, flavors}, err == nil && sim.Foreign(pool) == ""
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
