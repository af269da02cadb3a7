// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	corescheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/offerings"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// question is what is asked: whether a NodePool can run a pod.
type question struct {
	pod  *corev1.Pod
	pool *karpv1.NodePool
}

// ofVolumes is the cause that limits a pod's zones by its volumes.
const ofVolumes = "its volumes"

// zones are those that a pod may run in.
type zones struct {
	// unusable is why a volume of the pod cannot be used; nothing else is known of the zones then.
	unusable error
	// causes are what limits them; nothing does where there is none.
	causes []string
	wants  *scheduling.Requirement
	// left are those of exist, the zones of the NodePool's flavors, that the pod may run in.
	left, exist []string
}

// filter is a requirement as it is written, and what it leaves of the flavors that satisfy those before it.
type filter struct {
	requirement *scheduling.Requirement
	text        string
	left        []*corecloudprovider.InstanceType
}

// fit is what of a NodePool's flavors is left for a pod.
type fit struct {
	wanted                   scheduling.Requirements
	all, compatible, fitting []*corecloudprovider.InstanceType
	requests                 corev1.ResourceList
	rootDisk                 string
	filters                  []filter
	unavailable              []string
	available                int
}

var (
	// factAsked is the NodePool, of whatever provider.
	factAsked = newAsked("NodePool", func(_ context.Context, r *reading) (question, error) { return r.asked, nil })

	// factServed is the NodePool that a controller here serves.
	factServed = newAsked("NodePool of this provider", func(_ context.Context, r *reading) (question, error) {
		if of := sim.Foreign(r.asked.pool); of != "" {
			return question{}, nothingToCheckError(of)
		}
		return r.asked, nil
	})

	// factNodeClassOf is the NodePool's NodeClass as the controller has stored it; nil where there is none.
	factNodeClassOf = newAsked("BizflyNodeClass", func(ctx context.Context, r *reading) (*v1alpha1.BizflyNodeClass,
		error) {
		q, err := factServed.in(ctx, r)
		if err != nil {
			return nil, err
		}
		return optional(ctx, r, types.NamespacedName{Name: lo.FromPtr(q.pool.Spec.Template.Spec.NodeClassRef).Name},
			&v1alpha1.BizflyNodeClass{})
	})

	factTypes = newAsked("instance types", func(ctx context.Context, r *reading) ([]*corecloudprovider.InstanceType,
		error) {
		w, err := copyFor(ctx, r)
		if err != nil {
			return nil, err
		}
		all, err := w.simulation.Provider.GetInstanceTypes(ctx, r.asked.pool)
		if err != nil {
			return nil, nothingToCheckError(err.Error())
		}
		return all, nil
	})

	factUsable = newAsked("flavors of the NodePool", func(ctx context.Context,
		r *reading) ([]*corecloudprovider.InstanceType, error) {
		w, err := copyFor(ctx, r)
		if err != nil {
			return nil, err
		}
		usable, _ := w.simulation.FlavorsOf(ctx, r.asked.pool) // where it fails, the rule about flavors says so
		return usable, nil
	})

	factZones = newAsked("zones of the pod", readZones)

	factFit = newAsked("flavors for the pod", readFit)
)

// copyFor is the copy of the cluster, for a NodePool that a controller here serves. A copy without its NodeClass says
// nothing about its flavors.
func copyFor(ctx context.Context, r *reading) (*world, error) {
	if _, err := factServed.in(ctx, r); err != nil {
		return nil, err
	}
	if _, err := factNodeClasses.in(ctx, r); err != nil {
		return nil, err
	}
	return factWorld.in(ctx, r)
}

func readZones(ctx context.Context, r *reading) (zones, error) {
	all, err := factTypes.in(ctx, r)
	if err != nil {
		return zones{}, err
	}
	w, err := factWorld.in(ctx, r)
	if err != nil {
		return zones{}, err
	}
	found := zones{wants: scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpExists)}
	if own := scheduling.NewStrictPodRequirements(r.asked.pod); own.Has(corev1.LabelTopologyZone) {
		found.wants, found.causes = found.wants.Intersection(own.Get(corev1.LabelTopologyZone)), append(found.causes,
			"its node selector and affinity")
	}
	alternatives, err := corescheduling.NewVolumeTopology(w.simulation.Objects).GetRequirements(ctx, r.asked.pod)
	if err != nil {
		return zones{unusable: err}, nil //nolint:nilerr // a rule says so
	}
	// Of alternatives, which only volumes with several terms have, the first is what the scheduler tries first.
	if volumes := lo.FirstOrEmpty(alternatives); volumes.Has(corev1.LabelTopologyZone) {
		found.wants, found.causes = found.wants.Intersection(volumes.Get(corev1.LabelTopologyZone)), append(found.causes,
			ofVolumes)
	}
	found.exist = lo.Uniq(lo.FlatMap(all, func(it *corecloudprovider.InstanceType, _ int) []string {
		return lo.Map(it.Offerings, func(o *corecloudprovider.Offering, _ int) string { return o.Zone() })
	}))
	slices.Sort(found.exist)
	found.left = lo.Filter(found.exist, func(zone string, _ int) bool { return found.wants.Has(zone) })
	return found, nil
}

