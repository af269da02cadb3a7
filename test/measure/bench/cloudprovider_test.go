// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"testing"
	"time"

	"github.com/patrickmn/go-cache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// running is a cloud provider over a fleet of n servers.
func running(b *testing.B, n int, edits ...func(*cloudprovider.Config)) (*unit.Environment, *fleet, *cloudprovider.CloudProvider) {
	b.Helper()
	env, nodeClass := account(b)
	f := newFleet(nodeClass, n)
	config := env.CloudProviderConfig
	for _, edit := range edits {
		edit(&config)
	}
	config.KubeClient, config.APIReader, config.Instances = f, f, inventory{fleet: f}
	provider := cloudprovider.New(config)
	if claims, err := provider.List(ctx); err != nil || len(claims) != n {
		b.Fatal(len(claims), err)
	}
	return env, f, provider
}

// BenchmarkIsDrifted5000 asks for one claim among 5,000 servers; core asks for each of them on every event of a pod.
func BenchmarkIsDrifted5000(b *testing.B) { isDrifted(b, many) }

// BenchmarkIsDrifted500 must cost as much.
func BenchmarkIsDrifted500(b *testing.B) { isDrifted(b, few) }

func isDrifted(b *testing.B, n int) {
	_, f, provider := running(b, n)
	claim := &f.claims[n/2]
	m := measure(b)
	for b.Loop() {
		if reason, err := provider.IsDrifted(ctx, claim); err != nil || reason != "" {
			b.Fatal(reason, err)
		}
	}
	m.report()
}

// BenchmarkNodeClassCopy is what every reader of the cache pays for a NodeClass.
func BenchmarkNodeClassCopy(b *testing.B) {
	_, nodeClass := account(b)
	m := measure(b)
	for b.Loop() {
		nodeClass.DeepCopyInto(&v1alpha1.BizflyNodeClass{})
	}
	m.report()
}

// BenchmarkList5000 converts 5,000 servers to NodeClaims.
func BenchmarkList5000(b *testing.B) { list(b, many) }

// BenchmarkList500 must cost a tenth.
func BenchmarkList500(b *testing.B) { list(b, few) }

func list(b *testing.B, n int) {
	_, _, provider := running(b, n)
	m := measure(b)
	for b.Loop() {
		if claims, err := provider.List(ctx); err != nil || len(claims) != n {
			b.Fatal(len(claims), err)
		}
	}
	m.report()
}

// BenchmarkGarbageCollection5000 is a pass over 5,000 servers that all have their claim.
func BenchmarkGarbageCollection5000(b *testing.B) { collect(b, many) }

// BenchmarkGarbageCollection500 must cost a tenth.
func BenchmarkGarbageCollection500(b *testing.B) { collect(b, few) }

func collect(b *testing.B, n int) {
	env, f, _ := running(b, n)
	collector := garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings}, f, f, inventory{fleet: f}, env.Recorder, env.Clock)
	m := measure(b)
	for b.Loop() {
		if _, err := collector.Reconcile(ctx); err != nil {
			b.Fatal(err)
		}
	}
	m.report()
}

// wanted is a NodeClaim as core creates it for a few pods: 60 instance types of 300, with all that a NodePool asks for.
func wanted(b *testing.B, env *unit.Environment, f *fleet) (*karpv1.NodeClaim, corecloudprovider.InstanceTypes) {
	b.Helper()
	instanceTypes := corecloudprovider.InstanceTypes(typesOf(b, env, f.nodeClass))
	requirements := []karpv1.NodeSelectorRequirementWithMinValues{
		unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand),
		unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpNotIn, "basic"),
		unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1", "HN2"),
	}
	names := []string{}
	for _, it := range instanceTypes.OrderByPrice(scheduling.NewNodeSelectorRequirementsWithMinValues(requirements...))[60:120] {
		names = append(names, it.Name)
	}
	claim := f.claims[0].DeepCopy()
	claim.Spec.Requirements = append(requirements, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, names...))
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi")}
	claim.Annotations, claim.Status = nil, karpv1.NodeClaimStatus{}
	f.claims[0] = *claim
	return claim, instanceTypes
}

// BenchmarkOfferingSelection is Create over a cloud that answers at once: the selection of one of 900 offerings, and its
// create request.
func BenchmarkOfferingSelection(b *testing.B) { launch(b, few, v1alpha1.PlacementStrategyBalanced) }

// BenchmarkLaunchBookkeeping5000 is the same with the strategy that needs to know most: each launch counts the 5,000 nodes of
// its NodePool by zone.
func BenchmarkLaunchBookkeeping5000(b *testing.B) { launch(b, many, v1alpha1.PlacementStrategySpread) }

// BenchmarkLaunchBookkeeping500 must cost nearly as much, since little of a launch is counting.
func BenchmarkLaunchBookkeeping500(b *testing.B) { launch(b, few, v1alpha1.PlacementStrategySpread) }

func launch(b *testing.B, n int, strategy v1alpha1.PlacementStrategy) {
	var memory []*cache.Cache
	env, f, provider := running(b, n, func(c *cloudprovider.Config) {
		c.NewCache = func(lifetime time.Duration) *cache.Cache {
			memory = append(memory, cache.New(lifetime, 0))
			return memory[len(memory)-1]
		}
	})
	f.nodeClass.Spec.PlacementStrategy = strategy
	for i := range f.claims {
		f.claims[i].Labels[karpv1.NodePoolLabelKey] = "general"
	}
	claim, _ := wanted(b, env, f)
	m := measure(b)
	for b.Loop() {
		for _, c := range memory {
			c.Flush() // or it would find the server of the last turn
		}
		if _, err := provider.Create(ctx, claim); err != nil {
			b.Fatal(err)
		}
	}
	m.report()
}

// BenchmarkCoreSelection is the same choice by core's own means: filter and OrderByPrice.
func BenchmarkCoreSelection(b *testing.B) {
	env, f, _ := running(b, few)
	claim, instanceTypes := wanted(b, env, f)
	m := measure(b)
	for b.Loop() {
		requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
		fitting := corecloudprovider.InstanceTypes{}
		for _, it := range instanceTypes {
			if requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
				resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) && it.Offerings.Available().HasCompatible(requirements) {
				fitting = append(fitting, it)
			}
		}
		if len(fitting.OrderByPrice(requirements)) == 0 {
			b.Fatal("nothing fits")
		}
	}
	m.report()
}
