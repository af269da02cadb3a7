// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// Pick returns one of them.
func Pick[T any](sim *Simulation, from ...T) T { return from[sim.Random.IntN(len(from))] }

// AddPools makes one or two NodePools, with every setting that affects consolidation.
func (sim *Simulation) AddPools(ctx context.Context) {
	for i := range Pick(sim, 1, 1, 2) {
		pool := unit.NodePool()
		pool.Name = fmt.Sprintf("pool-%d", i)
		pool.Spec.Template.Spec.Requirements = Pick(sim,
			nil, nil,
			[]karpv1.NodeSelectorRequirementWithMinValues{unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpNotIn, "basic")},
			[]karpv1.NodeSelectorRequirementWithMinValues{unit.Requirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpLt, "17")},
		)
		if sim.Random.IntN(2) == 0 {
			// Core plans replacements otherwise where a NodePool does not set it.
			pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements,
				unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand))
		}
		pool.Spec.Disruption = karpv1.Disruption{
			ConsolidationPolicy: Pick(sim, karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
				karpv1.ConsolidationPolicyWhenEmpty, karpv1.ConsolidationPolicyBalanced),
			ConsolidateAfter: karpv1.MustParseNillableDuration("0s"),
			Budgets:          []karpv1.Budget{{Nodes: Pick(sim, "100%", "100%", "1", "30%")}},
		}
		lo.Must0(sim.Client.Create(ctx, pool))
		sim.Pools = append(sim.Pools, pool)
	}
}

// Reprice replaces the prices in every other simulation by some that a user might bring along: any table whose rates are above
// 0, so also one where a dedicated server is the cheapest.
func (sim *Simulation) Reprice() {
	if sim.Random.IntN(2) == 0 {
		return
	}
	table := lo.Must(pricing.ParseTable([]byte("categories: {}"))) // the built-in numbers, in a table of our own
	factor := func() float64 { return 0.2 + 3*sim.Random.Float64() }
	for _, category := range slices.Sorted(maps.Keys(table.Categories)) {
		rates := table.Categories[category]
		table.Categories[category] = pricing.ComputeRates{CPU: rates.CPU * factor(), MemoryGiB: rates.MemoryGiB * factor()}
	}
	table.Generations = map[string]float64{"p4a": factor(), "e2": factor()}
	for _, medium := range slices.Sorted(maps.Keys(table.Disks)) {
		table.Disks[medium] *= factor()
	}
	sim.Tune(func(o *options.Options) { o.Prices = table })
}

// MarkUnavailable marks some offerings unavailable for longer than the test lasts.
func (sim *Simulation) MarkUnavailable(ctx context.Context) {
	types := lo.Must(sim.CloudProvider.GetInstanceTypes(ctx, sim.Pools[0]))
	for range Pick(sim, 0, 0, 5, 40) {
		it := types[sim.Random.IntN(len(types))]
		offering := it.Offerings[sim.Random.IntN(len(it.Offerings))]
		sim.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: it.Name, Zone: offering.Zone(), BillingPlan: bizfly.PlanWord(v1alpha1.BillingPlanOnDemand)},
			capacity.ReasonInsufficientCapacity, 10000*time.Hour)
	}
}

// AddOversized launches nodes that are too large, and runs nothing there yet.
func (sim *Simulation) AddOversized(ctx context.Context, count int) {
	for range count {
		pool := sim.Pools[sim.Random.IntN(len(sim.Pools))]
		claim := lo.Must(sim.NodeClaim(ctx, pool, unit.Requirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpIn, Pick(sim, "4", "8", "16"))))
		sim.launch(ctx, claim.Name, nil)
	}
}

// AddPods makes pending pods of many shapes.
func (sim *Simulation) AddPods(ctx context.Context, count int) {
	for range count {
		app := map[string]string{"app": Pick(sim, "a", "b", "c")}
		options := coretest.PodOptions{
			ObjectMeta: metav1.ObjectMeta{Labels: app, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "app", Controller: lo.ToPtr(true),
			}}},
			ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(Pick(sim, 50, 100, 250, 500, 1000, 1500, 3000)), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(int64(Pick(sim, 64, 128, 256, 512, 1024, 2048, 6000))<<20, resource.BinarySI),
			}},
		}
		switch sim.Random.IntN(10) {
		case 0:
			options.NodeSelector = map[string]string{corev1.LabelTopologyZone: Pick(sim, "HN1", "HN2")}
		case 1:
			options.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: Pick(sim, corev1.LabelTopologyZone, corev1.LabelHostname), WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: app},
			}}
		case 2:
			options.PodAntiRequirements = []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: app}, TopologyKey: corev1.LabelHostname,
			}}
		case 3:
			options.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}
		pod := coretest.UnschedulablePod(options)
		lo.Must0(sim.Client.Create(ctx, pod))
		lo.Must0(sim.Cluster.UpdatePod(ctx, pod))
	}
}

// RemovePods ends each pod with the probability.
func (sim *Simulation) RemovePods(ctx context.Context, probability float64) {
	pods := &corev1.PodList{}
	lo.Must0(sim.Client.List(ctx, pods))
	for i := range pods.Items {
		if sim.Random.Float64() >= probability {
			continue
		}
		lo.Must0(sim.Client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)))
		sim.Cluster.DeletePod(client.ObjectKeyFromObject(&pods.Items[i]))
	}
}

// Homeless returns the pods that run on no node that exists, and overfull the nodes that have too many pods.
func (sim *Simulation) Homeless(ctx context.Context) (homeless, overfull []string) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	lo.Must0(sim.Client.List(ctx, nodes))
	lo.Must0(sim.Client.List(ctx, pods))
	left := map[string]corev1.ResourceList{}
	for i := range nodes.Items {
		left[nodes.Items[i].Name] = nodes.Items[i].Status.Allocatable.DeepCopy()
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		free, exists := left[pod.Spec.NodeName]
		if !exists {
			homeless = append(homeless, pod.Name)
			continue
		}
		for name, quantity := range pod.Spec.Containers[0].Resources.Requests {
			rest := free[name]
			rest.Sub(quantity)
			free[name] = rest
		}
	}
	for name, free := range left {
		if free.Cpu().Sign() < 0 || free.Memory().Sign() < 0 {
			overfull = append(overfull, name)
		}
	}
	return homeless, overfull
}
