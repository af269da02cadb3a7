// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
)

// Constraint is the price of one constraint.
type Constraint struct {
	Kind string `json:"kind"`
	// Of is a workload, as namespace and name, or a NodePool.
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
	*Plan
	// Constraints are those that cost something, the most expensive first.
	Constraints []Constraint `json:"constraints"`
	// Free is how many others were dropped without an effect on the bill, and TimeOver how many were not tried.
	Free     int `json:"free"`
	TimeOver int `json:"timeOver,omitempty"`
}

// Explain plans, and then plans again without each constraint. OnStep, which may be nil, is called with how many of all were dropped.
func Explain(ctx context.Context, s *session.Session, o Options, limit time.Duration, onStep func(done, of int)) (*Explanation, error) {
	deadline := time.Now().Add(limit)
	cloud, objects, p, simulation, err := asItIs(ctx, s, o)
	if err != nil {
		return nil, err
	}
	result := &Explanation{Plan: p, Constraints: []Constraint{}}
	var flavors []flavorOf
	for _, pool := range memory.Of[*karpv1.NodePool](objects) {
		instanceTypes, err := simulation.FlavorsOf(ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, it := range instanceTypes {
			flavors = append(flavors, newFlavorOf(it))
		}
	}
	rates := lo.MinBy(lo.Values(cloud.Settings.Load().Prices.Categories), func(a, b pricing.ComputeRates) bool { return a.CPU < b.CPU })
	constraints := constraintsOf(objects, ratios(flavors), rates)
	var mu sync.Mutex
	done := 0
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	for _, c := range constraints {
		group.Go(func() error {
			if time.Now().After(deadline) {
				mu.Lock()
				defer mu.Unlock()
				result.TimeOver++
				return nil
			}
			without, _, err := settle(groupCtx, cloud, c.dropped())
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			result.add(c, without)
			if done++; onStep != nil {
				onStep(done, len(constraints))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(result.Constraints, func(a, b Constraint) int {
		return cmp.Or(cmp.Compare(b.Placed, a.Placed), cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Detail, b.Detail))
	})
	return result, nil
}

// leastPrice is the part of the bill below which a constraint has no effect: less is within what chance makes of two plans.
const leastPrice = 0.01

// add adds the price of a constraint. Differences within what chance makes of a plan are none, and neither is that a plan costs more without
// a constraint: core found a better one with it.
func (e *Explanation) add(c constraint, without *Plan) {
	saved, placed := e.VNDPerHour-without.VNDPerHour, len(e.Unplaced)-len(without.Unplaced)
	if placed <= 0 && saved < leastPrice*e.VNDPerHour {
		e.Free++
		return
	}
	e.Constraints = append(e.Constraints, Constraint{
		Kind: c.kind, Of: c.of, Detail: c.detail, VNDPerHour: saved, VNDPerMonth: saved * HoursPerMonth, Placed: max(placed, 0),
	})
}
