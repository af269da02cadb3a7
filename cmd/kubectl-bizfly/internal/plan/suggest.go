// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
)

// Candidate is the settled bill with one shape of the NodePool.
type Candidate struct {
	// Name describes the shape.
	Name  string `json:"name"`
	Shape Shape  `json:"shape"`
	Nodes int    `json:"nodes"`
	// Unplaced is how many pods fit nowhere.
	Unplaced    int     `json:"unplaced,omitempty"`
	VNDPerHour  float64 `json:"vndPerHour"`
	VNDPerMonth float64 `json:"vndPerMonth"`

	pools []*karpv1.NodePool
	// settled is true with consolidation.
	settled bool
}

// Suggestion is the cheapest shape that was found for some pods.
type Suggestion struct {
	Pods int `json:"pods"`
	// NodePool is the one whose shape was searched: that of the largest part of the bill.
	NodePool string `json:"nodePool"`
	// Now is the bill with the NodePools as they are.
	Now Candidate `json:"now"`
	// Candidates are other shapes, the cheapest first.
	Candidates []Candidate `json:"candidates"`
	// Tried is how many shapes were planned, of which the candidates are settled; TimeOver is true where there was no time for others.
	Tried int `json:"tried"`
	// Sample is how many of many pods the shapes were searched with; 0 is all. The candidates are planned with all.
	Sample   int  `json:"sample,omitempty"`
	TimeOver bool `json:"timeOver,omitempty"`
	// BoundVNDPerMonth is a price that no set of nodes is below, and PackingVNDPerMonth that of the cheapest set that a search without a
	// scheduler found. Both are 0 where pods run only with another NodePool.
	BoundVNDPerMonth   float64 `json:"boundVndPerMonth"`
	PackingVNDPerMonth float64 `json:"packingVndPerMonth"`
	// NodePools are those of the suggested shape; none where no shape is cheaper than what there is.
	NodePools []NodePoolManifest `json:"nodePools,omitempty"`
	Catalog   *Catalog           `json:"catalog,omitempty"`
	Assumed   []string           `json:"assumed,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
}

const (
	// maxSettled is how many shapes are settled, and maxConfirmed how many are planned once more.
	maxSettled, maxConfirmed = 12, 3
	// maxPods is how many pods shapes are searched with where the options do not say.
	maxPods = 400
)

// LeastSaving is the part of the bill that a suggestion must save: pods settle at a bill that differs by as much from a plan, since the kube-scheduler
// does not fill nodes in core's order.
const LeastSaving = 0.03

// Suggest searches the shape of the NodePool that costs most for the cheapest settled bill. OnStep, which may be nil, is called with the number
// of plans and the lowest price per month so far.
func Suggest(ctx context.Context, s *session.Session, o Options, limit time.Duration, onStep func(plans int, vndPerMonth float64)) (*Suggestion, error) {
	cloud, objects, now, simulation, err := asItIs(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if len(now.Nodes) == 0 {
		return nil, fmt.Errorf("there is nothing to suggest a NodePool for: the plan has no node (%d pods, %d of them without a place)", now.Pods, len(now.Unplaced))
	}
	search, err := newSearch(ctx, cloud, objects, now, simulation)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	search.deadline, search.onStep = began.Add(limit), onStep
	result := &Suggestion{Pods: now.Pods, NodePool: search.pool.Name, Now: search.now, Assumed: now.Assumed, Catalog: now.Catalog}
	if most := cmp.Or(o.MaxPods, maxPods); now.Pods > most {
		search.objects, result.Sample = sample(objects, most), most
		search.deadline = began.Add(limit / 2) // the other half is for plans with all pods
	}
	var packed []string
	if result.BoundVNDPerMonth, result.PackingVNDPerMonth, packed, err = simulation.ideal(ctx, search.open, limit/2); err != nil {
		return nil, err
	}
	result.Notes = simulation.Notes
	if err := search.descend(ctx, Shape{}, Shape{MaxCPU: search.largest()}, search.around(packed)); err != nil {
		return nil, err
	}
	result.Tried = len(search.known)
	if err := search.settle(ctx, maxSettled); err != nil {
		return nil, err
	}
	search.objects, search.deadline = objects, began.Add(limit)
	if err := search.confirm(ctx, result.Sample > 0); err != nil {
		return nil, err
	}
	result.Candidates = lo.Filter(search.ranked(), func(c Candidate, _ int) bool { return c.settled })
	result.TimeOver = search.timeOver.Load()
	if best, ok := lo.First(result.Candidates); ok && search.saves(best) {
		result.NodePools = manifestsOf(best.pools)
	}
	return result, nil
}

// search is one search of shapes.
type search struct {
	cloud   *session.Cloud
	objects memory.Objects
	// pool is searched, open is the same without limits of size.
	pool, open *karpv1.NodePool
	flavors    []flavorOf
	// instanceTypes are those of the NodePool as it is.
	instanceTypes []*corecloudprovider.InstanceType
	now           Candidate
	deadline      time.Time
	timeOver      atomic.Bool
	onStep        func(plans int, vndPerMonth float64)

	mu      sync.Mutex
	known   map[string]Candidate
	planned int
}

// newSearch takes the NodePool that costs most.
func newSearch(ctx context.Context, cloud *session.Cloud, objects memory.Objects, now *Plan, simulation *Simulation) (*search, error) {
	costs := map[string]float64{}
	for _, node := range now.Nodes {
		costs[node.NodePool] += node.VNDPerHour
	}
	name := lo.MaxBy(lo.Keys(costs), func(a, b string) bool { return cmp.Or(cmp.Compare(costs[a], costs[b]), cmp.Compare(b, a)) > 0 })
	pool, _ := lo.Find(memory.Of[*karpv1.NodePool](objects), func(pool *karpv1.NodePool) bool { return pool.Name == name })
	s := &search{cloud: cloud, objects: objects, pool: pool, open: unlimited(pool), known: map[string]Candidate{}}
	s.now = newCandidate("as it is", Shape{}, now)
	var err error
	if s.instanceTypes, err = simulation.FlavorsOf(ctx, pool); err != nil {
		return nil, err
	}
	all, err := simulation.FlavorsOf(ctx, s.open)
	s.flavors = lo.Map(all, func(it *corecloudprovider.InstanceType, _ int) flavorOf { return newFlavorOf(it) })
	return s, err
}

func newCandidate(name string, shape Shape, p *Plan) Candidate {
	return Candidate{Name: name, Shape: shape, Nodes: len(p.Nodes), Unplaced: len(p.Unplaced), VNDPerHour: p.VNDPerHour, VNDPerMonth: p.VNDPerMonth}
}

// compare orders by pods without a place, price, and how little is narrowed.
func compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Unplaced, b.Unplaced), cmp.Compare(a.VNDPerHour, b.VNDPerHour), cmp.Compare(a.Shape.narrowed(), b.Shape.narrowed()),
		cmp.Compare(a.Name, b.Name))
}

// saves reports whether a candidate is worth a change.
func (s *search) saves(c Candidate) bool {
	return c.Unplaced < s.now.Unplaced || c.Unplaced == s.now.Unplaced && c.VNDPerHour < (1-LeastSaving)*s.now.VNDPerHour
}

// descend starts from some shapes, and varies one value of the best one after the other until no change makes it cheaper.
func (s *search) descend(ctx context.Context, starts ...Shape) error {
	for _, start := range starts {
		if err := s.evaluate(ctx, start); err != nil {
			return err
		}
		best := s.at(start)
		for improved := true; improved; {
			improved = false
			for _, vary := range []func(Shape) []Shape{s.sizes, s.ratios, s.categories, s.smallest} {
				shapes := vary(best.Shape)
				if err := s.evaluate(ctx, shapes...); err != nil {
					return err
				}
				for _, shape := range shapes {
					if c := s.at(shape); c.pools != nil && compare(c, best) < 0 {
						best, improved = c, true
					}
				}
			}
		}
	}
	return nil
}

// largest is the largest size that the NodePool has now.
func (s *search) largest() int {
	return lo.Max(lo.Map(s.instanceTypes, func(it *corecloudprovider.InstanceType, _ int) int { return newFlavorOf(it).cpu }))
}

// around is the shape of some flavors.
func (s *search) around(names []string) Shape {
	chosen := lo.Filter(s.flavors, func(f flavorOf, _ int) bool { return slices.Contains(names, f.name) })
	sizes := cpus(chosen)
	return Shape{MinCPU: lo.FirstOrEmpty(sizes), MaxCPU: lo.LastOrEmpty(sizes), MemoryPerCPU: ratios(chosen)}
}

func (s *search) sizes(of Shape) []Shape {
	return lo.Map(append([]int{0}, cpus(s.flavors)...), func(cpu int, _ int) Shape {
		of.MaxCPU = cpu
		return of
	})
}

func (s *search) smallest(of Shape) []Shape {
	return lo.FilterMap(append([]int{0}, cpus(s.flavors)...), func(cpu int, _ int) (Shape, bool) {
		of.MinCPU = cpu
		return of, of.MaxCPU == 0 || cpu <= of.MaxCPU
	})
}

func (s *search) categories(of Shape) []Shape {
	if len(categories(s.flavors)) < 2 {
		return nil
	}
	return lo.Map(append([]string{""}, categories(s.flavors)...), func(category string, _ int) Shape {
		of.Category = category
		return of
	})
}

// ratios are none, each, and each two neighbours.
func (s *search) ratios(of Shape) []Shape {
	all := ratios(s.flavors)
	if len(all) < 2 {
		return nil
	}
	choices := [][]float64{nil}
	for i := range all {
		choices = append(choices, all[i:i+1])
		if i > 0 && len(all) > 2 {
			choices = append(choices, all[i-1:i+1])
		}
	}
	return lo.Map(choices, func(chosen []float64, _ int) Shape {
		of.MemoryPerCPU = chosen
		return of
	})
}

// key is what shapes are known by: the flavors of which they are. Whether there is a second NodePool depends on the pods.
func (s *search) key(shape Shape) string {
	return strings.Join(lo.FilterMap(s.flavors, func(f flavorOf, _ int) (string, bool) { return f.name, shape.matches(f) }), " ")
}

// at returns what is known of a shape.
func (s *search) at(shape Shape) Candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[s.key(shape)]
}

// each does work for each of some candidates, some at a time, until the time is over.
func (s *search) each(ctx context.Context, candidates []Candidate, work func(ctx context.Context, c Candidate) error) error {
	bounded, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	group, groupCtx := errgroup.WithContext(bounded)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	for _, c := range candidates {
		group.Go(func() error {
			var err error
			if bounded.Err() == nil {
				err = work(groupCtx, c)
			}
			if bounded.Err() == nil {
				return err
			}
			s.timeOver.Store(true)
			return ctx.Err()
		})
	}
	return group.Wait()
}

// evaluate plans with each shape that is not known yet, without consolidation, which takes most of the time.
func (s *search) evaluate(ctx context.Context, shapes ...Shape) error {
	unknown := lo.FilterMap(lo.UniqBy(shapes, s.key), func(shape Shape, _ int) (Candidate, bool) {
		return Candidate{Shape: shape}, s.key(shape) != "" && s.at(shape).pools == nil
	})
	return s.each(ctx, unknown, func(ctx context.Context, c Candidate) error { return s.price(ctx, c.Shape, false) })
}

// settle plans once more with the shapes that are the cheapest so far, and with consolidation. It forgets the others, unless the time was over
// before the first of them.
func (s *search) settle(ctx context.Context, count int) error {
	chosen := lo.Slice(s.ranked(), 0, count)
	for key, c := range s.known {
		c.settled = false
		s.known[key] = c
	}
	err := s.each(ctx, chosen, func(ctx context.Context, c Candidate) error { return s.price(ctx, c.Shape, true) })
	if settled := lo.PickBy(s.known, func(_ string, c Candidate) bool { return c.settled }); len(settled) > 0 {
		s.known = settled
	}
	return err
}

// confirm plans once more with the cheapest shapes, and takes the more expensive of both: the cheapest of many plans is the luckiest one, too.
// After a search with a sample the plans with all pods are all that count.
func (s *search) confirm(ctx context.Context, sampled bool) error {
	if sampled {
		return s.settle(ctx, maxConfirmed)
	}
	return s.each(ctx, lo.Slice(s.ranked(), 0, maxConfirmed), func(ctx context.Context, c Candidate) error { return s.price(ctx, c.Shape, true) })
}

// price plans with one shape, and with a second NodePool for larger pods where the shape leaves pods without a place.
func (s *search) price(ctx context.Context, shape Shape, settled bool) error {
	pools := shape.apply(s.pool, s.flavors)
	simulation, err := NewSimulation(ctx, s.cloud, s.objects.With(lo.Map(pools, func(pool *karpv1.NodePool, _ int) client.Object { return pool })...))
	if err != nil {
		return err
	}
	if err := simulation.Empty(ctx); err != nil {
		return err
	}
	plan := simulation.Run
	if settled {
		plan = simulation.settled
	}
	p, err := plan(ctx)
	if err != nil {
		return fmt.Errorf("planning with a NodePool of %s: %w", shape, err)
	}
	if len(p.Unplaced) > s.now.Unplaced && !shape.Fallback {
		shape.Fallback = true
		return s.price(ctx, shape, settled)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c := newCandidate(shape.String(), shape, p)
	c.pools, c.settled = pools, settled
	s.add(c)
	return nil
}

// add remembers a candidate. Of two that were settled, the more expensive one counts.
func (s *search) add(c Candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.known[s.key(c.Shape)]; before.settled && compare(before, c) > 0 {
		c = before
	}
	s.known[s.key(c.Shape)] = c
	s.planned++
	if s.onStep != nil {
		s.onStep(s.planned, lo.MinBy(lo.Values(s.known), func(a, b Candidate) bool { return compare(a, b) < 0 }).VNDPerMonth)
	}
}

// ranked are all shapes that were planned, the cheapest first.
func (s *search) ranked() []Candidate {
	return slices.SortedFunc(slices.Values(lo.Values(s.known)), compare)
}

// sample is objects with some of their pods, evenly from all workloads.
func sample(objects memory.Objects, count int) memory.Objects {
	pods := lo.Filter(memory.Of[*corev1.Pod](objects), func(pod *corev1.Pod, _ int) bool { return Counts(pod) })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(workloadOf(a), workloadOf(b)), cmp.Compare(a.Name, b.Name))
	})
	kept := map[client.Object]bool{}
	for i := range count {
		kept[pods[i*len(pods)/count]] = true
	}
	return lo.Filter(objects, func(object client.Object, _ int) bool {
		pod, ok := object.(*corev1.Pod)
		return !ok || !Counts(pod) || kept[object]
	})
}
