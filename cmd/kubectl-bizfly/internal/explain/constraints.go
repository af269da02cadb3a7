// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// Kinds of constraints.
const (
	KindSpread       = "topology spread"
	KindAntiAffinity = "anti-affinity"
	KindAffinity     = "affinity"
	KindVolumeZone   = "zone of volumes"
	KindSelector     = "node selector"
	KindNodeAffinity = "node affinity"
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
func constraintsOf(objects memory.Objects) []droppable {
	all := lo.FlatMap(memory.Of[*karpv1.NodePool](objects), func(pool *karpv1.NodePool, _ int) []droppable {
		return requirementsOf(pool)
	})
	workloads := map[string][]*corev1.Pod{}
	for _, pod := range memory.Of[*corev1.Pod](objects) {
		if input.Counts(pod) {
			workloads[input.WorkloadOf(pod)] = append(workloads[input.WorkloadOf(pod)], pod)
		}
	}
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
		addVolumes(objects, pods, add)
	}
	slices.SortFunc(all, func(a, b droppable) int {
		return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.kind, b.kind), cmp.Compare(a.detail, b.detail))
	})
	return all
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
