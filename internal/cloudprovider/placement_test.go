// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func strategy(s v1alpha1.PlacementStrategy) func(*v1alpha1.BizflyNodeClass) {
	return func(nodeClass *v1alpha1.BizflyNodeClass) { nodeClass.Spec.PlacementStrategy = s }
}

var strategies = []v1alpha1.PlacementStrategy{
	v1alpha1.PlacementStrategyBalanced, v1alpha1.PlacementStrategyBinPack, v1alpha1.PlacementStrategySpread,
}

// twins is a catalog of flavors that cost the same: one vCPU of category premium costs 412.5 VND per hour, one GiB 137.5,
// so that 2 x 412.5 + 8 x 137.5 = 3 x 412.5 + 5 x 137.5 = 1925. The third costs 1512.5.
func twins() *cloud.Catalog {
	catalog := cloud.DefaultCatalog()
	for region, flavors := range catalog.Flavors {
		model, _ := lo.Find(flavors, func(f cloud.Flavor) bool { return f.Name == "nix.2c_4g" })
		catalog.Flavors[region] = lo.Map([][2]int{{2, 8}, {3, 5}, {2, 5}}, func(size [2]int, i int) cloud.Flavor {
			flavor := model
			flavor.ID = fmt.Sprintf("%s-twin-%d", region, i)
			flavor.Name = fmt.Sprintf("nix.%dc_%dg", size[0], size[1])
			flavor.VCPUs, flavor.RAM = size[0], 1024*size[1]
			return flavor
		})
	}
	return catalog
}

// succeeded reports that a launch with the NodeClass has taken this long.
func succeeded(flavor, zone string, class *v1alpha1.BizflyNodeClass, took time.Duration) {
	claim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Name: class.Name}}}
	intent := instance.Intent{Flavor: flavor, Zone: zone, BillingPlan: "on_demand", ImageID: class.Status.Image().ID}
	env.CloudProvider.Launches.NodeRegistered(ctx, claim, intent, took)
}

