// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"slices"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identities are the labels that distinguish pods: each pod of a StatefulSet, all replicas of a Deployment, all pods of a Job.
var identities = []string{appsv1.StatefulSetPodNameLabel, appsv1.DefaultDeploymentUniqueLabelKey, batchv1.JobNameLabel}

// identity is the label that distinguishes a pod; false where it has none. Such a pod runs wherever the kube-scheduler binds it.
func identity(pod *corev1.Pod) (key, value string, known bool) {
	for _, key := range identities {
		if value := pod.Labels[key]; value != "" {
			return key, value, true
		}
	}
	return "", "", false
}

// nameOf is the identity of a pod as text, the same for all replicas; "" where it has none.
func nameOf(pod *corev1.Pod) string {
	key, value, known := identity(pod)
	if !known {
		return ""
	}
	return key + "=" + value
}

// rejected are the terms of required anti-affinity with which a pod on a node keeps the moving pods away that are planned for other nodes.
// The kube-scheduler and core's scheduler both observe the anti-affinity of pods that run. So evicted pods come to the planned nodes, and the
// kube-scheduler is asked for no more than that: it still decides by everything else that it knows.
func rejected(moving, planned []*corev1.Pod) []corev1.PodAffinityTerm {
	var terms []corev1.PodAffinityTerm
	for _, key := range identities {
		values := func(pods []*corev1.Pod) []string {
			return lo.FilterMap(pods, func(pod *corev1.Pod, _ int) (string, bool) {
				of, value, _ := identity(pod)
				return value, of == key
			})
		}
		others, _ := lo.Difference(lo.Uniq(values(moving)), values(planned))
		if len(others) == 0 {
			continue
		}
		slices.Sort(others)
		terms = append(terms, term(namespacesOf(moving), metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: others}))
	}
	return terms
}

// everything are the terms that keep all pods of some namespaces away that have an identity. Those of DaemonSets have none.
func everything(namespaces []string) []corev1.PodAffinityTerm {
	return lo.Map(identities, func(key string, _ int) corev1.PodAffinityTerm {
		return term(namespaces, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
	})
}

func term(namespaces []string, of metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{of}}, Namespaces: namespaces, TopologyKey: corev1.LabelHostname,
	}
}

// rejecting is the affinity of a pod with terms.
func rejecting(terms []corev1.PodAffinityTerm) *corev1.Affinity {
	if len(terms) == 0 {
		return nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func namespacesOf(pods []*corev1.Pod) []string {
	namespaces := lo.Uniq(lo.Map(pods, func(pod *corev1.Pod, _ int) string { return pod.Namespace }))
	slices.Sort(namespaces)
	return namespaces
}

// ownedBy makes a pod one of its node. Core then neither evicts it nor moves it nor waits for it, as with the pods that a kubelet runs by itself,
// and it is deleted with the Node. As a controller, the Node lets kubectl drain evict it without --force.
func ownedBy(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: lo.ToPtr(true)}
}
