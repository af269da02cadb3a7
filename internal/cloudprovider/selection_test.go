// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Create", func() {
	Context("the choice", func() {
		DescribeTable("should launch the cheapest offering that fits", func(requirement karpv1.NodeSelectorRequirementWithMinValues) {
			nodeClass()
			pool := unit.NodePool()
			claim := nodeClaim(pool, requirement)
			created := launched(claim)
			reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
			cheapest := lo.Min(lo.FlatMap(instanceTypes(pool), func(it *corecloudprovider.InstanceType, _ int) []float64 {
				if !reqs.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
					return nil
				}
				return lo.Map(it.Offerings.Available().Compatible(reqs), func(o *corecloudprovider.Offering, _ int) float64 { return o.Price })
			}))
			chosen, _ := lo.Find(instanceTypes(pool), func(it *corecloudprovider.InstanceType) bool {
				return it.Name == created.Labels[corev1.LabelInstanceTypeStable]
			})
			price, ok := chosen.OfferingPrice(created.Labels[corev1.LabelTopologyZone], karpv1.CapacityTypeOnDemand)
			Expect(ok).To(BeTrue())
			Expect(price).To(Equal(cheapest))
			Expect(serverOf(created).Flavor.Name).To(Equal(chosen.Name))
			Expect(serverOf(created).AvailabilityZone).To(Equal(created.Labels[corev1.LabelTopologyZone]))
		},
			Entry("of a category", unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "dedicated")),
			Entry("above a number of vCPUs", unit.Requirement(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpGte, "6")),
			Entry("above a size of memory", unit.Requirement(v1alpha1.LabelInstanceMemory, karpv1.NodeSelectorOpGte, "20000")),
			Entry("with a GPU", unit.Requirement(v1alpha1.LabelInstanceGPUCount, corev1.NodeSelectorOpExists)),
		)
		DescribeTable("should prefer at the same price a flavor that the cloud describes completely",
			func(incomplete func(*cloud.Flavor)) {
				catalog := cloud.DefaultCatalog()
				flavors := catalog.Flavors[cloud.RegionHN]
				other, _ := lo.Find(flavors, func(f cloud.Flavor) bool { return f.Name == "p2.2c_4g" })
				other.ID, other.Name = "other", "a2.2c_4g" // the first by its name
				incomplete(&other)
				catalog.Flavors[cloud.RegionHN] = append(flavors, other)
				env.Reset(ctx, cloud.Options{Catalog: catalog})
				for _, chosen := range strategies {
					name := strings.ToLower(string(chosen))
					nodeClass(strategy(chosen), func(c *v1alpha1.BizflyNodeClass) { c.Name = name })
					pool := unit.NodePool()
					pool.Spec.Template.Spec.NodeClassRef.Name = name
					prices := priced(pool)
					Expect(prices["a2.2c_4g/HN1"]).To(Equal(prices["p2.2c_4g/HN1"]))
					either := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "a2.2c_4g", "p2.2c_4g")
					for range 2 {
						claim := nodeClaim(pool, either)
						claim.Spec.NodeClassRef.Name = name
						Expect(launched(claim).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p2.2c_4g"), name)
					}
				}
			},
			Entry("than one without a generation", func(f *cloud.Flavor) { f.Omit = []string{"generation", "generation_id"} }),
			Entry("than one without zones", func(f *cloud.Flavor) {
				without := *f.Generation
				without.AvailabilityZones = nil
				f.Generation = &without
			}),
			Entry("than one without plans", func(f *cloud.Flavor) { f.Omit = []string{"billing_plans"} }),
		)
		It("should label the NodeClaim so completely that no NodePool requirement sees drift", func() {
			nodeClass()
			created := launched(nodeClaim(nil))
			Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelTopologyRegion, "HN"))
			required := lo.Map([]string{
				corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelArchStable, corev1.LabelOSStable,
				karpv1.CapacityTypeLabelKey, v1alpha1.LabelInstanceCategory, v1alpha1.LabelInstanceCPU, v1alpha1.LabelInstanceMemory,
			}, func(key string, _ int) karpv1.NodeSelectorRequirementWithMinValues {
				return unit.Requirement(key, corev1.NodeSelectorOpExists)
			})
			// This is core's own check, which knows no undefined labels.
			Expect(scheduling.NewLabelRequirements(created.Labels).Compatible(scheduling.NewNodeSelectorRequirementsWithMinValues(required...))).To(Succeed())
		})
		It("should return capacity and allocatable without zeros, the image and the hashes", func() {
			class := nodeClass()
			created := launched(nodeClaim(nil))
			Expect(created.Status.Capacity).To(HaveKey(corev1.ResourceMemory))
			Expect(created.Status.Allocatable.Memory().Cmp(*created.Status.Capacity.Memory())).To(Equal(-1))
			for _, quantity := range created.Status.Capacity {
				Expect(quantity.IsZero()).To(BeFalse())
			}
			Expect(created.Status.ImageID).To(Equal(class.Status.Image().ID))
			Expect(created.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHash, class.Hash()))
			Expect(created.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHashVersion, v1alpha1.NodeClassHashVersion))
		})
		It("should render the user data with the size and the labels of what is launched", func() {
			nodeClass(func(c *v1alpha1.BizflyNodeClass) {
				c.Spec.BootstrapMode = v1alpha1.BootstrapModeCustom
				c.Spec.UserData = lo.ToPtr(`{{ .KubeReserved.cpu }} {{ .KubeReserved.memory }} {{ index .Labels "` + corev1.LabelInstanceTypeStable + `" }}` +
					` {{ index .Labels "` + karpv1.NodePoolLabelKey + `" }}`)
			})
			pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.4c_8g"))
			Expect(serverOf(launched(nodeClaim(pool))).Truth.UserData).To(Equal("60m 1743Mi p2.4c_8g " + pool.Name))
		})
		It("should never launch in a zone, category or size that is excluded", func() {
			nodeClass()
			seed := rand.Uint64()
			By(fmt.Sprintf("seed %d", seed))
			random := rand.New(rand.NewPCG(seed, 0))
			pick := func(values ...string) []string {
				random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
				return values[:1+random.IntN(len(values)-1)]
			}
			for range 20 {
				zones, categories, least := pick("HN1", "HN2"), pick("basic", "premium", "enterprise"), 1+random.IntN(8)
				claim := nodeClaim(nil,
					unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpNotIn, zones...),
					unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpNotIn, categories...),
					unit.Requirement(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpGte, fmt.Sprint(least)),
				)
				created := launched(claim)
				Expect(zones).ToNot(ContainElement(serverOf(created).AvailabilityZone))
				Expect(categories).ToNot(ContainElement(serverOf(created).Category))
				reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
				Expect(scheduling.NewLabelRequirements(created.Labels).Compatible(reqs)).To(Succeed())
			}
		})
		It("should launch nothing that the requests do not fit in", func() {
			nodeClass()
			claim := nodeClaim(nil)
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5000")}
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
			Expect(createRequests()).To(BeZero())
		})
		It("should prefer the offering with fewer failures among those of one price", func() {
			nodeClass()
			pool := unit.NodePool()
			first := launched(nodeClaim(pool))
			failing := capacity.Offering{Flavor: first.Labels[corev1.LabelInstanceTypeStable], Zone: first.Labels[corev1.LabelTopologyZone], BillingPlan: "on_demand"}
			env.Capacity.MarkFailed(ctx, failing, env.Clock.Now(), capacity.ReasonInsufficientCapacity, time.Minute, true)
			env.Clock.Step(2 * time.Minute)
			Eventually(func() int { return env.Capacity.RecentFailures(failing) }).Should(BeNumerically(">", 0))
			second := launched(nodeClaim(pool))
			Expect(second.Labels[corev1.LabelInstanceTypeStable]).To(Equal(failing.Flavor))
			Expect(second.Labels[corev1.LabelTopologyZone]).ToNot(Equal(failing.Zone))
		})
		It("should not launch with fewer choices than minValues asks for, unless that is best effort", func() {
			nodeClass()
			requirement := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g")
			requirement.MinValues = lo.ToPtr(2)
			claim := nodeClaim(nil)
			claim.Spec.Requirements = append(claim.Spec.Requirements, requirement)
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
			policy := coretest.OptionsFields{MinValuesPolicy: lo.ToPtr(coreoptions.MinValuesPolicyBestEffort)}
			created := lo.Must(env.CloudProvider.Create(coreoptions.ToContext(ctx, coretest.Options(policy)), claim))
			Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "nix.2c_4g"))
		})
		It("should choose by the prices of NodeOverlays", func() {
			nodeClass()
			pool := unit.NodePool()
			usual := launched(nodeClaim(pool)).Labels[corev1.LabelInstanceTypeStable]
			config := env.CloudProviderConfig
			config.Overlay = moreExpensive(usual)
			env.CloudProvider = cloudprovider.New(config)
			Expect(launched(nodeClaim(pool)).Labels[corev1.LabelInstanceTypeStable]).ToNot(Equal(usual))
			Expect(launched(nodeClaim(nil)).Labels[corev1.LabelInstanceTypeStable]).To(Equal(usual), "overlays are evaluated per NodePool")
		})
		It("should reject capacity types that cannot be bought, and report why", func() {
			nodeClass()
			err := failedCreate(nodeClaim(nil, unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot)))
			Expect(reasonOf(err)).To(Equal(launch.ReasonCapacityTypeUnsupported))
			Expect(err).To(MatchError(And(ContainSubstring("has neither spot nor reserved capacity"), ContainSubstring("allow on-demand"))))
			Expect(createRequests()).To(BeZero())
		})
		It("should buy a saving plan for static NodePools alone, and report why", func() {
			nodeClass(func(n *v1alpha1.BizflyNodeClass) { n.Spec.BillingPlan = v1alpha1.BillingPlanSavingPlan })
			pool := unit.NodePool()
			Expect(reasonOf(failedCreate(nodeClaim(pool)))).To(Equal(launch.ReasonSavingPlanNotStatic), "there is no such NodePool")
			Expect(env.Client.Create(ctx, pool)).To(Succeed())
			err := failedCreate(nodeClaim(pool))
			Expect(reasonOf(err)).To(Equal(launch.ReasonSavingPlanNotStatic))
			Expect(err).To(MatchError(And(ContainSubstring("is not static"), ContainSubstring("use OnDemand, or give the NodePool spec.replicas"))))
			Expect(createRequests()).To(BeZero())
			static := unit.NodePool()
			static.Spec.Replicas, static.Spec.Weight, static.Spec.Limits = lo.ToPtr[int64](1), nil, nil
			Expect(env.Client.Create(ctx, static)).To(Succeed())
			launched(nodeClaim(static))
		})
		DescribeTable("should be planned by core as on-demand where the NodePool allows it:",
			func(wanted bool, change func(*karpv1.NodePool), capacityTypes ...karpv1.NodeSelectorRequirementWithMinValues) {
				pool := unit.NodePool(capacityTypes...)
				if change != nil {
					change(pool)
				}
				Expect(env.Client.Create(ctx, pool)).To(Succeed())
				requirements := func(from client.Client) []karpv1.NodeSelectorRequirementWithMinValues {
					GinkgoHelper()
					pools := &karpv1.NodePoolList{}
					Expect(from.List(ctx, pools, client.UnsafeDisableDeepCopy)).To(Succeed())
					Expect(pools.Items).To(HaveLen(1))
					return pools.Items[0].Spec.Template.Spec.Requirements
				}
				before := slices.Clone(requirements(env.Client))
				Expect(slices.ContainsFunc(requirements(cloudprovider.PlanningClient(env.Client)), func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
					return r.Key == karpv1.CapacityTypeLabelKey && slices.Equal(r.Values, []string{karpv1.CapacityTypeOnDemand})
				})).To(Equal(wanted))
				Expect(requirements(env.Client)).To(Equal(before), "the shared cache has changed")
			},
			Entry("anything", true, nil),
			Entry("anything but reserved", true, nil, unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpNotIn, karpv1.CapacityTypeReserved)),
			Entry("spot or on-demand", true, nil, unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot,
				karpv1.CapacityTypeOnDemand)),
			Entry("not spot alone", false, nil, unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot)),
			Entry("not by another label", false, func(pool *karpv1.NodePool) {
				pool.Spec.Template.Labels = map[string]string{karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved}
			}),
			Entry("not another provider's", false, func(pool *karpv1.NodePool) { pool.Spec.Template.Spec.NodeClassRef.Kind = "OtherNodeClass" }),
		)
	})
})

// moreExpensive is an overlay that makes one flavor a hundred times more expensive.
type moreExpensive string

func (m moreExpensive) ApplyAll(_ string, all []*corecloudprovider.InstanceType) ([]*corecloudprovider.InstanceType, error) {
	return lo.Map(all, func(it *corecloudprovider.InstanceType, _ int) *corecloudprovider.InstanceType {
		if it.Name != string(m) {
			return it
		}
		made := &corecloudprovider.InstanceType{Name: it.Name, Requirements: it.Requirements, Capacity: it.Capacity, Overhead: it.Overhead}
		for _, offering := range it.Offerings {
			made.Offerings = append(made.Offerings, &corecloudprovider.Offering{Requirements: offering.Requirements, Available: offering.Available,
				Price: 100 * offering.Price})
		}
		return made
	}), nil
}
