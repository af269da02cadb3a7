// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Options say what to plan.
type Options struct {
	// Files are manifests; none plans the pods of the cluster.
	Files []string
	// Namespace is that of manifests which name none; empty is default.
	Namespace string
	// Alternatives are files of NodePools and NodeClasses, each planned in place of the others.
	Alternatives []string
	// Pending keeps the nodes of the cluster and plans the pods that wait.
	Pending bool
	// Stdin is read for the file "-".
	Stdin io.Reader
	// MaxPods is how many pods Suggest searches shapes with; 0 is 400.
	MaxPods int
	// OnStart is called when scheduling begins, with the number of pods; it may be nil.
	OnStart func(pods int)
}

// Compute plans, once for each alternative.
func Compute(ctx context.Context, s *session.Session, o Options) ([]*Plan, error) {
	base, err := input(ctx, s, o)
	if err != nil {
		return nil, err
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.Alternatives) == 0 {
		p, err := compute(ctx, s, cloud, base, o)
		return []*Plan{p}, err
	}
	var plans []*Plan
	for _, file := range o.Alternatives {
		objects, err := alternative(base, file)
		if err != nil {
			return nil, err
		}
		p, err := compute(ctx, s, cloud, objects, o)
		if err != nil {
			return nil, fmt.Errorf("planning %s: %w", file, err)
		}
		p.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		plans = append(plans, p)
	}
	return plans, nil
}

// alternative returns the objects with the NodePools of a file in place of all others but static ones. Its NodeClasses replace those of the
// same name, since NodePools may use ones that exist.
func alternative(base memory.Objects, file string) (memory.Objects, error) {
	set, err := manifests.Read(nil, file)
	if err != nil {
		return nil, err
	}
	switch {
	case len(memory.Of[*karpv1.NodePool](set.Objects)) > 0:
		base = lo.Reject(base, func(object client.Object, _ int) bool {
			pool, ok := object.(*karpv1.NodePool)
			return ok && pool.Spec.Replicas == nil
		})
	case len(memory.Of[*v1alpha1.BizflyNodeClass](set.Objects)) == 0:
		kinds := slices.Sorted(maps.Keys(set.Skipped))
		return nil, fmt.Errorf("%s has neither a NodePool nor a BizflyNodeClass to compare (it has %s)", file, strings.Join(kinds, ", "))
	}
	return base.With(set.Objects...), nil
}

// measure prices the nodes of today, and those that the pods without a node would need beside them.
func measure(ctx context.Context, cloud *session.Cloud, simulation *Simulation, objects memory.Objects) (*Today, error) {
	today, err := simulation.Measure(ctx, cloud)
	if err != nil {
		return nil, err
	}
	waiting, err := simulation.waiting(ctx)
	if err != nil || len(waiting) == 0 {
		return today, err
	}
	beside, err := NewSimulation(ctx, cloud, objects)
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
	today.Waiting, today.AddedNodes, today.AddedVNDPerHour = len(waiting), len(added.Nodes), added.VNDPerHour
	return today, nil
}

func compute(ctx context.Context, s *session.Session, cloud *session.Cloud, objects memory.Objects, o Options) (*Plan, error) {
	objects, assumed, err := completed(s, objects)
	if err != nil {
		return nil, err
	}
	simulation, err := NewSimulation(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	var today *Today
	if s.Cluster != nil && len(o.Files) == 0 && !o.Pending {
		if today, err = measure(ctx, cloud, simulation, objects); err != nil {
			s.Note("today's cost is not known: %s", err)
		}
	}
	prepare := simulation.Empty
	if o.Pending {
		prepare = simulation.Observe
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	if o.OnStart != nil {
		pods, err := simulation.waiting(ctx)
		if err != nil {
			return nil, err
		}
		o.OnStart(len(pods))
	}
	var p *Plan
	if o.Pending {
		p, err = simulation.Run(ctx)
	} else {
		p, err = simulation.settled(ctx)
	}
	if err != nil {
		return nil, err
	}
	p.Today, p.Assumed = today, assumed
	p.Catalog, err = embeddedCatalog(cloud)
	return p, err
}

// completed adds the default sample where there is no cluster whose NodePools count.
func completed(s *session.Session, objects memory.Objects) (memory.Objects, []string, error) {
	if s.Cluster != nil {
		return objects, nil, nil
	}
	return withSamples(objects)
}

// asItIs plans before anything is varied: the settled plan with what it assumes, the objects that it is of, and their simulation.
func asItIs(ctx context.Context, s *session.Session, o Options) (*session.Cloud, memory.Objects, *Plan, *Simulation, error) {
	base, err := input(ctx, s, o)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	objects, assumed, err := completed(s, base)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	p, simulation, err := settle(ctx, cloud, objects)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	p.Assumed = assumed
	p.Catalog, err = embeddedCatalog(cloud)
	return cloud, objects, p, simulation, err
}

// settle plans objects from empty, and returns the simulation too, in which the planned nodes run.
func settle(ctx context.Context, cloud *session.Cloud, objects memory.Objects) (*Plan, *Simulation, error) {
	simulation, err := NewSimulation(ctx, cloud, objects)
	if err != nil {
		return nil, nil, err
	}
	if err := simulation.Empty(ctx); err != nil {
		return nil, nil, err
	}
	p, err := simulation.settled(ctx)
	return p, simulation, err
}
