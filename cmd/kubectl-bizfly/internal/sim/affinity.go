// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
)

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