func readFit(ctx context.Context, r *reading) (fit, error) {
	in, err := factZones.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	if in.unusable != nil || len(in.left) == 0 && len(in.causes) > 0 {
		return fit{}, nothingToCheckError("there is no zone for the pod")
	}
	all, err := factTypes.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	w, err := factWorld.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	f := fit{wanted: requirementsOf(r.asked.pool), all: all, requests: resources.RequestsForPods(r.asked.pod),
		filters: filtersOf(r.asked, in, all)}
	f.wanted.Add(podRequirements(r.asked.pod)...)
	if len(in.causes) > 0 {
		f.wanted.Add(in.wants)
	}
	f.compatible = compatibleWith(all, f.wanted)
	f.fitting = lo.Filter(f.compatible, func(it *corecloudprovider.InstanceType, _ int) bool {
		return resources.Fits(f.requests, it.Allocatable())
	})
	// Without its NodeClass, the NodePool has no instance types.
	nodeClass, _ := memory.Find[*v1alpha1.BizflyNodeClass](w.simulation.Objects,
		types.NamespacedName{Name: r.asked.pool.Spec.Template.Spec.NodeClassRef.Name})
	f.rootDisk = nodeClass.Spec.EffectiveRootDisk().Size.String()
	explained, err := offerings.Explain(w.simulation.Providers, nodeClass)
	if err != nil {
		return f, err
	}
	fitting := lo.KeyBy(f.fitting, func(it *corecloudprovider.InstanceType) string { return it.Name })
	for _, e := range explained {
		if fitting[e.Flavor] != nil && e.Unavailable != "" && f.wanted.Get(corev1.LabelTopologyZone).Has(e.Zone) {
			f.unavailable = append(f.unavailable, fmt.Sprintf("%s in %s: %s", e.Flavor, e.Zone, e.Unavailable))
		}
	}
	for _, it := range f.fitting {
		f.available += len(it.Offerings.Compatible(f.wanted).Available())
	}
	return f, nil
}

func compatibleWith(all []*corecloudprovider.InstanceType,
	wanted scheduling.Requirements) []*corecloudprovider.InstanceType {
	return lo.Filter(all, func(it *corecloudprovider.InstanceType, _ int) bool {
		return wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			it.Offerings.HasCompatible(wanted)
	})
}

// filtersOf are the requirements of NodePool and pod as users have written them: core has one for each key, with other
// operators.
func filtersOf(q question, in zones, left []*corecloudprovider.InstanceType) []filter {
	so, filters := scheduling.NewRequirements(), []filter{}
	add := func(key string, operator corev1.NodeSelectorOperator, values ...string) {
		r := scheduling.NewRequirement(key, operator, values...)
		so.Add(r)
		left = compatibleWith(left, so)
		text := strings.TrimSuffix(fmt.Sprintf("%s %s [%s]", key, operator, list(values)), " []")
		filters = append(filters, filter{r, text, left})
	}
	for _, r := range q.pool.Spec.Template.Spec.Requirements {
		add(r.Key, r.Operator, r.Values...)
	}
	for _, labels := range []map[string]string{q.pool.Spec.Template.Labels, q.pod.Spec.NodeSelector} {
		for _, key := range sortedKeys(labels) {
			add(key, corev1.NodeSelectorOpIn, labels[key])
		}
	}
	if affinity := q.pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		// Of alternatives the scheduler tries the first one first.
		terms := lo.FromPtr(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution).NodeSelectorTerms
		for _, r := range lo.FirstOrEmpty(terms).MatchExpressions {
			add(r.Key, r.Operator, r.Values...)
		}
	}
	if lo.Contains(in.causes, ofVolumes) {
		add(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, in.left...)
	}
	return filters
}
