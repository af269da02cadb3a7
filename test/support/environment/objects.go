// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

// CreateStaticPool creates the Nodes of a static pool of BKE, one in each zone. KWOK keeps them alive. They have no servers.
func (e *Environment) CreateStaticPool(ctx context.Context) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for i, zone := range []string{"HN1", "HN2"} {
		name := fmt.Sprintf("pool-1-%d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				guest.LabelAlive: "true", "bke.bizflycloud.vn/pool-name": "pool-1",
				corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		if err := e.client.Create(ctx, node); err != nil {
			return fmt.Errorf("creating Node %s: %w", name, err)
		}
	}
	return nil
}

// NodePool returns a NodePool of a NodeClass for on-demand servers. Its nodes are consolidated as soon as possible, without a budget.
func NodePool(name, nodeClass string) *karpv1.NodePool {
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClass},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{
					Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand},
				}},
			}},
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
				// Only 0 is seen at once: with any other value core moves pods to a node only when that time has passed since the
				// last pod came to it, and checks again after five minutes.
				ConsolidateAfter: karpv1.MustParseNillableDuration("0s"),
				Budgets:          []karpv1.Budget{{Nodes: "100%"}},
			},
		},
	}
}

// Deployment returns a Deployment in the default namespace, whose small pods end within a second.
func Deployment(name string, replicas int32, changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers: []corev1.Container{{
						Name: "main", Image: "registry.k8s.io/pause:3.10",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
						}},
					}},
				},
			},
		},
	}
	for _, change := range changes {
		change(&d.Spec.Template.Spec)
	}
	return d
}

// OnPool is a change of a Deployment: its pods run on nodes of the NodePool only.
func OnPool(name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: name} }
}

// Apart is a change of a Deployment: each pod needs a node without any other pod of the namespace.
func Apart(spec *corev1.PodSpec) {
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{},
		}},
	}}
}

// Scale sets the replicas of a Deployment.
func (e *Environment) Scale(ctx context.Context, key types.NamespacedName, replicas int) error {
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if err := e.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("scaling Deployment %s to %d: %w", key, replicas, err)
	}
	return nil
}
