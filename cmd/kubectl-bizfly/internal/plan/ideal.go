// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	provisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/packing"
)

// ideal returns, per month, a price that no set of nodes of a NodePool is below for the pods of a settled plan, and that of the cheapest set
// that a search finds which knows requests, node selectors, required affinities to nodes, zones of volumes and required anti-affinity on nodes,
// with its flavors. Both are 0 where some pods run only with another NodePool. The search is over long before the limit, unless the machine is
// very slow.
func (s *Simulation) ideal(ctx context.Context, pool *karpv1.NodePool, limit time.Duration) (bound, best float64, flavors []string, err error) {
	instanceTypes, err := s.FlavorsOf(ctx, pool)
	if err != nil {
		return 0, 0, nil, err
	}
	members, err := s.members(ctx)
	if err != nil {
		return 0, 0, nil, err
	}
	daemons := daemons(members)
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	labels := scheduling.NewLabelRequirements(pool.Spec.Template.Labels)
	var bins []packing.Bin
	labelsOf := map[string]scheduling.Requirements{}
	for _, it := range instanceTypes {
		labelsOf[it.Name] = it.Requirements
		for _, offering := range it.Offerings.Available().Compatible(wanted) {
			bins = append(bins, packing.Bin{
				Name: it.Name, Zone: offering.Zone(), VNDPerHour: offering.Price, Allocatable: resources.Subtract(it.Allocatable(), daemons),
			})
		}
	}
	pods := lo.FlatMap(members, func(m *member, _ int) []*corev1.Pod { return m.movable() })
	groups := newGroups(pods)
	items := make([]packing.Item, 0, len(pods))
	for _, pod := range pods {
		alternatives, err := provisioning.NewVolumeTopology(s.Objects).GetRequirements(ctx, pod)
		if err != nil {
			return 0, 0, nil, err
		}
		if len(alternatives) == 0 { // it has no volume
			alternatives = []scheduling.Requirements{nil}
		}
		alternatives = lo.Map(alternatives, func(volumes scheduling.Requirements, _ int) scheduling.Requirements {
			all := scheduling.NewStrictPodRequirements(pod)
			all.Add(volumes.Values()...)
			return all
		})
		requests := resources.RequestsForPods(pod)
		delete(requests, corev1.ResourcePods)
		items = append(items, packing.Item{
			Name: pod.Name, Requests: requests, Groups: groups.of(pod), Limits: packing.Apart(lo.Keys(antiAffinity(pod))...),
			Allowed: func(b packing.Bin) bool {
				has := scheduling.NewRequirements(labelsOf[b.Name].Values()...)
				has.Add(labels.Values()...)
				has[corev1.LabelTopologyZone] = scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, b.Zone)
				return lo.SomeBy(alternatives, func(of scheduling.Requirements) bool {
					return has.IsCompatible(of, scheduling.AllowUndefinedWellKnownLabels)
				})
			},
		})
	}
	bound = packing.Bound(items, bins)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := packing.Best(bounded, items, bins, packing.Options{})
	flavors = lo.Map(found.Nodes, func(n packing.Node, _ int) string { return n.Bin.Name })
	if len(found.Unplaced) > 0 {
		s.note("no bound and no packing: some of the pods (%d) run only with another NodePool than the one that is searched", len(found.Unplaced))
		return 0, 0, lo.Uniq(flavors), nil
	}
	return bound * HoursPerMonth, found.VNDPerHour * HoursPerMonth, lo.Uniq(flavors), nil
}

// daemons is what the pods of DaemonSets request on every planned node at least.
func daemons(members []*member) corev1.ResourceList {
	var least corev1.ResourceList
	for _, r := range members {
		if least == nil {
			least = r.daemons.DeepCopy()
			continue
		}
		for name := range least {
			if amount := r.daemons[name]; amount.Cmp(least[name]) < 0 {
				least[name] = amount
			}
		}
	}
	return lo.PickBy(least, func(_ corev1.ResourceName, amount resource.Quantity) bool { return amount.Sign() > 0 })
}

// group is pods of a namespace that a selector selects.
type group struct {
	namespace string
	selector  labels.Selector
}

// antiAffinity are the groups with which a pod shares no node. Terms that look into other namespaces are left out, which makes a packing
// cheaper at most.
func antiAffinity(pod *corev1.Pod) groups {
	found := groups{}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return found
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && term.TopologyKey == corev1.LabelHostname && len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
			found[pod.Namespace+"/"+selector.String()] = group{pod.Namespace, selector}
		}
	}
	return found
}

// groups are by name.
type groups map[string]group

func newGroups(pods []*corev1.Pod) groups {
	return lo.Assign(lo.Map(pods, func(pod *corev1.Pod, _ int) groups { return antiAffinity(pod) })...)
}

// of are the names of the groups that a pod is a member of.
func (g groups) of(pod *corev1.Pod) []string {
	return lo.Keys(lo.PickBy(g, func(_ string, of group) bool {
		return of.namespace == pod.Namespace && of.selector.Matches(labels.Set(pod.Labels))
	}))
}
