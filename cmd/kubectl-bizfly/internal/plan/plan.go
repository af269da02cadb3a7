// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan computes what Karpenter would run, and reports nodes, prices and pods that fit nowhere.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Plan is what Karpenter would run.
type Plan struct {
	// Name says which alternative it is; empty where there is one.
	Name string `json:"name,omitempty"`
	*sim.Result
	Today *Today `json:"today,omitempty"`
	// Catalog is what was planned with; nil is BizFly Cloud's own.
	Catalog *connect.Catalog `json:"catalog,omitempty"`
	// Assumed names the objects that the manifests do not have, and that are those of the default sample.
	Assumed []string `json:"assumed,omitempty"`
}

// Today is what runs now.
type Today struct {
	// Nodes is how many nodes there are, Karpenter's and those of worker pools, and NodeClaims without a node yet.
	Nodes int `json:"nodes"`
	// VNDPerHour is what those cost whose price is known; Unpriced is how many are left out.
	VNDPerHour  float64 `json:"vndPerHour"`
	VNDPerMonth float64 `json:"vndPerMonth"`
	Unpriced    int     `json:"unpriced"`
	// Waiting is how many of the planned pods run on none of them yet, and Added what nodes for these would cost beside them, so that both
	// sums are of the same pods. They are not where some are Unplaced: no node may be added for these, as where a limit is used up.
	Waiting         int     `json:"waiting,omitempty"`
	Unplaced        int     `json:"unplaced,omitempty"`
	AddedNodes      int     `json:"addedNodes,omitempty"`
	AddedVNDPerHour float64 `json:"addedVndPerHour,omitempty"`
	// Staying is how many of the nodes are of the control plane or run pods that may not run on Karpenter's, such as its
	// controller, and what these cost beside the plan.
	Staying           int     `json:"staying,omitempty"`
	StayingVNDPerHour float64 `json:"stayingVndPerHour,omitempty"`
	rows              []top.Node
}

// keep counts the nodes that stay, as for pods that a plan does not have.
func (t *Today) keep(elsewhere []sim.Unplaced) {
	others := lo.SliceToMap(elsewhere, func(u sim.Unplaced) (string, bool) { return u.Namespace + "/" + u.Name, true })
	staying := lo.Filter(t.rows, func(row top.Node, _ int) bool {
		return lo.HasKey(lo.FromPtr(row.Object).Labels, "node-role.kubernetes.io/control-plane") ||
			lo.ContainsBy(row.Running, func(pod *corev1.Pod) bool { return others[pod.Namespace+"/"+pod.Name] })
	})
	t.Staying, t.StayingVNDPerHour = len(staying), lo.SumBy(staying, func(row top.Node) float64 { return row.VNDPerHour })
}

// Group is nodes of one NodePool, flavor and zone.
type Group struct {
	NodePool, Flavor, Zone string
	Count                  int
	VNDPerHour             float64
	// Used is the mean of its nodes.
	Used map[corev1.ResourceName]float64
	// LimitedBy is what limits most of its nodes.
	LimitedBy corev1.ResourceName
}

// Groups sums the nodes up, the most expensive group first.
func (p *Plan) Groups() []Group {
	groups := lo.MapToSlice(lo.GroupBy(p.Nodes, func(n sim.Node) [3]string { return [3]string{n.NodePool, n.Flavor, n.Zone} }),
		func(key [3]string, nodes []sim.Node) Group {
			group := Group{NodePool: key[0], Flavor: key[1], Zone: key[2], Count: len(nodes), Used: map[corev1.ResourceName]float64{}}
			limits := map[corev1.ResourceName]int{}
			for _, node := range nodes {
				group.VNDPerHour += node.VNDPerHour
				limits[node.LimitedBy]++
				for name, used := range node.Used {
					group.Used[name] += used / float64(len(nodes))
				}
			}
			group.LimitedBy = lo.MaxBy(lo.Keys(limits), func(a, b corev1.ResourceName) bool {
				return cmp.Or(cmp.Compare(limits[a], limits[b]), cmp.Compare(b, a)) > 0
			})
			return group
		})
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.NodePool, b.NodePool))
	})
	return groups
}

