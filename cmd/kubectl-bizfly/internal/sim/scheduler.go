// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corescheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// target is where the kube-scheduler would bind a pod: of the nodes that it fits on, the one with the highest score. A pod with pod affinity is left
// to core's scheduler. The pod then counts as one of the node's.
func target(nodes []*member, m moving) string {
	if m.pod.Spec.Affinity != nil && m.pod.Spec.Affinity.PodAffinity != nil {
		return ""
	}
	var best *member
	highest := math.Inf(-1)
	requests := resources.RequestsForPods(m.pod)
	wanted := corescheduling.NewStrictPodRequirements(m.pod)
	alike, most := alikeOn(nodes, m.pod)
	for _, n := range nodes {
		if n.node.Spec.Unschedulable || StaysInZone(m.pod) && n.node.Labels[corev1.LabelTopologyZone] != m.zone ||
			corescheduling.Taints(n.node.Spec.Taints).ToleratesPod(m.pod) != nil ||
			corescheduling.NewLabelRequirements(n.node.Labels).Compatible(wanted) != nil {
			continue
		}
		after := resources.Merge(n.requests(), requests)
		if !resources.Fits(after, n.node.Status.Allocatable) || !sharesNode(m.pod, n.pods) {
			continue
		}
		if score := scoreOf(after, n.node.Status.Allocatable, alike[n], most); score > highest {
			best, highest = n, score
		}
	}
	if best == nil {
		return ""
	}
	best.pods = append(best.pods, m.pod)
	return best.node.Name
}

// alikeOn counts, on each node and at most on one, the pods that the controller of a pod has created.
func alikeOn(nodes []*member, pod *corev1.Pod) (counts map[*member]int, most int) {
	counts = map[*member]int{}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return counts, 0
	}
	for _, n := range nodes {
		counts[n] = lo.CountBy(n.pods, func(other *corev1.Pod) bool { return lo.FromPtr(metav1.GetControllerOf(other)).UID == owner.UID })
		most = max(most, counts[n])
	}
	return counts, most
}

// scoreOf is what the default plugins of the kube-scheduler prefer: nodes with least requested, with CPU and memory requested in the same proportion,
// and, with twice the weight, with few pods that are alike.
func scoreOf(requested, allocatable corev1.ResourceList, alike, most int) float64 {
	part := func(name corev1.ResourceName) float64 {
		used, all := requested[name], allocatable[name]
		return used.AsApproximateFloat64() / max(all.AsApproximateFloat64(), 1e-9)
	}
	cpu, memory := part(corev1.ResourceCPU), part(corev1.ResourceMemory)
	score := 1 - (cpu+memory)/2 + 1 - math.Abs(cpu-memory)/2
	if most > 0 {
		score += 2 * float64(most-alike) / float64(most)
	}
	return score
}

// StaysInZone reports whether a pod is moved within its zone only: its volume is there, or how many of its kind there are in each zone matters.
func StaysInZone(pod *corev1.Pod) bool {
	if lo.ContainsBy(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) ||
		lo.ContainsBy(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey != corev1.LabelHostname && c.WhenUnsatisfiable == corev1.DoNotSchedule
		}) {
		return true
	}
	return lo.ContainsBy(AntiAffinity(pod), func(term corev1.PodAffinityTerm) bool { return term.TopologyKey != corev1.LabelHostname })
}

// AntiAffinity returns the required terms of a pod.
func AntiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// Selects reports whether a term of a pod in a namespace selects another pod. A namespace selector is taken to select every namespace.
func Selects(namespace string, term corev1.PodAffinityTerm, other *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	return term.NamespaceSelector != nil || lo.Contains(term.Namespaces, other.Namespace) || len(term.Namespaces) == 0 && other.Namespace == namespace
}

// sharesNode reports whether a pod may run beside others.
func sharesNode(pod *corev1.Pod, others []*corev1.Pod) bool {
	apart := func(a, b *corev1.Pod) bool {
		return lo.ContainsBy(AntiAffinity(a), func(term corev1.PodAffinityTerm) bool {
			return term.TopologyKey == corev1.LabelHostname && Selects(a.Namespace, term, b)
		})
	}
	if lo.ContainsBy(others, func(other *corev1.Pod) bool { return apart(pod, other) || apart(other, pod) }) {
		return false
	}
	return !lo.ContainsBy(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		if c.TopologyKey != corev1.LabelHostname || c.WhenUnsatisfiable != corev1.DoNotSchedule {
			return false
		}
		term := corev1.PodAffinityTerm{LabelSelector: c.LabelSelector}
		return lo.CountBy(others, func(other *corev1.Pod) bool { return Selects(pod.Namespace, term, other) }) >= int(c.MaxSkew)
	})
}

// NodeTerms are all terms of a pod's node affinity, to be read or changed.
func NodeTerms(pod *corev1.Pod) []*corev1.NodeSelectorTerm {
	var terms []*corev1.NodeSelectorTerm
	affinity := lo.FromPtr(lo.FromPtr(pod.Spec.Affinity).NodeAffinity)
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			terms = append(terms, &required.NodeSelectorTerms[i])
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference)
	}
	return terms
}

// DropNodeAffinity takes a label from the node affinity of a pod. A required term without any other label then allows
// every node, where Kubernetes would take it for one that allows none.
func DropNodeAffinity(pod *corev1.Pod, key string) {
	for _, term := range NodeTerms(pod) {
		term.MatchExpressions = lo.Reject(term.MatchExpressions, func(r corev1.NodeSelectorRequirement, _ int) bool { return r.Key == key })
	}
	affinity := lo.FromPtr(pod.Spec.Affinity).NodeAffinity
	if affinity == nil {
		return
	}
	empty := func(term corev1.NodeSelectorTerm) bool { return len(term.MatchExpressions)+len(term.MatchFields) == 0 }
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && slices.ContainsFunc(required.NodeSelectorTerms, empty) {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = lo.Reject(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
		func(term corev1.PreferredSchedulingTerm, _ int) bool { return empty(term.Preference) })
}
