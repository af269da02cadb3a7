// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suggest looks for a NodePool whose nodes would cost less.
package suggest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/object"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Options say what to plan.
type Options struct {
	input.Options
	// MaxPods is how many pods shapes are searched with; 0 is 400.
	MaxPods int
}

// Shape is which flavors a NodePool has. Zero values narrow nothing.
type Shape struct {
	// MaxCPU is the largest size, in vCPUs, and Category one of those that the NodePool allows.
	MaxCPU   int    `json:"maxCpu,omitempty"`
	Category string `json:"category,omitempty"`
}

// String describes it in a line.
func (s Shape) String() string {
	text := "any size"
	if s.MaxCPU > 0 {
		text = fmt.Sprintf("up to %d vCPU", s.MaxCPU)
	}
	return text + lo.Ternary(s.Category != "", ", "+s.Category, "")
}

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

	pool *karpv1.NodePool
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
	// Suggested is the NodePool of the first candidate, where it is better than what there is.
	Suggested *NodePoolManifest `json:"suggested,omitempty"`
	Catalog   *connect.Catalog  `json:"catalog,omitempty"`
	Assumed   []string          `json:"assumed,omitempty"`
	Notes     []string          `json:"notes,omitempty"`
}

// NodePoolManifest is a NodePool without what an API server adds.
type NodePoolManifest struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Metadata   map[string]string   `json:"metadata"`
	Spec       karpv1.NodePoolSpec `json:"spec"`
}

const (
	// maxSettled is how many shapes are settled, which takes most of the time.
	maxSettled = 5
	// maxPods is how many pods shapes are searched with where the options do not say.
	maxPods = 400
	// LeastSaving is the part of the bill that a suggestion must save: pods settle at a bill that differs by as much from a plan, since the
	// kube-scheduler does not fill nodes in core's order.
	LeastSaving = 0.03
)

// Compute plans the NodePool that costs most with each size and category, and settles the best few. OnStep is called with the number of plans.
func Compute(ctx context.Context, s *connect.Session, o Options, limit time.Duration, onStep func(plans int)) (*Suggestion, error) {
	began := time.Now()
	now, err := plan.ComputeBase(ctx, s, o.Options)
	if err != nil {
		return nil, err
	}
	if len(now.Nodes) == 0 {
		return nil, fmt.Errorf("there is nothing to suggest a NodePool for: the plan has no node (%d pods, %d of them without a place)", now.Pods, len(now.Unplaced))
	}
	costs := map[string]float64{}
	for _, node := range now.Nodes {
		costs[node.NodePool] += node.VNDPerHour
	}
	name := lo.MaxBy(lo.Keys(costs), func(a, b string) bool { return cmp.Or(cmp.Compare(costs[a], costs[b]), cmp.Compare(b, a)) > 0 })
	pool, _ := lo.Find(memory.Of[*karpv1.NodePool](now.Objects), func(pool *karpv1.NodePool) bool { return pool.Name == name })
	result := &Suggestion{
		Pods: now.Pods, NodePool: name, Now: newCandidate("as it is", Shape{}, now.Result), Assumed: now.Assumed, Catalog: now.Catalog, Notes: now.Notes,
	}
	flavors, err := now.Simulation.FlavorsOf(ctx, withoutSize(pool))
	if err != nil {
		return nil, err
	}
	searched := now.Objects
	if most := cmp.Or(o.MaxPods, maxPods); now.Pods > most {
		searched, result.Sample = sample(now.Objects, most), most
	}
	steps := 0
	// tried plans with shapes until the time is over.
	tried := func(of memory.Objects, shapes []Shape, settled bool) ([]Candidate, error) {
		var found []Candidate
		for _, shape := range shapes {
			if time.Since(began) > limit {
				result.TimeOver = true
				break
			}
			c, err := tryShape(ctx, now.Cloud, of, pool, shape, settled)
			if err != nil {
				return nil, fmt.Errorf("planning with a NodePool of %s: %w", shape, err)
			}
			found = append(found, c)
			steps++
			onStep(steps)
		}
		slices.SortFunc(found, compare)
		return found, nil
	}
	planned, err := tried(searched, shapesOf(flavors), false)
	if err != nil {
		return nil, err
	}
	result.Tried = len(planned)
	best := lo.Map(lo.Slice(planned, 0, maxSettled), func(c Candidate, _ int) Shape { return c.Shape })
	if result.Candidates, err = tried(now.Objects, best, true); err != nil {
		return nil, err
	}
	if c, ok := lo.First(result.Candidates); ok && (c.Unplaced < result.Now.Unplaced ||
		c.Unplaced == result.Now.Unplaced && c.VNDPerHour < (1-LeastSaving)*result.Now.VNDPerHour) {
		result.Suggested = manifestOf(c.pool)
	}
	return result, nil
}