// Used is the mean part of a resource that is requested, weighted by nothing: nodes count alike.
func (p *Plan) Used(name corev1.ResourceName) float64 {
	if len(p.Nodes) == 0 {
		return 0
	}
	return lo.SumBy(p.Nodes, func(n sim.Node) float64 { return n.Used[name] }) / float64(len(p.Nodes))
}

// Options say what to plan.
type Options struct {
	input.Options
	// Alternatives are files of NodePools and NodeClasses, each planned in place of the others.
	Alternatives []string
	// OnStart is called when scheduling begins, with the number of pods; it may be nil.
	OnStart func(pods int)
}

// Base is a plan from empty, with what it was made of.
type Base struct {
	*Plan
	Cloud   *connect.Cloud
	Objects memory.Objects
	// Simulation is the one in which the planned nodes run.
	Simulation *sim.Simulation
}

// Compute plans, once for each alternative.
func Compute(ctx context.Context, s *connect.Session, o Options) ([]*Plan, error) {
	base, cloud, err := read(ctx, s, o.Options)
	if err != nil {
		return nil, err
	}
	price.NotePeriod(s, cloud)
	if len(o.Alternatives) == 0 {
		p, err := compute(ctx, s, cloud, base, o)
		if err != nil {
			return nil, err
		}
		return []*Plan{p.Plan}, nil
	}
	var plans []*Plan
	for _, file := range o.Alternatives {
		compared, err := alternative(s, file)
		if err != nil {
			return nil, err
		}
		p, err := compute(ctx, s, cloud, replaced(base, compared), o)
		if err != nil {
			return nil, fmt.Errorf("planning %s: %w", file, err)
		}
		noteUnused(s, file, compared, p.Objects)
		p.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		plans = append(plans, p.Plan)
	}
	return plans, nil
}

// ComputeBase plans before anything is varied.
func ComputeBase(ctx context.Context, s *connect.Session, o input.Options) (*Base, error) {
	objects, cloud, err := read(ctx, s, o)
	if err != nil {
		return nil, err
	}
	return compute(ctx, s, cloud, objects, Options{Options: o})
}

func read(ctx context.Context, s *connect.Session, o input.Options) (memory.Objects, *connect.Cloud, error) {
	objects, err := input.Objects(ctx, s, o)
	if err != nil {
		return nil, nil, err
	}
	cloud, err := s.Cloud(ctx)
	return objects, cloud, err
}

