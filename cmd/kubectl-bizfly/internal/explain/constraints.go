// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
)

// Kinds of constraints.
const (
	KindSpread       = "topology spread"
	KindAntiAffinity = "anti-affinity"
	KindAffinity     = "affinity"
	KindVolumeZone   = "zone of volumes"
	KindSelector     = "node selector"
	KindNodeAffinity = "node affinity"
	KindRatio        = "memory per CPU"
	KindRequirement  = "requirement"
)

// droppable is a constraint that can be dropped: from the pods of a workload, or from a NodePool.
type droppable struct {
	kind, of, detail string
	objects          []client.Object
	drop             func(client.Object)
}

// dropped returns the objects without some constraints.
func dropped(objects memory.Objects, constraints []droppable) memory.Objects {
	changed := map[client.Object]client.Object{}
	for _, c := range constraints {
		for _, object := range c.objects {
			if changed[object] == nil {
				changed[object] = object.DeepCopyObject().(client.Object)
			}
			c.drop(changed[object])
		}
	}
	return objects.With(lo.Values(changed)...)
}

// constraintsOf are those of workloads and NodePools. Each is of all pods of a workload.
func constraintsOf(ctx context.Context, base *plan.Base) ([]droppable, error) {
	var all []droppable
	var ratios []float64
	for _, pool := range memory.Of[*karpv1.NodePool](base.Objects) {
		all = append(all, requirementsOf(pool)...)
		flavors, err := base.Simulation.FlavorsOf(ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, it := range flavors {
			ratios = append(ratios, it.Capacity.Memory().AsApproximateFloat64()/(1<<30)/max(it.Capacity.Cpu().AsApproximateFloat64(), 1))
		}
	}
	rates := lo.MinBy(lo.Values(base.Cloud.Settings.Load().Prices.Categories), func(a, b pricing.ComputeRates) bool { return a.CPU < b.CPU })
	workloads := map[string][]*corev1.Pod{}
	for _, pod := range memory.Of[*corev1.Pod](base.Objects) {
		if input.Counts(pod) {
			workloads[input.WorkloadOf(pod)] = append(workloads[input.WorkloadOf(pod)], pod)
		}
	}
	wanted := nearest(ratios, lo.Flatten(lo.Values(workloads)))
	for name, pods := range workloads {
		seen := map[string]bool{}
		add := func(kind, detail string, drop func(*corev1.Pod)) {
			if seen[kind+detail] {
				return
			}
			seen[kind+detail] = true
			all = append(all, droppable{
				kind: kind, of: name, detail: detail,
				objects: lo.Map(pods, func(pod *corev1.Pod, _ int) client.Object { return pod }),
				drop:    func(o client.Object) { drop(o.(*corev1.Pod)) },
			})
		}
		// Those of one name may differ, as while a Deployment is rolled out.
		for _, pod := range pods {
			addSpreads(pod, add)
			addAffinities(pod, add)
			addNodeRequirements(pod, add)
		}
		addVolumes(base.Objects, pods, add)
		addRatio(pods, wanted, rates, add)
	}
	slices.SortFunc(all, func(a, b droppable) int {
		return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.kind, b.kind), cmp.Compare(a.detail, b.detail))
	})
	return all, nil
}

func addSpreads(pod *corev1.Pod, add func(kind, detail string, drop func(*corev1.Pod))) {
	for _, key := range lo.Uniq(lo.Map(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint, _ int) string { return c.TopologyKey })) {
		add(KindSpread, key, func(pod *corev1.Pod) {
			pod.Spec.TopologySpreadConstraints = lo.Reject(pod.Spec.TopologySpreadConstraints,
				func(c corev1.TopologySpreadConstraint, _ int) bool { return c.TopologyKey == key })
		})
	}
}

func addAffinities(pod *corev1.Pod, add func(kind, detail string, drop func(*corev1.Pod))) {
	if pod.Spec.Affinity == nil {
		return
	}
	if anti := pod.Spec.Affinity.PodAntiAffinity; anti != nil {
		add(KindAntiAffinity, topologyKeys(anti.RequiredDuringSchedulingIgnoredDuringExecution, anti.PreferredDuringSchedulingIgnoredDuringExecution),
			ofAffinity(func(affinity *corev1.Affinity) { affinity.PodAntiAffinity = nil }))
	}
	if affinity := pod.Spec.Affinity.PodAffinity; affinity != nil {
		add(KindAffinity, topologyKeys(affinity.RequiredDuringSchedulingIgnoredDuringExecution, affinity.PreferredDuringSchedulingIgnoredDuringExecution),
			ofAffinity(func(affinity *corev1.Affinity) { affinity.PodAffinity = nil }))
	}
}

// ofAffinity changes the affinity of pods that have one.
func ofAffinity(change func(*corev1.Affinity)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Spec.Affinity != nil {
			change(pod.Spec.Affinity)
		}
	}
}

func topologyKeys(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) string {
	keys := lo.Map(required, func(t corev1.PodAffinityTerm, _ int) string { return t.TopologyKey })
	keys = append(keys, lo.Map(preferred, func(t corev1.WeightedPodAffinityTerm, _ int) string {
		return t.PodAffinityTerm.TopologyKey + " (preferred)"
	})...)
	return strings.Join(lo.Uniq(keys), ", ")
}

