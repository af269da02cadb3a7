// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"
	"strconv"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Instance types of the sandbox's catalog", func() {
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass
	var types map[string]*cloudprovider.InstanceType

	BeforeEach(func(ctx context.Context) {
		sandbox := cloud.Start(cloud.Options{})
		DeferCleanup(sandbox.Close)
		r = newRoom(sandboxCatalog(ctx, sandbox), env.Client)
		nodeClass = newNodeClass("HN1", "HN2")
		types = r.list(ctx, nodeClass)
	})

	It("should be at least fifty, without those of another product", func() {
		Expect(len(types)).To(BeNumerically(">=", 50))
		Expect(types).NotTo(Or(HaveKey("1c_1g_vps"), HaveKey("2c_2g_vps")))
	})
	It("should define every well-known label but the NodePool's own, with valid values", func() {
		for _, it := range types {
			for key := range karpv1.WellKnownLabels {
				if key == karpv1.NodePoolLabelKey {
					Expect(it.Requirements.Has(key)).To(BeFalse())
					continue
				}
				Expect(it.Requirements.Has(key)).To(BeTrue(), "%s lacks %s", it.Name, key)
				for _, value := range it.Requirements.Get(key).Values() {
					Expect(value).NotTo(BeEmpty())
					Expect(validation.IsValidLabelValue(value)).To(BeEmpty(), "%s: %s=%s", it.Name, key, value)
				}
			}
			Expect(v1alpha1.InstanceTypeLabels.Difference(it.Requirements.Keys())).To(BeEmpty())
		}
	})
	It("should give every offering one zone, one capacity type, a price, and nothing else", func() {
		for _, it := range types {
			Expect(it.Offerings).NotTo(BeEmpty(), it.Name)
			for _, offering := range it.Offerings {
				Expect(offering.Requirements.Keys().UnsortedList()).To(ConsistOf(corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey))
				Expect(offering.Requirements.Get(corev1.LabelTopologyZone).Values()).To(HaveLen(1))
				Expect(offering.CapacityType()).To(Equal(karpv1.CapacityTypeOnDemand))
				Expect(offering.Price).To(BeNumerically(">", 0), it.Name)
			}
			Expect(it.Requirements.Get(corev1.LabelTopologyZone).Values()).To(ConsistOf(
				lo.Map(it.Offerings, func(o *cloudprovider.Offering, _ int) string { return o.Zone() })))
		}
	})
	It("should leave pods something of every size", func() {
		for _, it := range types {
			Expect(it.Overhead).NotTo(BeNil())
			for name, quantity := range it.Allocatable() {
				Expect(quantity.Sign()).To(BeNumerically(">", 0), "%s of %s", name, it.Name)
				capacity := it.Capacity[name]
				Expect(quantity.Cmp(capacity)).To(BeNumerically("<=", 0), "%s of %s", name, it.Name)
			}
		}
	})
	It("should offer a generation only in the zones where it exists", func() {
		Expect(zonesOf(types["p2.4c_8g"])).To(ConsistOf("HN1", "HN2"))
		Expect(zonesOf(types["p4a.4c_8g"])).To(ConsistOf("HN1"))
	})
	It("should match a NodePool's selection of labels and nothing beyond it", func() {
		amd := scheduling.NewRequirements(
			scheduling.NewRequirement(v1alpha1.LabelInstanceCPUManufacturer, corev1.NodeSelectorOpIn, "amd"),
			scheduling.NewRequirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpLt, "9"))
		for name, it := range types {
			cpus := it.Capacity[corev1.ResourceCPU]
			expected := it.Requirements.Get(v1alpha1.LabelInstanceGeneration).Has("4a") && cpus.Value() < 9
			Expect(it.Requirements.Intersects(amd) == nil).To(Equal(expected), name)
		}
		gpu := scheduling.NewRequirements(scheduling.NewRequirement(v1alpha1.LabelInstanceGPUName, corev1.NodeSelectorOpExists))
		withGPU := lo.PickBy(types, func(_ string, it *cloudprovider.InstanceType) bool { return it.Requirements.Intersects(gpu) == nil })
		Expect(withGPU).To(HaveLen(2))
		for _, it := range withGPU {
			Expect(it.Requirements.Get(v1alpha1.LabelInstanceGPUName).Values()).To(ConsistOf("NVIDIA-A30"))
			count := it.Capacity[v1alpha1.ResourceNVIDIAGPU]
			Expect(it.Requirements.Get(v1alpha1.LabelInstanceGPUCount).Values()).To(ConsistOf(strconv.FormatInt(count.Value(), 10)))
		}
	})
	It("should leave out what is not available with the NodeClass's plan", func(ctx context.Context) {
		Expect(types).NotTo(HaveKey("d2.64c_256g"))
		nodeClass.Spec.BillingPlan = v1alpha1.BillingPlanSavingPlan
		nodeClass.Generation++
		saving := r.list(ctx, nodeClass)
		Expect(saving).To(HaveKey("d2.64c_256g"))
		Expect(saving).NotTo(HaveKey(ContainSubstring("a30")), "the GPU flavors are available on demand only")
		Expect(saving["p2.4c_8g"].Offerings[0].Price).To(BeNumerically("<", types["p2.4c_8g"].Offerings[0].Price))
	})
	It("should know the category in which each flavor is ordered", func() {
		for name, expected := range map[string]string{
			"nix.1c_1g": "premium", "2c_4g_basic": "basic", "e2.4c_8g": "enterprise", "d4a.8c_32g": "dedicated",
		} {
			category, ok := r.Category(name)
			Expect(ok).To(BeTrue())
			Expect(category).To(Equal(expected))
		}
		_, ok := r.Category("1c_1g_vps")
		Expect(ok).To(BeFalse())
	})
})