// compute plans with the default sample where there is no cluster whose NodePools count.
func compute(ctx context.Context, s *connect.Session, cloud *connect.Cloud, objects memory.Objects,
	o Options) (base *Base, err error) {
	p := &Plan{}
	if s.Cluster == nil {
		objects, p.Assumed = input.WithSamples(objects)
	}
	simulation, err := sim.New(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	if s.Cluster != nil && len(o.Files) == 0 && !o.Pending {
		if p.Today, err = measure(ctx, cloud, simulation, objects); err != nil {
			s.Note("today's cost is not known: %s", err)
		}
	}
	prepare, run := simulation.Empty, simulation.Settle
	if o.Pending {
		prepare, run = simulation.Observe, simulation.Run
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	waiting := simulation.Waiting()
	if o.OnStart != nil {
		o.OnStart(len(waiting))
	}
	if p.Result, err = run(ctx); err != nil {
		return nil, err
	}
	if p.Today != nil {
		p.Today.keep(p.Elsewhere)
	}
	p.Notes = append(p.Notes, noteRequests(waiting)...)
	p.Catalog = cloud.EmbeddedCatalog()
	return &Base{p, cloud, objects, simulation}, nil
}

// noteRequests says of which pods it is not known what they need: a node gets as many as may run on it.
func noteRequests(pods []*corev1.Pod) []string {
	without := lo.Filter(pods, func(pod *corev1.Pod, _ int) bool {
		requests := resources.RequestsForPods(pod)
		return requests.Cpu().IsZero() || requests.Memory().IsZero()
	})
	if len(without) == 0 {
		return nil
	}
	workloads := lo.Uniq(lo.Map(without, func(pod *corev1.Pod, _ int) string { return input.WorkloadOf(pod) }))
	slices.Sort(workloads)
	return []string{fmt.Sprintf("%s without a request of CPU or memory (%s): Karpenter takes it for 0, so that nodes may be too small and the bill too low; "+
		"give them requests", output.Plural(len(without), "pod"), output.Names(workloads, 1))}
}

// alternative returns the NodePools, BizflyNodeClasses and NodeOverlays of a file.
func alternative(s *connect.Session, file string) (memory.Objects, error) {
	set, err := input.Read(nil, file)
	if err != nil {
		return nil, err
	}
	read := set.Kinds()
	set.LeaveForeign()
	for _, note := range set.Notes {
		s.Note("%s: %s", file, note)
	}
	compared, others := lo.FilterReject(memory.Objects(set.Objects), func(object client.Object, _ int) bool {
		switch object.(type) {
		case *karpv1.NodePool, *v1alpha1.BizflyNodeClass, *karpv1alpha1.NodeOverlay:
			return true
		}
		return false
	})
	if len(memory.Of[*karpv1.NodePool](compared))+len(memory.Of[*v1alpha1.BizflyNodeClass](compared)) == 0 {
		return nil, fmt.Errorf("%s has neither a NodePool nor a BizflyNodeClass to compare (it has %s)", file, read)
	}
	if len(others) > 0 {
		s.Note("%s: of %s, only NodePools, BizflyNodeClasses and NodeOverlays are compared; give workloads with -f", file, read)
	}
	return compared, nil
}

// replaced are the objects with those of an alternative: its NodePools are in place of all others but static ones. Its NodeClasses replace those of
// the same name, since NodePools may use ones that exist.
func replaced(base, compared memory.Objects) memory.Objects {
	if len(memory.Of[*karpv1.NodePool](compared)) > 0 {
		base = lo.Reject(base, func(object client.Object, _ int) bool {
			pool, ok := object.(*karpv1.NodePool)
			return ok && pool.Spec.Replicas == nil
		})
	}
	return base.With(compared...)
}

// noteUnused names the NodeClasses of an alternative that change nothing.
func noteUnused(s *connect.Session, file string, compared, planned memory.Objects) {
	used := lo.Map(memory.Of[*karpv1.NodePool](planned), func(pool *karpv1.NodePool, _ int) string {
		return lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
	})
	for _, nodeClass := range memory.Of[*v1alpha1.BizflyNodeClass](compared) {
		if !lo.Contains(used, nodeClass.Name) {
			s.Note("%s: no NodePool uses BizflyNodeClass %s, so it changes nothing", file, nodeClass.Name)
		}
	}
}

// measure sums up what top shows, without the nodes of static NodePools, and the nodes that pods without a node would
// need beside these.
func measure(ctx context.Context, cloud *connect.Cloud, simulation *sim.Simulation, objects memory.Objects) (*Today, error) {
	flavors, _, err := price.StandardFlavors(ctx, cloud)
	if err != nil {
		return nil, err
	}
	static := simulation.Static()
	objects = lo.Reject(objects, func(object client.Object, _ int) bool {
		return static.Has(object.GetLabels()[karpv1.NodePoolLabelKey])
	})
	rows := top.Rows(objects, flavors)
	vndPerHour := lo.SumBy(rows, func(row top.Node) float64 { return row.VNDPerHour })
	today := &Today{
		Nodes: len(rows), VNDPerHour: vndPerHour, VNDPerMonth: vndPerHour * price.HoursPerMonth,
		Unpriced: lo.CountBy(rows, func(row top.Node) bool { return !row.Priced() }), rows: rows,
	}
	if len(simulation.Waiting()) == 0 {
		return today, nil
	}
	beside, err := sim.New(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	if err := beside.Observe(ctx); err != nil {
		return nil, err
	}
	added, err := beside.Run(ctx)
	if err != nil {
		return nil, err
	}
	today.Waiting, today.Unplaced = added.Pods, len(added.Unplaced)
	today.AddedNodes, today.AddedVNDPerHour = len(added.Nodes), added.VNDPerHour
	return today, nil
}
