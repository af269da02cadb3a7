// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"maps"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corescheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
)

// problem is what is packed.
type problem struct {
	items    []packing.Item
	existing []packing.Existing
	// pods are those of each item, nodes those of existing.
	pods  [][]*corev1.Pod
	nodes []*plan.Managed
}

// bins are what the NodePool can launch now.
func (c *computation) bins() []packing.Bin {
	var bins []packing.Bin
	for _, name := range slices.Sorted(maps.Keys(c.types)) {
		it := c.types[name]
		for _, offering := range it.Offerings.Available().Compatible(c.template.Requirements) {
			bins = append(bins, packing.Bin{
				Name: name, Zone: offering.Zone(), VNDPerHour: offering.Price, Allocatable: free(it.Allocatable(), c.daemons),
			})
		}
	}
	return bins
}

// ours is how many pods of a repack a node has at most.
const ours = 3

// free is what is left of allocatable for pods: without DaemonSets and the pods of the repack.
func free(allocatable, daemons corev1.ResourceList) corev1.ResourceList {
	left := resources.Subtract(allocatable, daemons)
	left[corev1.ResourcePods] = *resource.NewQuantity(allocatable.Pods().Value()-daemons.Pods().Value()-ours, resource.DecimalSI)
	return left
}

// stays reports whether a pod moves nowhere: core may not evict it, or it must run beside others.
func stays(m *plan.Managed, pod *corev1.Pod) bool {
	return !m.Disruptable || pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil
}

// problem is the pods of the NodePool's nodes, and where they are. Where a function is given, the nodes that it returns true for are replaced, all others stay
// with their pods, and replicas are packed together: they come to one node, so that nothing depends on how the kube-scheduler divides them among several.
func (c *computation) problem(bins []packing.Bin, replace func(*plan.Managed) bool) problem {
	groups := newGroups(lo.FlatMap(c.own, func(m *plan.Managed, _ int) []*corev1.Pod { return m.Pods }))
	kinds := c.kinds(bins)
	var p problem
	together := map[string]int{}
	for _, m := range c.own {
		replaced := replace != nil && replace(m) && !lo.ContainsBy(m.Pods, func(pod *corev1.Pod) bool { return stays(m, pod) })
		var items []int
		for _, pod := range m.Pods {
			item := groups.item(pod)
			key := ""
			if replaced && len(item.Limits) == 0 && !plan.StaysInZone(pod) {
				key = nameOf(pod)
			}
			if at, known := together[key]; known && fits(resources.Merge(p.items[at].Requests, item.Requests), bins) {
				p.items[at].Requests, p.pods[at] = resources.Merge(p.items[at].Requests, item.Requests), append(p.pods[at], pod)
				continue
			}
			item.Allowed = kinds.allowed(m, pod, replace == nil || replaced)
			items = append(items, len(p.items))
			if key != "" {
				together[key] = len(p.items)
			}
			p.items, p.pods = append(p.items, item), append(p.pods, []*corev1.Pod{pod})
		}
		if replaced {
			continue
		}
		e := packing.Existing{Items: items, Bin: packing.Bin{
			Name: m.Node.Labels[corev1.LabelInstanceTypeStable], Zone: m.Node.Labels[corev1.LabelTopologyZone], VNDPerHour: m.VNDPerHour,
		}}
		if m.Disruptable {
			e.Bin.Allocatable = free(m.Node.Status.Allocatable, m.Daemons)
		}
		p.existing, p.nodes = append(p.existing, e), append(p.nodes, m)
	}
	return p
}

// kinds are the labels of nodes, by flavor and zone.
type kinds map[[2]string]corescheduling.Requirements

func (c *computation) kinds(bins []packing.Bin) kinds {
	found := kinds{}
	for _, bin := range bins {
		requirements := corescheduling.NewRequirements(c.template.Requirements.Values()...)
		requirements.Add(c.types[bin.Name].Requirements.Values()...)
		requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, bin.Zone))
		found[[2]string{bin.Name, bin.Zone}] = requirements
	}
	return found
}

// allowed reports on which new nodes a pod may run. One that does not move may run on none.
func (k kinds) allowed(m *plan.Managed, pod *corev1.Pod, moves bool) func(packing.Bin) bool {
	wanted, zone := corescheduling.NewStrictPodRequirements(pod), m.Node.Labels[corev1.LabelTopologyZone]
	moves = moves && !stays(m, pod)
	return func(bin packing.Bin) bool {
		kind, known := k[[2]string{bin.Name, bin.Zone}]
		return known && moves && (bin.Zone == zone || !plan.StaysInZone(pod)) && kind.Compatible(wanted, corescheduling.AllowUndefinedWellKnownLabels) == nil
	}
}

// fits reports whether some flavor is large enough for requests.
func fits(requests corev1.ResourceList, bins []packing.Bin) bool {
	return lo.ContainsBy(bins, func(bin packing.Bin) bool {
		return lo.EveryBy([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, func(name corev1.ResourceName) bool {
			requested, all := requests[name], bin.Allocatable[name]
			return requested.AsApproximateFloat64() <= all.AsApproximateFloat64()
		})
	})
}
