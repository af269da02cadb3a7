// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// workload is a Deployment whose pods fit on no node that exists.
type workload struct {
	deployment *appsv1.Deployment
	about      string
}

// workloads are made anew at each call, because creating an object fills it in. The second phase begins when the pods
// of the first run; its large nodes have capacity for them, so that there is something to consolidate.
func workloads() [][]workload {
	web := deployment("web", 6, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	})
	web.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web.Spec.Selector,
	}}
	// The sandbox has GPUs in HN1 only: with the other large pod in HN2, both zones have capacity.
	analytics := deployment("analytics", 1, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("48Gi"),
	})
	analytics.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "HN2"}
	inference := deployment("inference", 1, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1"),
	})
	return [][]workload{
		{{web, "6 pods of 500m and 1Gi each, spread over the zones"}},
		{{analytics, "1 pod of 2 CPUs and 48Gi in HN2"}, {inference, "1 pod of 2 CPUs, 8Gi and 1 GPU"}},
	}
}

func deployment(name string, replicas int32, requests corev1.ResourceList) *appsv1.Deployment {
	resources := corev1.ResourceRequirements{Requests: requests}
	if gpus, ok := requests[v1alpha1.ResourceNVIDIAGPU]; ok {
		resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: gpus} // extended resources need equal limits
	}
	return environment.Deployment(name, replicas, func(spec *corev1.PodSpec) { spec.Containers[0].Resources = resources })
}

// applyPool creates a NodeClass that leaves everything to discovery, and a NodePool that gives nodes back quickly.
func applyPool(ctx context.Context, c client.Client) error {
	class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if err := c.Create(ctx, class); err != nil {
		return fmt.Errorf("creating the BizflyNodeClass: %w", err)
	}
	if err := c.Create(ctx, environment.NodePool("default", class.Name)); err != nil {
		return fmt.Errorf("creating the NodePool: %w", err)
	}
	return nil
}
