// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"bytes"
	"context"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Flavors that the NodeClass selects", func() {
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass

	of := func(category, generation string) func(*gobizfly.ServerFlavorResponse) {
		return func(f *gobizfly.ServerFlavorResponse) { f.Category, f.Generation.Code = category, generation }
	}
	BeforeEach(func() {
		source = newHandmade(
			newFlavor("b2.2c_4g", of("basic", "b2")), newFlavor("p2.2c_4g", of("premium", "p2")), newFlavor("p2.4c_8g", of("premium", "p2")),
			newFlavor("p4a.4c_8g", of("premium", "p4a")), newFlavor("nix.2c_4g", of("premium", "")), newFlavor("4c_8g_dedicated", of("Dedicated", "")),
		)
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2")
		DeferCleanup(func(ctx context.Context) { Expect(env.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed()) })
	})
	selecting := func(ctx context.Context, terms ...v1alpha1.FlavorSelectorTerm) []string {
		GinkgoHelper()
		nodeClass.Spec.FlavorSelectorTerms = terms
		nodeClass.Generation++
		return lo.Keys(r.list(ctx, nodeClass))
	}

	DescribeTable("should be", func(ctx context.Context, term v1alpha1.FlavorSelectorTerm, expected ...string) {
		Expect(selecting(ctx, term)).To(ConsistOf(expected))
	},
		Entry("one by its name", v1alpha1.FlavorSelectorTerm{Name: "p2.4c_8g"}, "p2.4c_8g"),
		Entry("all of a name", v1alpha1.FlavorSelectorTerm{Name: "p*.4c_*"}, "p2.4c_8g", "p4a.4c_8g"),
		Entry("those of a category, however the cloud writes it", v1alpha1.FlavorSelectorTerm{Category: "dedicated"}, "4c_8g_dedicated"),
		Entry("those of a generation in every category", v1alpha1.FlavorSelectorTerm{Generation: "2"}, "b2.2c_4g", "p2.2c_4g", "p2.4c_8g"),
		Entry("those for which all that is set holds", v1alpha1.FlavorSelectorTerm{Name: "*.2c_*", Category: "premium", Generation: "2"}, "p2.2c_4g"),
		Entry("none where nothing matches", v1alpha1.FlavorSelectorTerm{Name: "p2"}),
	)
	It("should be listed for one term alone, whatever else would keep the NodeClass from them", func(ctx context.Context) {
		Expect(r.Matching(v1alpha1.FlavorSelectorTerm{Generation: "2"})).To(Equal([]string{"b2.2c_4g", "p2.2c_4g", "p2.4c_8g"}))
		Expect(r.Matching(v1alpha1.FlavorSelectorTerm{Name: "x*"})).To(BeEmpty())
		source.snapshot = nil
		Expect(r.Matching(v1alpha1.FlavorSelectorTerm{})).Error().To(MatchError(catalog.ErrNotReady))
	})
	It("should count as described only by the cloud's own generation, zones and plans", func() {
		describe := func(f *gobizfly.ServerFlavorResponse) {
			f.Generation.Code, f.Generation.AvailabilityZones, f.BillingPlans = "p2", []string{"HN1"}, []string{"on_demand"}
		}
		r = newRoom(newHandmade(newFlavor("p2.2c_4g", describe),
			newFlavor("p2.4c_8g", describe, func(f *gobizfly.ServerFlavorResponse) { f.Generation.Code = "" }),
			newFlavor("p2.8c_16g", describe, func(f *gobizfly.ServerFlavorResponse) { f.Generation.AvailabilityZones = nil }),
			newFlavor("p2.8c_32g", describe, func(f *gobizfly.ServerFlavorResponse) { f.BillingPlans = nil })), env.Client)
		Expect(r.Complete("p2.2c_4g")).To(BeTrue())
		for _, name := range []string{"p2.4c_8g", "p2.8c_16g", "p2.8c_32g", "p2.16c_32g"} {
			Expect(r.Complete(name)).To(BeFalse(), name)
		}
	})
	It("should be those of any term", func(ctx context.Context) {
		Expect(selecting(ctx, v1alpha1.FlavorSelectorTerm{Category: "basic"}, v1alpha1.FlavorSelectorTerm{Name: "nix.*"})).To(ConsistOf("b2.2c_4g", "nix.2c_4g"))
	})
	It("should be all without terms", func(ctx context.Context) { Expect(selecting(ctx)).To(HaveLen(6)) })
	It("should change with the selector at once, and never in what was returned", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)
		Expect(selecting(ctx, v1alpha1.FlavorSelectorTerm{Category: "premium"})).To(HaveLen(4))
		Expect(before).To(HaveLen(6))
		Expect(r.list(ctx, nodeClass)["p2.2c_4g"]).NotTo(BeIdenticalTo(before["p2.2c_4g"]))
		Expect(selecting(ctx)).To(HaveLen(6))
	})
	It("should keep one that a claim runs on, unavailable and at its price", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)["p4a.4c_8g"]
		Expect(env.Client.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelInstanceTypeStable: "p4a.4c_8g", corev1.LabelTopologyZone: "HN2"}},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClass.Name}},
		}))).To(Succeed())
		Expect(selecting(ctx, v1alpha1.FlavorSelectorTerm{Generation: "2"})).To(ConsistOf("b2.2c_4g", "p2.2c_4g", "p2.4c_8g", "p4a.4c_8g"))
		after := r.list(ctx, nodeClass)["p4a.4c_8g"]
		Expect(after.Offerings.Available()).To(BeEmpty())
		Expect(zonesOf(after)).To(BeEmpty())
		price, ok := after.OfferingPrice("HN2", karpv1.CapacityTypeOnDemand)
		Expect(ok).To(BeTrue())
		Expect(price).To(Equal(before.Offerings[1].Price))
	})
})