var _ = Describe("Instance types", func() {
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass

	BeforeEach(func() {
		source = newHandmade(newFlavor("p2.2c_4g"))
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN2", "HN1")
	})
	only := func(ctx context.Context) *cloudprovider.InstanceType {
		GinkgoHelper()
		types := r.list(ctx, nodeClass)
		Expect(types).To(HaveLen(1))
		return lo.Values(types)[0]
	}
	available := func(ctx context.Context) []string {
		GinkgoHelper()
		return lo.Map(only(ctx).Offerings.Available(), func(o *cloudprovider.Offering, _ int) string { return o.Zone() })
	}

	It("should say that the catalog is not ready", func(ctx context.Context) {
		source.snapshot = nil
		Expect(r.List(ctx, nodeClass)).Error().To(MatchError(catalog.ErrNotReady))
		_, ok := r.Category("p2.2c_4g")
		Expect(ok).To(BeFalse())
	})
	It("should have the capacity that the node will report", func(ctx context.Context) {
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("60Gi"))}
		it := only(ctx)
		Expect(it.Capacity.Cpu().Value()).To(BeEquivalentTo(2))
		Expect(it.Capacity.Memory().String()).To(Equal("3788Mi"), "4096 MiB less 7.5 percent")
		Expect(it.Capacity.Pods().Value()).To(BeEquivalentTo(110))
		Expect(it.Capacity.StorageEphemeral().String()).To(Equal("58905Mi"), "97.5 percent of 59 GiB")
		Expect(it.Capacity).NotTo(HaveKey(v1alpha1.ResourceNVIDIAGPU))
		Expect(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Values()).To(ConsistOf("4096"), "the label is what is advertised")
	})
	// What mke2fs 1.47 leaves of the partition after the boot partition: least where it made the file system at that size, and more where
	// that grew from the 2 GiB of a cloud image.
	DescribeTable("should report what the root disk's ext4 has within a hundredth, and never more",
		func(ctx context.Context, diskGiB int, made, grown float64) {
			nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: resource.NewQuantity(int64(diskGiB)<<30, resource.BinarySI)}
			partition := float64(int64(diskGiB-1) << 30)
			it := only(ctx)
			Expect(it.Capacity.StorageEphemeral().AsApproximateFloat64()).To(BeNumerically("<=", made*partition))
			Expect(it.Capacity.StorageEphemeral().AsApproximateFloat64()).To(BeNumerically(">=", 0.99*grown*partition))
			allocatable := it.Allocatable()
			Expect(allocatable.StorageEphemeral().AsApproximateFloat64()).To(BeNumerically("<=", 0.9*made*partition), "10 % are free when pods are evicted")
			Expect(allocatable.StorageEphemeral().AsApproximateFloat64()).To(BeNumerically(">=", 0.99*0.9*grown*partition))
		},
		Entry(nil, 20, 0.97546, 0.98039),
		Entry(nil, 30, 0.97851, 0.98174),
		Entry(nil, 40, 0.97669, 0.98237),
		Entry(nil, 60, 0.97921, 0.98301),
		Entry(nil, 80, 0.97729, 0.98333),
		Entry(nil, 100, 0.97866, 0.98352),
		Entry(nil, 130, 0.97610, 0.98370),
		Entry(nil, 1000, 0.98323, 0.98423),
		Entry(nil, 5000, 0.99190, 0.98429),
	)
	It("should take the kubelet's settings from the NodeClass", func(ctx context.Context) {
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{
			MaxPods: lo.ToPtr[int32](42), KubeReserved: map[string]string{"cpu": "500m"}, SystemReserved: map[string]string{"cpu": "1500m"},
		}
		it := only(ctx)
		Expect(it.Capacity.Pods().Value()).To(BeEquivalentTo(42))
		Expect(lo.ToPtr(it.Overhead.Total()).Cpu().String()).To(Equal("2"))
	})
	DescribeTable("should be left out where the kubelet keeps more than there is, and have nothing for pods where NodeClaims run on them",
		func(ctx context.Context, kubelet v1alpha1.KubeletConfiguration, resource corev1.ResourceName) {
			nodeClass.Spec.Kubelet = &kubelet
			Expect(r.list(ctx, nodeClass)).To(BeEmpty())
			Expect(r.Overcommitted(nodeClass)).To(HaveKeyWithValue("p2.2c_4g", ContainSubstring(" of "+string(resource)+", ")))
			left := r.Launched(nodeClass, "p2.2c_4g", "HN1")[0].Allocatable()[resource]
			Expect(left.Sign()).To(BeZero())
		},
		Entry("cpu", v1alpha1.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "3"}}, corev1.ResourceCPU),
		Entry("memory, together", v1alpha1.KubeletConfiguration{KubeReserved: map[string]string{"memory": "3Gi"},
			SystemReserved: map[string]string{"memory": "1Gi"}}, corev1.ResourceMemory),
		Entry("the root disk", v1alpha1.KubeletConfiguration{KubeReserved: map[string]string{"ephemeral-storage": "40Gi"}}, corev1.ResourceEphemeralStorage),
		Entry("an eviction threshold", v1alpha1.KubeletConfiguration{EvictionHard: map[string]string{"nodefs.available": "40Gi"}},
			corev1.ResourceEphemeralStorage),
	)
	It("should define labels that do not apply as not existing", func(ctx context.Context) {
		it := only(ctx)
		for _, key := range []string{v1alpha1.LabelInstanceGPUName, v1alpha1.LabelInstanceGPUCount, corev1.LabelWindowsBuild} {
			Expect(it.Requirements.Get(key).Operator()).To(Equal(corev1.NodeSelectorOpDoesNotExist), key)
		}
		Expect(it.Requirements.Get(corev1.LabelTopologyRegion).Values()).To(ConsistOf("HN"))
	})
	It("should report the root disk alone as ephemeral storage", func(ctx context.Context) {
		before := only(ctx).Capacity.StorageEphemeral().String()
		nodeClass.Spec.DataDisks = []v1alpha1.DataDisk{{Size: lo.ToPtr(resource.MustParse("500Gi"))}}
		nodeClass.Generation++
		Expect(only(ctx).Capacity.StorageEphemeral().String()).To(Equal(before))
	})
	It("should price with the data disks and their media", func(ctx context.Context) {
		nodeClass.Spec.DataDisks = []v1alpha1.DataDisk{
			{Size: lo.ToPtr(resource.MustParse("100Gi"))},
			{Size: lo.ToPtr(resource.MustParse("200Gi")), Medium: v1alpha1.DiskMediumHDD},
			{Size: lo.ToPtr(resource.MustParse("10Gi")), VolumeType: "Premium-HDD"},
		}
		Expect(only(ctx).Offerings[0].Price).To(Equal(2*412.5 + 4*137.5 + 40*5 + 100*5 + 210*2.5))
	})
	It("should price with the root disk and its medium", func(ctx context.Context) {
		ssd := only(ctx).Offerings[0].Price
		Expect(ssd).To(Equal(2*412.5 + 4*137.5 + 40*5))
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("100Gi")), Medium: v1alpha1.DiskMediumHDD}
		nodeClass.Generation++
		Expect(only(ctx).Offerings[0].Price).To(Equal(2*412.5 + 4*137.5 + 100*2.5))
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("100Gi")), VolumeType: "Premium-HDD"}
		nodeClass.Generation++
		Expect(only(ctx).Offerings[0].Price).To(Equal(2*412.5+4*137.5+100*2.5), "the medium is that of the volume type")
	})
	DescribeTable("should stay listed but unavailable",
		func(ctx context.Context, edit func(*catalog.Snapshot), expected ...string) {
			Expect(available(ctx)).To(ConsistOf("HN1", "HN2"))
			before := only(ctx).Offerings[0].Price
			source.change(edit)
			Expect(available(ctx)).To(ConsistOf(expected))
			it := only(ctx)
			Expect(zonesOf(it)).To(ConsistOf("HN1", "HN2"))
			Expect(it.Offerings[0].Price).To(Equal(before))
		},
		Entry("in a zone that is closed", func(s *catalog.Snapshot) {
			s.Region.Zones = []gobizfly.AvailabilityZone{{ShortName: "HN1"}, {ShortName: "HN2", Active: true}}
		}, "HN2"),
		Entry("in a zone that the cloud no longer knows", func(s *catalog.Snapshot) { s.Region.Zones = s.Region.Zones[:1] }, "HN1"),
	)
	DescribeTable("should be left out",
		func(ctx context.Context, edit func(*gobizfly.ServerFlavorResponse)) {
			source.change(func(s *catalog.Snapshot) {
				s.Flavors = []*gobizfly.ServerFlavorResponse{newFlavor("p2.2c_4g"), newFlavor("p2.8c_8g", edit)}
			})
			Expect(r.list(ctx, nodeClass)).To(HaveLen(1))
		},
		Entry("a flavor of another product, by name", func(f *gobizfly.ServerFlavorResponse) { f.Name = "2c_2g_vps" }),
		Entry("a flavor of another product, by category", func(f *gobizfly.ServerFlavorResponse) { f.Category = "VPS" }),
		Entry("one without CPU", func(f *gobizfly.ServerFlavorResponse) { f.VCPUs = 0 }),
		Entry("one without memory", func(f *gobizfly.ServerFlavorResponse) { f.RAM = 0 }),
		Entry("one whose name is no label value", func(f *gobizfly.ServerFlavorResponse) { f.Name = "p2 2c/2g" }),
		Entry("one without a name", func(f *gobizfly.ServerFlavorResponse) { f.Name = "" }),
		Entry("a second one of the same name", func(f *gobizfly.ServerFlavorResponse) { f.Name = "p2.2c_4g" }),
		Entry("one of unknown category", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "mystery", "" }),
		Entry("one that is not available with the plan", func(f *gobizfly.ServerFlavorResponse) { f.BillingPlans = []string{"saving_plan"} }),
		Entry("one whose generation is in none of the zones", func(f *gobizfly.ServerFlavorResponse) {
			f.Generation.AvailabilityZones = []string{"HN3"}
		}),
	)
	It("should use only the category that a volume type by name belongs to", func(ctx context.Context) {
		source.change(func(s *catalog.Snapshot) {
			s.Flavors = []*gobizfly.ServerFlavorResponse{newFlavor("b2.2c_4g", func(f *gobizfly.ServerFlavorResponse) { f.Category = "basic" }), newFlavor("p2.2c_4g")}
		})
		Expect(r.list(ctx, nodeClass)).To(HaveLen(2))
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{VolumeType: "Basic-SSD"}
		nodeClass.Generation++
		Expect(r.list(ctx, nodeClass)).To(And(HaveLen(1), HaveKey("b2.2c_4g")))
	})
	DescribeTable("should read a flavor's labels from the API and fill gaps from its name",
		func(ctx context.Context, edit func(*gobizfly.ServerFlavorResponse), category, generation, vendor string) {
			source.change(func(s *catalog.Snapshot) { s.Flavors = []*gobizfly.ServerFlavorResponse{newFlavor("p2.2c_4g", edit)} })
			it := only(ctx)
			Expect(value(it, v1alpha1.LabelInstanceCategory)).To(Equal(category))
			Expect(value(it, v1alpha1.LabelInstanceGeneration)).To(Equal(generation))
			Expect(value(it, v1alpha1.LabelInstanceCPUManufacturer)).To(Equal(vendor))
		},
		Entry("everything from the API", func(f *gobizfly.ServerFlavorResponse) {
			f.Name, f.Category = "odd.name", "Enterprise"
			f.Generation.Code, f.Generation.Vendor = "4a", "AMD"
		}, "enterprise", "4a", "amd"),
		Entry("a code that begins with the category", func(f *gobizfly.ServerFlavorResponse) {
			f.Generation.Code, f.Generation.Vendor = "p4a", "AMD"
		}, "premium", "4a", "amd"),
		Entry("the API against the name", func(f *gobizfly.ServerFlavorResponse) { f.Category = "dedicated" }, "dedicated", "2", "intel"),
		Entry("the generation's category", func(f *gobizfly.ServerFlavorResponse) {
			f.Name, f.Category, f.Generation.Category = "x", "", "Basic"
		}, "basic", "", ""),
		Entry("an old premium name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "nix.2c_4g", "" }, "premium", "", ""),
		Entry("an old basic name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "2c_4g_basic", "" }, "basic", "", ""),
		Entry("an old enterprise name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "2c_4g_enterprise", "" }, "enterprise", "", ""),
		Entry("an old dedicated name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "2c_4g_dedicated", "" }, "dedicated", "", ""),
		Entry("a new Intel name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "b2.2c_4g", "" }, "basic", "2", "intel"),
		Entry("a new AMD name", func(f *gobizfly.ServerFlavorResponse) { f.Name, f.Category = "e4a.2c_4g", "" }, "enterprise", "4a", "amd"),
		Entry("a code that is no label value", func(f *gobizfly.ServerFlavorResponse) { f.Generation.Code = "Ice Lake/2" }, "premium", "ice-lake-2", ""),
	)
	DescribeTable("should split a flavor's name into family and size",
		func(ctx context.Context, name, category, family, size string) {
			source.change(func(s *catalog.Snapshot) {
				s.Flavors = []*gobizfly.ServerFlavorResponse{newFlavor(name, func(f *gobizfly.ServerFlavorResponse) { f.Category = category })}
			})
			Expect(value(only(ctx), v1alpha1.LabelInstanceFamily)).To(Equal(family))
			Expect(value(only(ctx), v1alpha1.LabelInstanceSize)).To(Equal(size))
		},
		Entry("a new name", "p4a.4c_8g", "premium", "p4a", "4c_8g"),
		Entry("an old premium name", "nix.2c_4g", "premium", "nix", "2c_4g"),
		Entry("an old name that ends in its category", "2c_4g_basic", "basic", "basic", "2c_4g"),
		Entry("a name of another form", "odd", "premium", "premium", "odd"),
	)
	It("should make a label of any GPU's name", func(ctx context.Context) {
		source.change(func(s *catalog.Snapshot) {
			s.Flavors = []*gobizfly.ServerFlavorResponse{newFlavor("g", func(f *gobizfly.ServerFlavorResponse) {
				f.GPU = &gobizfly.FlavorGPU{Name: " NVIDIA A100 (80GB) ", Count: 4}
			})}
		})
		Expect(value(only(ctx), v1alpha1.LabelInstanceGPUName)).To(Equal("NVIDIA-A100--80GB"))
		Expect(value(only(ctx), v1alpha1.LabelInstanceGPUCount)).To(Equal("4"))
	})
})

func zonesOf(it *cloudprovider.InstanceType) []string {
	GinkgoHelper()
	Expect(it).NotTo(BeNil())
	return it.Requirements.Get(corev1.LabelTopologyZone).Values()
}

// value returns the one value of a label, "" where it does not exist.
func value(it *cloudprovider.InstanceType, key string) string {
	GinkgoHelper()
	values := it.Requirements.Get(key).Values()
	Expect(len(values)).To(BeNumerically("<=", 1))
	return lo.FirstOrEmpty(values)
}
