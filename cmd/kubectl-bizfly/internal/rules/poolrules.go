// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// nodePoolRules are about one NodePool, whatever the pods. NAME in a fix is the NodePool's.
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

// flavorsOfPool are whether there is a flavor for it, which does not need an installation.
var flavorsOfPool = []rule{noFlavorSatisfies, offeringsUnavailable}

// allPoolsRules are what doctor says of all NodePools: what why says of one.
var allPoolsRules = lo.Map(slices.Concat(nodePoolRules, flavorsOfPool), ofAll)

// undemanding is a pod that requests and requires nothing: what is in its way is in the way of each.
var undemanding = &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{
	Operator: corev1.TolerationOpExists}}}}

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
			result := one.apply(ctx, r.ask(question{undemanding, pool}))
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

// factOffered are the flavors that a NodePool without requirements could be launched with.
var factOffered = catalogFact("flavors of the project", func(ctx context.Context,
	cloud *connect.Cloud) ([]*corecloudprovider.InstanceType, error) {
	all, _, err := price.StandardFlavors(ctx, cloud)
	return lo.Filter(all, func(it *corecloudprovider.InstanceType, _ int) bool {
		return len(it.Offerings.Available()) > 0
	}), err
})

var flavorRules = []rule{{
	code: "NoFlavorLeft", about: "flavors", severity: Error, why: "no node can be launched", fix: "kubectl bizfly flavors",
	given: given1(factOffered, func(flavors []*corecloudprovider.InstanceType) outcome {
		if len(flavors) == 0 {
			return no("a NodePool without requirements leaves no flavor that can be launched")
		}
		zones, cheapest, least := map[string]bool{}, "", 0.0
		for _, it := range flavors {
			for _, offering := range it.Offerings.Available() {
				zones[offering.Zone()] = true
				if cheapest == "" || offering.Price < least {
					cheapest, least = it.Name, offering.Price
				}
			}
		}
		return positive(Known{Name: "flavors of a NodePool without requirements", Value: fmt.Sprintf(
			"%d in %s, from %s at %s VND per hour", len(flavors), strings.Join(sortedKeys(zones), " and "), cheapest,
			output.VND(least))})
	}),
}}