var _ = Describe("Placement", func() {
	withRequests := func(claim *karpv1.NodeClaim, cpu, memory string) *karpv1.NodeClaim {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		return claim
	}

	Context("Balanced", func() {
		It("should take the faster of two zones at one price, and try each once", func() {
			class := nodeClass()
			only := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g")
			record := func(zone string, seconds int) {
				succeeded("nix.2c_4g", zone, class, time.Duration(seconds)*time.Second)
			}
			record("HN1", 90)
			Expect(serverOf(launched(nodeClaim(nil, only))).AvailabilityZone).To(Equal("HN2"), "HN2 was never seen")
			record("HN2", 100)
			Expect(serverOf(launched(nodeClaim(nil, only))).AvailabilityZone).To(Equal("HN1"), "90 s are less than 100 s")
			record("HN2", 20) // 0.7 x 100 s + 0.3 x 20 s = 76 s
			Expect(serverOf(launched(nodeClaim(nil, only))).AvailabilityZone).To(Equal("HN2"))
		})
		It("should compare failures before seconds", func() {
			class := nodeClass()
			only := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g")
			succeeded("nix.2c_4g", "HN1", class, 10*time.Second)
			succeeded("nix.2c_4g", "HN2", class, 300*time.Second)
			env.Capacity.RecordFailure(capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN1", BillingPlan: "on_demand"}, env.Clock.Now())
			Expect(serverOf(launched(nodeClaim(nil, only))).AvailabilityZone).To(Equal("HN2"))
		})
		It("should not take a more expensive flavor because it is faster", func() {
			class := nodeClass()
			succeeded("nix.4c_8g", "HN1", class, time.Second)
			for _, zone := range []string{"HN1", "HN2"} {
				succeeded("nix.2c_4g", zone, class, time.Hour)
			}
			claim := nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g", "nix.4c_8g"))
			Expect(serverOf(launched(claim)).Flavor.Name).To(Equal("nix.2c_4g"))
		})
	})
	Context("BinPack", func() {
		BeforeEach(func() { env.Reset(ctx, cloud.Options{Catalog: twins()}) })
		// About 6.6 of 8 GiB and 3.9 of 5 GiB are left for pods, and nearly all of the vCPUs.
		DescribeTable("should take the flavor at the cheapest price of which least stays idle",
			func(chosen v1alpha1.PlacementStrategy, cpu, memory, expected string) {
				nodeClass(strategy(chosen))
				claim := withRequests(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_8g", "nix.3c_5g")), cpu, memory)
				Expect(serverOf(launched(claim)).Flavor.Name).To(Equal(expected))
			},
			// 2c_8g: 1/4 of the CPU and 1/2 of the memory = 0.77; 3c_5g: 1/2 and 1/4 = 0.72.
			Entry("3 GiB and 1.5 vCPUs", v1alpha1.PlacementStrategyBinPack, "1500m", "3Gi", "nix.3c_5g"),
			// 2c_8g: 1/10 and 7/10 = 0.79; 3c_5g: 4/10 and 1/2 = 0.89.
			Entry("2 GiB and 1.8 vCPUs", v1alpha1.PlacementStrategyBinPack, "1800m", "2Gi", "nix.2c_8g"),
			Entry("5 GiB, which only one holds", v1alpha1.PlacementStrategyBinPack, "1", "5Gi", "nix.2c_8g"),
			Entry("2.5 vCPUs, which only the other holds", v1alpha1.PlacementStrategyBinPack, "2500m", "1Gi", "nix.3c_5g"),
			Entry("3 GiB and 1.5 vCPUs without BinPack: by name", v1alpha1.PlacementStrategyBalanced, "1500m", "3Gi", "nix.2c_8g"),
		)
		It("should take the cheaper flavor although it is no tighter fit", func() {
			nodeClass(strategy(v1alpha1.PlacementStrategyBinPack))
			// 2c_5g leaves more of its CPU idle than 3c_5g would use in parts of memory; it costs 1512.5 instead of 1925.
			Expect(serverOf(launched(withRequests(nodeClaim(nil), "100m", "3Gi"))).Flavor.Name).To(Equal("nix.2c_5g"))
		})
	})
	Context("Spread", func() {
		var pool *karpv1.NodePool
		BeforeEach(func() {
			nodeClass(strategy(v1alpha1.PlacementStrategySpread))
			pool = unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g", "nix.4c_8g"))
		})
		zones := func() map[string]int {
			return lo.CountValuesBy(servers(), func(s cloud.Server) string { return s.AvailabilityZone })
		}
		It("should alternate between the zones", func() {
			for range 4 {
				launched(nodeClaim(pool))
			}
			Expect(zones()).To(Equal(map[string]int{"HN1": 2, "HN2": 2}))
		})
		It("should count launches that are under way at the same time", func() {
			claims := lo.Times(10, func(int) *karpv1.NodeClaim { return nodeClaim(pool) })
			var group sync.WaitGroup
			for _, claim := range claims {
				group.Go(func() {
					defer GinkgoRecover()
					Expect(env.CloudProvider.Create(ctx, claim.DeepCopy())).Error().ToNot(HaveOccurred())
				})
			}
			group.Wait()
			Expect(zones()).To(Equal(map[string]int{"HN1": 5, "HN2": 5}))
		})
		It("should count where a launch really went when its first zone had no capacity", func() {
			env.Sandbox.SetStock("nix.2c_4g", "HN1", "*", 0)
			env.Sandbox.SetStock("nix.4c_8g", "*", "*", 0)
			launched(nodeClaim(pool))
			Expect(zones()).To(Equal(map[string]int{"HN2": 1}))
			env.Sandbox.SetStock("nix.2c_4g", "HN1", "*", 100)
			env.Capacity.MarkAvailable(capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN1", BillingPlan: "on_demand"})
			launched(nodeClaim(pool))
			Expect(zones()).To(Equal(map[string]int{"HN1": 1, "HN2": 1}))
		})
		It("should not count other NodePools, nor nodes on their way out", func() {
			only := unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN2")
			other := unit.NodePool()
			launched(nodeClaim(other, only))
			launched(nodeClaim(other, only))
			first := launched(nodeClaim(pool))
			Expect(serverOf(first).AvailabilityZone).To(Equal("HN1"))
			Expect(env.Client.Delete(ctx, first)).To(Succeed())
			Eventually(func() bool { return exists(first) }).Should(BeFalse())
			// With HN1 empty again, the names decide.
			Expect(serverOf(launched(nodeClaim(pool))).AvailabilityZone).To(Equal("HN1"))
		})
		It("should not take a more expensive flavor for an emptier zone", func() {
			launched(nodeClaim(pool, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")))
			env.Sandbox.SetStock("nix.2c_4g", "HN2", "*", 0)
			env.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN2"}, capacity.ReasonInsufficientCapacity, time.Minute)
			second := serverOf(launched(nodeClaim(pool)))
			Expect(second.Flavor.Name).To(Equal("nix.2c_4g"))
			Expect(second.AvailabilityZone).To(Equal("HN1"))
		})
		It("should leave the zone to a NodeClaim that names it", func() {
			for range 3 {
				launched(nodeClaim(pool, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN2")))
			}
			Expect(zones()).To(Equal(map[string]int{"HN2": 3}))
		})
		It("should launch a NodeClaim of no NodePool", func() {
			Expect(serverOf(launched(nodeClaim(nil))).AvailabilityZone).To(Equal("HN1"))
		})
	})
	Context("requirements", func() {
		type check = func(cloud.Server) bool
		// listed is the flavor in the catalog: a server itself does not return its generation.
		listed := func(s cloud.Server) cloud.Flavor {
			found, ok := lo.Find(lo.Flatten(lo.Values(cloud.DefaultCatalog().Flavors)), func(f cloud.Flavor) bool { return f.Name == s.Flavor.Name })
			Expect(ok).To(BeTrue())
			return found
		}
		entries := func() []TableEntry {
			return []TableEntry{
				Entry("In", unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "enterprise", "dedicated"),
					func(s cloud.Server) bool { return s.Category == "enterprise" || s.Category == "dedicated" }),
				Entry("NotIn", unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpNotIn, "basic", "premium"),
					func(s cloud.Server) bool { return s.Category != "basic" && s.Category != "premium" }),
				Entry("NotIn of what is cheapest", unit.Requirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpNotIn, "1", "2"),
					func(s cloud.Server) bool { return s.Flavor.VCPUs > 2 }),
				Entry("Exists", unit.Requirement(v1alpha1.LabelInstanceGeneration, corev1.NodeSelectorOpExists),
					func(s cloud.Server) bool { return listed(s).Generation != nil }),
				Entry("DoesNotExist", unit.Requirement(v1alpha1.LabelInstanceGPUName, corev1.NodeSelectorOpDoesNotExist),
					func(s cloud.Server) bool { return listed(s).GPU == nil }),
				Entry("Gte", unit.Requirement(v1alpha1.LabelInstanceMemory, karpv1.NodeSelectorOpGte, "8192"),
					func(s cloud.Server) bool { return s.Flavor.RAM >= 8192 }),
				Entry("Lte", unit.Requirement(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpLte, "2"),
					func(s cloud.Server) bool { return s.Flavor.VCPUs <= 2 }),
			}
		}
		for _, zone := range []string{"HN1", "HN2", "HCM1"} {
			DescribeTable("should be met in "+zone, func(requirement karpv1.NodeSelectorRequirementWithMinValues, met check) {
				if zone == "HCM1" {
					env.Reset(ctx, cloud.Options{Region: cloud.RegionHCM})
				}
				nodeClass()
				created := launched(nodeClaim(nil, requirement, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone)))
				server := serverOf(created)
				Expect(server.AvailabilityZone).To(Equal(zone))
				Expect(met(server)).To(BeTrue(), "%+v", server.Flavor)
			}, entries())
		}
	})
	It("should reject requirements that contradict each other, and what lacks the label", func() {
		nodeClass()
		claim := nodeClaim(nil,
			unit.Requirement(v1alpha1.LabelInstanceGeneration, corev1.NodeSelectorOpIn, "2"),
			unit.Requirement(v1alpha1.LabelInstanceGeneration, corev1.NodeSelectorOpDoesNotExist))
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		Expect(createRequests()).To(BeZero())
	})
	It("should never launch an excluded value, whatever the strategy, stock and requirements", func() {
		seed := uint64(GinkgoRandomSeed())
		if given, err := strconv.ParseUint(os.Getenv("PLACEMENT_SEED"), 10, 64); err == nil {
			seed = given
		}
		By(fmt.Sprintf("PLACEMENT_SEED=%d", seed))
		random := rand.New(rand.NewPCG(seed, 0))
		class := nodeClass()
		pool := unit.NodePool()
		all := instanceTypes(pool)
		values := map[string][]string{corev1.LabelTopologyZone: {"HN1", "HN2"}}
		for _, key := range append(v1alpha1.InstanceTypeLabels.UnsortedList(), corev1.LabelInstanceTypeStable) {
			for _, it := range all {
				if r := it.Requirements.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
					values[key] = append(values[key], r.Values()...)
				}
			}
			values[key] = lo.Uniq(values[key])
		}
		// No flavor has a GPU whose name contains its memory.
		keys := lo.Keys(lo.PickBy(values, func(_ string, of []string) bool { return len(of) > 0 }))
		some := func(of []string) []string {
			picked := lo.Map(random.Perm(len(of)), func(i, _ int) string { return of[i] })
			return picked[:1+random.IntN(len(picked))]
		}
		requirement := func() karpv1.NodeSelectorRequirementWithMinValues {
			key := keys[random.IntN(len(keys))]
			if key == v1alpha1.LabelInstanceCPU || key == v1alpha1.LabelInstanceMemory {
				return unit.Requirement(key, []corev1.NodeSelectorOperator{karpv1.NodeSelectorOpGte, karpv1.NodeSelectorOpLte}[random.IntN(2)], some(values[key])[0])
			}
			switch random.IntN(4) {
			case 0:
				return unit.Requirement(key, corev1.NodeSelectorOpIn, some(values[key])...)
			case 1:
				return unit.Requirement(key, corev1.NodeSelectorOpExists)
			case 2:
				return unit.Requirement(key, corev1.NodeSelectorOpDoesNotExist)
			}
			return unit.Requirement(key, corev1.NodeSelectorOpNotIn, some(values[key])...)
		}
		launchedCount := 0
		for range 60 {
			class.Spec.PlacementStrategy = strategies[random.IntN(len(strategies))]
			Expect(env.Resolve(ctx, class)).To(Succeed())
			if random.IntN(3) == 0 {
				chosen := all[random.IntN(len(all))]
				env.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: chosen.Name}, capacity.ReasonInsufficientCapacity, time.Hour)
			}
			claim := nodeClaim(pool, lo.Times(1+random.IntN(3), func(int) karpv1.NodeSelectorRequirementWithMinValues { return requirement() })...)
			created, err := env.Launch(ctx, claim)
			if err != nil {
				continue
			}
			launchedCount++
			required := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
			Expect(scheduling.NewLabelRequirements(created.Labels).Compatible(required)).To(Succeed(), "%v", claim.Spec.Requirements)
			for _, r := range claim.Spec.Requirements {
				switch r.Operator {
				case corev1.NodeSelectorOpNotIn:
					Expect(r.Values).ToNot(ContainElement(created.Labels[r.Key]), "%v", r)
				case corev1.NodeSelectorOpIn:
					Expect(r.Values).To(ContainElement(created.Labels[r.Key]), "%v", r)
				case corev1.NodeSelectorOpDoesNotExist:
					Expect(created.Labels).ToNot(HaveKey(r.Key))
				}
			}
			// What the labels say is what the cloud built.
			Expect(serverOf(created).Flavor.Name).To(Equal(created.Labels[corev1.LabelInstanceTypeStable]))
			Expect(serverOf(created).AvailabilityZone).To(Equal(created.Labels[corev1.LabelTopologyZone]))
		}
		Expect(launchedCount).To(BeNumerically(">", 5), "too few launches to prove anything")
	})
})
