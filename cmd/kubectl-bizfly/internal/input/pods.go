// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Counts reports whether a pod needs a node of its own accord: those of DaemonSets and of the kubelet come with a node, and
// those that have ended need none.
func Counts(pod *corev1.Pod) bool {
	owned := lo.ContainsBy(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "DaemonSet" || owner.Kind == "Node"
	})
	return !owned && pod.DeletionTimestamp.IsZero() && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Gated reports whether a scheduling gate holds a pod back: neither kube-scheduler nor Karpenter looks at it.
func Gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// Unbind makes a pod one that waits for a node, as the scheduler reports it.
func Unbind(pod *corev1.Pod) {
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: lo.Ternary(Gated(pod), corev1.PodReasonSchedulingGated, corev1.PodReasonUnschedulable),
	}}}
}

// WorkloadOf names the owner of a pod, without the hash that a Deployment gives its ReplicaSets.
func WorkloadOf(pod *corev1.Pod) string {
	name := pod.Name
	if len(pod.OwnerReferences) > 0 {
		name = strings.TrimSuffix(pod.OwnerReferences[0].Name, "-"+pod.Labels["pod-template-hash"])
	}
	return pod.Namespace + "/" + name
}