// shapesOf are all sizes and categories of flavors. Of two that have the same flavors, the simpler one counts.
func shapesOf(flavors []*corecloudprovider.InstanceType) []Shape {
	sizes := lo.Uniq(lo.Map(flavors, func(it *corecloudprovider.InstanceType, _ int) int { return cpuOf(it) }))
	categories := lo.Uniq(lo.Map(flavors, func(it *corecloudprovider.InstanceType, _ int) string {
		return it.Requirements.Get(v1alpha1.LabelInstanceCategory).Any()
	}))
	slices.Sort(sizes)
	slices.Sort(categories)
	shapes := lo.CrossJoinBy2(append([]string{""}, categories...), append([]int{0}, sizes...), func(category string, size int) Shape {
		return Shape{MaxCPU: size, Category: category}
	})
	key := func(shape Shape) string {
		return strings.Join(lo.FilterMap(flavors, func(it *corecloudprovider.InstanceType, _ int) (string, bool) {
			return it.Name, (shape.MaxCPU == 0 || cpuOf(it) <= shape.MaxCPU) &&
				(shape.Category == "" || it.Requirements.Get(v1alpha1.LabelInstanceCategory).Has(shape.Category))
		}), " ")
	}
	return lo.Filter(lo.UniqBy(shapes, key), func(shape Shape, _ int) bool { return key(shape) != "" })
}

func cpuOf(it *corecloudprovider.InstanceType) int {
	size, _ := strconv.Atoi(it.Requirements.Get(v1alpha1.LabelInstanceCPU).Any())
	return size
}

// tryShape plans with one shape of a NodePool.
func tryShape(ctx context.Context, cloud *connect.Cloud, objects memory.Objects, pool *karpv1.NodePool, shape Shape,
	settled bool) (Candidate, error) {
	shaped := shape.apply(pool)
	p, _, err := sim.FromEmpty(ctx, cloud, objects.With(shaped), settled)
	if err != nil {
		return Candidate{}, err
	}
	c := newCandidate(shape.String(), shape, p)
	c.pool = shaped
	return c, nil
}

func newCandidate(name string, shape Shape, p *sim.Result) Candidate {
	return Candidate{Name: name, Shape: shape, Nodes: len(p.Nodes), Unplaced: len(p.Unplaced), VNDPerHour: p.VNDPerHour, VNDPerMonth: p.VNDPerMonth}
}

// compare orders by pods without a place, price, and how little is narrowed.
func compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Unplaced, b.Unplaced), cmp.Compare(a.VNDPerHour, b.VNDPerHour), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
}

// withoutSize is a NodePool without upper limits of the size of a node. Those from below stay: smaller nodes may not join.
func withoutSize(pool *karpv1.NodePool) *karpv1.NodePool {
	return without(pool, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
		return (r.Key == v1alpha1.LabelInstanceCPU || r.Key == v1alpha1.LabelInstanceMemory) && r.Operator != corev1.NodeSelectorOpGt &&
			r.Operator != karpv1.NodeSelectorOpGte
	})
}

func without(pool *karpv1.NodePool, drop func(karpv1.NodeSelectorRequirementWithMinValues) bool) *karpv1.NodePool {
	pool = pool.DeepCopy()
	pool.Spec.Template.Spec.Requirements = lo.Reject(pool.Spec.Template.Spec.Requirements,
		func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool { return drop(r) })
	return pool
}

// apply gives a NodePool the shape.
func (s Shape) apply(pool *karpv1.NodePool) *karpv1.NodePool {
	shaped := withoutSize(pool)
	require := func(key string, operator corev1.NodeSelectorOperator, value string) {
		shaped.Spec.Template.Spec.Requirements = append(shaped.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: []string{value}})
	}
	if s.Category != "" {
		shaped = without(shaped, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
			return r.Key == v1alpha1.LabelInstanceCategory && r.Operator == corev1.NodeSelectorOpIn
		})
		require(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, s.Category)
	}
	if s.MaxCPU > 0 {
		require(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpLte, strconv.Itoa(s.MaxCPU))
	}
	return shaped
}

func manifestOf(pool *karpv1.NodePool) *NodePoolManifest {
	kind := object.GVK(pool)
	return &NodePoolManifest{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Metadata: map[string]string{"name": pool.Name}, Spec: pool.Spec,
	}
}

// sample is objects with some of their pods, evenly from all workloads.
func sample(objects memory.Objects, count int) memory.Objects {
	planned := func(pod *corev1.Pod, _ int) bool { return input.Counts(pod) && !input.Gated(pod) }
	pods := lo.Filter(memory.Of[*corev1.Pod](objects), planned)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(input.WorkloadOf(a), input.WorkloadOf(b)), cmp.Compare(a.Name, b.Name))
	})
	kept := map[client.Object]bool{}
	for i := range count {
		kept[pods[i*len(pods)/count]] = true
	}
	return lo.Filter(objects, func(object client.Object, _ int) bool {
		pod, ok := object.(*corev1.Pod)
		return !ok || !planned(pod, 0) || kept[object]
	})
}
