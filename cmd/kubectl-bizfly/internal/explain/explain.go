// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain finds out what each constraint of pods and NodePools costs.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/defect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// Constraint is the price of one constraint, or of several of a kind that were dropped together.
type Constraint struct {
	Kind string `json:"kind"`
	// Of is a workload, as namespace and name, or a NodePool; or how many there are.
	Of string `json:"of"`
	// Detail says which of its kind it is.
	Detail string `json:"detail,omitempty"`
	// VNDPerHour is how much less the plan costs without it.
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
	// Free is how many others were dropped without an effect on the bill.
	Free int `json:"free"`
	// TimeOver is true where there was no time to drop all kinds, or to split those that cost something.
	TimeOver bool `json:"timeOver,omitempty"`
}

const (
	// leastPrice is the part of the bill below which a constraint has no effect: less is within what chance makes of two plans.
	leastPrice = 0.01
	// maxPasses is how many times pods are scheduled in search of the constraints: what is not split until then is reported together.
	maxPasses = 40
)

// Compute plans in two stages: without all constraints of a kind, and then without parts of the kinds that cost something. OnPass is called with the
// number of plans. After the limit it drops and splits nothing more, the most expensive kinds having come first.
func Compute(ctx context.Context, s *connect.Session, o input.Options, limit time.Duration,
	onPass func(passes int)) (*Explanation, error) {
	until := time.Now().Add(limit)
	base, err := plan.ComputeBase(ctx, s, o)
	if err != nil {
		return nil, err
	}
	all := constraintsOf(base.Objects)
	p := &pricer{base: base, until: until, onPass: onPass}
	kinds := lo.PartitionBy(all, func(d droppable) string { return d.kind })
	found, err := p.dear(ctx, true, kinds...)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		if p.launched, err = p.plan(ctx, nil, false); err != nil {
			return nil, err
		}
	}
	result := &Explanation{Plan: base.Plan, Constraints: []Constraint{}, Free: len(all) - p.untried}
	for _, kind := range found {
		parts, err := p.split(ctx, kind)
		if err != nil {
			return nil, err
		}
		settled := []priced{kind}
		if (len(parts) > 1 || len(parts[0].set) < len(kind.set)) && !p.timeOver() {
			// What is launched differs by chance more than what is left after consolidation: where flavors are small,
			// one constraint among 300 would seem to cost a sixth of the bill.
			confirmed, err := p.dear(ctx, true, lo.Map(parts, func(part priced, _ int) []droppable { return part.set })...)
			if err != nil {
				return nil, err
			}
			settled = lo.Ternary(len(confirmed) > 0 && !p.over, confirmed, settled)
		}
		for _, part := range settled {
			result.Constraints, result.Free = append(result.Constraints, part.constraint()), result.Free-len(part.set)
		}
	}
	result.TimeOver = p.over
	slices.SortFunc(result.Constraints, func(a, b Constraint) int {
		return cmp.Or(cmp.Compare(b.Placed, a.Placed), cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Detail, b.Detail))
	})
	return result, nil
}

// pricer plans without some constraints.
type pricer struct {
	base *plan.Base
	// launched is what core launches with all of them, once a kind costs something and is split.
	launched *sim.Result
	until    time.Time
	// over is true once something was left undone for want of time, and untried how many constraints were not dropped.
	over    bool
	untried int
	passes  int
	onPass  func(int)
}

// timeOver is asked before something is left undone.
func (p *pricer) timeOver() bool {
	p.over = p.over || time.Now().After(p.until)
	return p.over
}

// priced are constraints of a kind that cost something together.
type priced struct {
	set    []droppable
	saved  float64
	placed int
}

// plan plans without some constraints. Only a settled plan consolidates, which takes most of the time.
func (p *pricer) plan(ctx context.Context, without []droppable, settle bool) (*sim.Result, error) {
	result, _, err := sim.FromEmpty(ctx, p.base.Cloud, dropped(p.base.Objects, without), settle)
	return result, err
}

// dear returns the sets that cost something, the dearest first. That a plan costs more without a constraint is no price:
// core found a better one with it.
func (p *pricer) dear(ctx context.Context, settle bool, sets ...[]droppable) (found []priced, err error) {
	whole := lo.Ternary(settle, p.base.Result, p.launched)
	results, errs := make([]*sim.Result, len(sets)), make([]error, len(sets))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range sets {
		slots <- struct{}{}
		if p.timeOver() {
			p.untried += len(sets[i])
			<-slots
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			defer defect.Recover(&errs[i])
			results[i], errs[i] = p.plan(ctx, sets[i], settle)
			mu.Lock()
			defer mu.Unlock()
			p.passes++
			p.onPass(p.passes)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, result := range results {
		if result == nil {
			continue
		}
		saved, placed := whole.VNDPerHour-result.VNDPerHour, len(whole.Unplaced)-len(result.Unplaced)
		if placed > 0 || saved > leastPrice*whole.VNDPerHour {
			found = append(found, priced{sets[i], saved, max(placed, 0)})
		}
	}
	slices.SortStableFunc(found, func(a, b priced) int { return cmp.Or(cmp.Compare(b.placed, a.placed), cmp.Compare(b.saved, a.saved)) })
	return found, nil
}

// split returns the parts of a set that cost something; the set itself where they do so only together, or where there are no passes left.
func (p *pricer) split(ctx context.Context, whole priced) (parts []priced, err error) {
	half := len(whole.set) / 2
	if half == 0 || p.passes+2 > maxPasses || p.timeOver() {
		return []priced{whole}, nil
	}
	halves, err := p.dear(ctx, false, whole.set[:half], whole.set[half:])
	if err != nil || len(halves) == 0 || p.over {
		return []priced{whole}, err
	}
	for _, part := range halves {
		more, err := p.split(ctx, part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, more...)
	}
	return parts, nil
}

// constraint is what is reported: of several, that they cost so much together.
func (p priced) constraint() Constraint {
	first := p.set[0]
	c := Constraint{Kind: first.kind, Of: first.of, Detail: first.detail, VNDPerHour: p.saved, VNDPerMonth: p.saved * price.HoursPerMonth, Placed: p.placed}
	if len(p.set) > 1 {
		c.Of, c.Detail = fmt.Sprintf("%s and %d more", first.of, len(p.set)-1), "together"
	}
	return c
}
