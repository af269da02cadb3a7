// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
)

// Constraint is the price of one constraint, or of several of a kind that were dropped together.
type Constraint struct {
	Kind string `json:"kind"`
	// Of is a workload, as namespace and name, or a NodePool; or how many there are.
	Of string `json:"of"`
	// Detail says which of its kind it is.
	Detail string `json:"detail,omitempty"`
	// VNDPerHour is how much less the plan costs without it; negative where it costs more.
	VNDPerHour  float64 `json:"vndPerHour"`
	VNDPerMonth float64 `json:"vndPerMonth"`
	// Placed is how many more pods have a place without it.
	Placed int `json:"placed,omitempty"`
}

// Explanation is what each constraint of a plan costs.
type Explanation struct {
	*plan.Plan
	// Constraints are those that cost something, the most expensive first.
	Constraints []Constraint `json:"constraints"`
	// Free is how many others were dropped without an effect on the bill, and TimeOver how many were not tried.
	Free     int `json:"free"`
	TimeOver int `json:"timeOver,omitempty"`
}

// Compute plans, and then plans again without all constraints of a kind. The kinds that cost something are split into halves, again and again, so that
// the constraints that cost nothing are dropped together. OnStep is called with the number of plans.
//
//nolint:gocyclo // one loop over kinds and halves
func Compute(ctx context.Context, s *connect.Session, o input.Options, limit time.Duration, onStep func(plans int)) (*Explanation, error) {
	deadline := time.Now().Add(limit)
	base, err := plan.ComputeBase(ctx, s, o)
	if err != nil {
		return nil, err
	}
	result := &Explanation{Plan: base.Plan, Constraints: []Constraint{}}
	var ratios []float64
	for _, pool := range memory.Of[*karpv1.NodePool](base.Objects) {
		instanceTypes, err := base.Simulation.FlavorsOf(ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, it := range instanceTypes {
			ratios = append(ratios, it.Capacity.Memory().AsApproximateFloat64()/(1<<30)/max(it.Capacity.Cpu().AsApproximateFloat64(), 1))
		}
	}
	rates := lo.MinBy(lo.Values(base.Cloud.Settings.Load().Prices.Categories), func(a, b pricing.ComputeRates) bool { return a.CPU < b.CPU })
	kinds := lo.Values(lo.GroupBy(constraintsOf(base.Objects, ratios, rates), func(c constraint) string { return c.kind }))
	slices.SortFunc(kinds, func(a, b []constraint) int { return cmp.Compare(a[0].kind, b[0].kind) })
	plans := 0
	// price plans without constraints, and returns those groups that cost something.
	price := func(groups ...[]constraint) (dear []priced, err error) {
		for _, group := range groups {
			if time.Now().After(deadline) {
				result.TimeOver += len(group)
				continue
			}
			without, _, err := plan.FromEmpty(ctx, base.Cloud, dropped(base.Objects, group))
			if err != nil {
				return nil, err
			}
			plans++
			onStep(plans)
			// That a plan costs more without a constraint is no price: core found a better one with it.
			saved, placed := base.VNDPerHour-without.VNDPerHour, len(base.Unplaced)-len(without.Unplaced)
			if placed <= 0 && saved < leastPrice*base.VNDPerHour {
				result.Free += len(group)
				continue
			}
			dear = append(dear, priced{group, saved, max(placed, 0)})
		}
		return dear, nil
	}
	left, err := price(kinds...)
	if err != nil {
		return nil, err
	}
	for len(left) > 0 {
		slices.SortStableFunc(left, func(a, b priced) int { return cmp.Or(cmp.Compare(b.placed, a.placed), cmp.Compare(b.saved, a.saved)) })
		dearest := left[0]
		left = left[1:]
		if half := len(dearest.group) / 2; half > 0 && time.Now().Before(deadline) {
			free, over := result.Free, result.TimeOver
			halves, err := price(dearest.group[:half], dearest.group[half:])
			if err != nil {
				return nil, err
			}
			if len(halves) > 0 {
				left = append(left, halves...)
				continue
			}
			result.Free, result.TimeOver = free, over
		}
		result.Constraints = append(result.Constraints, dearest.constraint())
	}
	slices.SortFunc(result.Constraints, func(a, b Constraint) int {
		return cmp.Or(cmp.Compare(b.Placed, a.Placed), cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Detail, b.Detail))
	})
	return result, nil
}

// leastPrice is the part of the bill below which a constraint has no effect: less is within what chance makes of two plans.
const leastPrice = 0.01

// priced are constraints of a kind that cost something together.
type priced struct {
	group  []constraint
	saved  float64
	placed int
}

// constraint is what is reported: of several, that they cost so much together.
func (p priced) constraint() Constraint {
	first := p.group[0]
	c := Constraint{Kind: first.kind, Of: first.of, Detail: first.detail, VNDPerHour: p.saved, VNDPerMonth: p.saved * price.HoursPerMonth, Placed: p.placed}
	if len(p.group) > 1 {
		c.Of, c.Detail = fmt.Sprintf("%s and %d more", first.of, len(p.group)-1), "together"
	}
	return c
}