var _ = Describe("Disks that the NodeClass asks for", func() {
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass
	ofBasic := func(f *gobizfly.ServerFlavorResponse) { f.Category = "basic" }

	BeforeEach(func() {
		source = newHandmade(newFlavor("b2.2c_4g", ofBasic), newFlavor("p2.2c_4g"))
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2")
		DeferCleanup(func(ctx context.Context) { Expect(env.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed()) })
	})
	available := func(it *cloudprovider.InstanceType) []string {
		return lo.Map(it.Offerings.Available(), func(o *cloudprovider.Offering, _ int) string { return o.Zone() })
	}
	size := func() *resource.Quantity { return lo.ToPtr(resource.MustParse("40Gi")) }

	DescribeTable("should leave only flavors of the category that a volume type by its name belongs to",
		func(ctx context.Context, edit func(*v1alpha1.BizflyNodeClassSpec)) {
			edit(&nodeClass.Spec)
			types := r.list(ctx, nodeClass)
			Expect(types).To(And(HaveLen(1), HaveKey("b2.2c_4g")))
			Expect(available(types["b2.2c_4g"])).To(ConsistOf("HN1", "HN2"))
		},
		Entry("of the root disk", func(s *v1alpha1.BizflyNodeClassSpec) { s.RootDisk = &v1alpha1.RootDisk{VolumeType: "Basic-HDD"} }),
		Entry("of a data disk", func(s *v1alpha1.BizflyNodeClassSpec) {
			s.DataDisks = []v1alpha1.DataDisk{{Size: size()}, {Size: size(), VolumeType: "Basic-HDD"}}
		}),
	)
	It("should leave nothing where disks belong to different categories", func(ctx context.Context) {
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{VolumeType: "Basic-SSD"}
		nodeClass.Spec.DataDisks = []v1alpha1.DataDisk{{Size: size(), VolumeType: "Premium-SSD"}}
		Expect(r.list(ctx, nodeClass)).To(BeEmpty())
	})
	It("should keep offerings of another category that a claim runs on, unavailable", func(ctx context.Context) {
		Expect(env.Client.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelInstanceTypeStable: "p2.2c_4g", corev1.LabelTopologyZone: "HN1"}},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClass.Name}},
		}))).To(Succeed())
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{VolumeType: "Basic-SSD"}
		types := r.list(ctx, nodeClass)
		Expect(types).To(HaveLen(2))
		Expect(available(types["p2.2c_4g"])).To(BeEmpty())
		Expect(types["p2.2c_4g"].Offerings[0].Price).To(BeNumerically(">", 0))
	})
	DescribeTable("should make a zone that lacks one of them no domain of topology spread",
		func(ctx context.Context, edit func(*v1alpha1.BizflyNodeClassSpec), missing string) {
			edit(&nodeClass.Spec)
			source.change(func(s *catalog.Snapshot) {
				s.VolumeTypes = lo.Map(s.VolumeTypes, func(t *gobizfly.VolumeType, _ int) *gobizfly.VolumeType {
					changed := *t
					if t.Name == missing {
						changed.AvailabilityZones = []string{"HN2"}
					}
					return &changed
				})
			})
			it := r.list(ctx, nodeClass)["p2.2c_4g"]
			Expect(available(it)).To(ConsistOf("HN2"))
			Expect(zonesOf(it)).To(ConsistOf("HN2"))
			Expect(it.Offerings).To(HaveLen(2), "what is not available is not gone")
			Expect(zonesOf(r.list(ctx, newNodeClass("HN1", "HN2"))["b2.2c_4g"])).To(ConsistOf("HN1", "HN2"))
		},
		Entry("the root disk by its medium", func(*v1alpha1.BizflyNodeClassSpec) {}, "Premium-SSD"),
		Entry("the root disk by its name", func(s *v1alpha1.BizflyNodeClassSpec) { s.RootDisk = &v1alpha1.RootDisk{VolumeType: "Premium-HDD"} }, "Premium-HDD"),
		Entry("a data disk by its medium", func(s *v1alpha1.BizflyNodeClassSpec) {
			s.DataDisks = []v1alpha1.DataDisk{{Size: size(), Medium: v1alpha1.DiskMediumHDD}}
		}, "Premium-HDD"),
	)
	It("should keep a flavor whose volume type is not listed for a while, unavailable", func(ctx context.Context) {
		source.change(func(s *catalog.Snapshot) { s.VolumeTypes = nil })
		it := r.list(ctx, nodeClass)["p2.2c_4g"]
		Expect(available(it)).To(BeEmpty())
		Expect(it.Offerings).To(HaveLen(2))
	})
})

var _ = Describe("Flavors that are not for us", func() {
	It("should be logged once with the reason, however often the catalog is read", func(ctx context.Context) {
		said := &bytes.Buffer{}
		ctx = log.IntoContext(ctx, zap.New(zap.WriteTo(said)))
		source := newHandmade(newFlavor("p2.2c_4g"), newFlavor("2c_2g_vps"), newFlavor("broken", withSize(0, 0)))
		r := newRoom(source, env.Client)
		for range 3 {
			for _, nodeClass := range []*v1alpha1.BizflyNodeClass{newNodeClass("HN1"), newNodeClass("HN2")} {
				Expect(r.List(ctx, nodeClass)).Error().NotTo(HaveOccurred())
			}
			source.change(func(*catalog.Snapshot) {})
		}
		Expect(strings.Split(strings.TrimSpace(said.String()), "\n")).To(ConsistOf(
			And(ContainSubstring("2c_2g_vps"), ContainSubstring("another product")),
			And(ContainSubstring("broken"), ContainSubstring("no CPU or no memory")),
		))
	})
})
