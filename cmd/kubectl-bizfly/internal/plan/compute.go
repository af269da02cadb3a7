// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan computes what Karpenter would run, and reports nodes, prices and pods that fit nowhere.
package plan

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

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
		if objects, p.Assumed, err = input.WithSamples(objects); err != nil {
			return nil, err
		}
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
	if o.OnStart != nil {
		pods, err := simulation.Waiting(ctx)
		if err != nil {
			return nil, err
		}
		o.OnStart(len(pods))
	}
	if p.Result, err = run(ctx); err != nil {
		return nil, err
	}
	if p.Today != nil {
		p.Today.keep(p.Elsewhere, memory.Of[*corev1.Pod](objects))
	}
	p.Catalog, err = cloud.EmbeddedCatalog()
	return &Base{p, cloud, objects, simulation}, err
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

// measure prices the nodes of today, and those that the pods without a node would need beside them.
func measure(ctx context.Context, cloud *connect.Cloud, simulation *sim.Simulation, objects memory.Objects) (*Today, error) {
	today, err := measureNodes(ctx, cloud, simulation)
	if err != nil {
		return nil, err
	}
	waiting, err := simulation.Waiting(ctx)
	if err != nil || len(waiting) == 0 {
		return today, err
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
	today.Waiting, today.AddedNodes, today.AddedVNDPerHour = added.Pods, len(added.Nodes), added.VNDPerHour
	return today, nil
}