// addNodeRequirements adds node selectors and node affinity, by label.
func addNodeRequirements(pod *corev1.Pod, add func(kind, detail string, drop func(*corev1.Pod))) {
	for key, value := range pod.Spec.NodeSelector {
		add(KindSelector, key+"="+value, func(pod *corev1.Pod) { delete(pod.Spec.NodeSelector, key) })
	}
	var keys []string
	for _, term := range sim.NodeTerms(pod) {
		keys = append(keys, lo.Map(term.MatchExpressions, func(r corev1.NodeSelectorRequirement, _ int) string { return r.Key })...)
	}
	for _, key := range lo.Uniq(keys) {
		add(KindNodeAffinity, key, func(pod *corev1.Pod) { sim.DropNodeAffinity(pod, key) })
	}
}

// addVolumes adds the zones of volumes that exist.
func addVolumes(objects memory.Objects, pods []*corev1.Pod, add func(kind, detail string, drop func(*corev1.Pod))) {
	volumes := lo.KeyBy(memory.Of[*corev1.PersistentVolume](objects), func(v *corev1.PersistentVolume) string { return v.Name })
	claims := lo.KeyBy(memory.Of[*corev1.PersistentVolumeClaim](objects), func(c *corev1.PersistentVolumeClaim) string { return c.Namespace + "/" + c.Name })
	fixed := func(pod *corev1.Pod, v corev1.Volume) bool {
		if v.PersistentVolumeClaim == nil {
			return false
		}
		claim := claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]
		return claim != nil && volumes[claim.Spec.VolumeName] != nil && volumes[claim.Spec.VolumeName].Spec.NodeAffinity != nil
	}
	count := lo.CountBy(pods, func(pod *corev1.Pod) bool {
		return lo.ContainsBy(pod.Spec.Volumes, func(v corev1.Volume) bool { return fixed(pod, v) })
	})
	if count > 0 {
		add(KindVolumeZone, fmt.Sprintf("volumes of %d pods", count), func(pod *corev1.Pod) {
			pod.Spec.Volumes = lo.Reject(pod.Spec.Volumes, func(v corev1.Volume, _ int) bool { return fixed(pod, v) })
		})
	}
}

// nearest is the ratio that is the nearest to that of pods together.
func nearest(ratios []float64, pods []*corev1.Pod) float64 {
	cpu, memory := amountsOf(pods)
	return lo.MinBy(ratios, func(a, b float64) bool { return max(memory/cpu/a, a*cpu/memory) < max(memory/cpu/b, b*cpu/memory) })
}

// amountsOf are what pods request, in vCPU and GiB.
func amountsOf(pods []*corev1.Pod) (cpu, memory float64) {
	requests := resources.RequestsForPods(pods...)
	return max(requests.Cpu().AsApproximateFloat64(), 1e-3), max(requests.Memory().AsApproximateFloat64()/(1<<30), 1e-3)
}

// addRatio adds the ratio of the requests of a workload. Without it, its pods request as much by price, in the ratio of all.
func addRatio(pods []*corev1.Pod, wanted float64, rates pricing.ComputeRates, add func(kind, detail string, drop func(*corev1.Pod))) {
	cpu, memory := amountsOf(pods)
	if has := memory / cpu; wanted > 0 && (has < 0.75*wanted || has > 1.33*wanted) {
		newCPU := (rates.CPU*cpu + rates.MemoryGiB*memory) / (rates.CPU + rates.MemoryGiB*wanted)
		add(KindRatio, fmt.Sprintf("%.2g GiB per vCPU instead of %.2g", has, wanted), func(pod *corev1.Pod) {
			scale(pod, corev1.ResourceCPU, newCPU/cpu)
			scale(pod, corev1.ResourceMemory, newCPU*wanted/memory)
		})
	}
}

// scale multiplies requests, of the pod and of every container: each may decide what the pod requests in total.
func scale(pod *corev1.Pod, name corev1.ResourceName, by float64) {
	requests := []corev1.ResourceList{lo.FromPtr(pod.Spec.Resources).Requests}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		requests = append(requests, container.Resources.Requests)
	}
	for _, list := range requests {
		if amount, ok := list[name]; ok {
			list[name] = *resource.NewMilliQuantity(int64(amount.AsApproximateFloat64()*by*1000), amount.Format)
		}
	}
}

// requirementsOf are those of a NodePool, but for what has one value here.
func requirementsOf(pool *karpv1.NodePool) []droppable {
	fixed := []string{karpv1.CapacityTypeLabelKey, corev1.LabelArchStable, corev1.LabelOSStable}
	var all []droppable
	for _, r := range pool.Spec.Template.Spec.Requirements {
		if slices.Contains(fixed, r.Key) {
			continue
		}
		all = append(all, droppable{
			kind: KindRequirement, of: "NodePool " + pool.Name, objects: []client.Object{pool},
			detail: strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ", "))),
			drop: func(o client.Object) {
				spec := &o.(*karpv1.NodePool).Spec.Template.Spec
				spec.Requirements = slices.DeleteFunc(spec.Requirements,
					func(other karpv1.NodeSelectorRequirementWithMinValues) bool {
						return equality.Semantic.DeepEqual(other, r)
					})
			},
		})
	}
	return all
}
