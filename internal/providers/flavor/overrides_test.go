// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"

	"github.com/bizflycloud/gobizfly"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Overrides of flavors", func() {
	var source *handmade
	var r *room
	BeforeEach(func() {
		source = newHandmade(newFlavor("p2.2c_4g"), newFlavor("p2.8c_32g", withSize(8, 32768), func(f *gobizfly.ServerFlavorResponse) {
			f.Generation.Code, f.Generation.Vendor = "2", "Intel"
		}))
		r = newRoom(source, env.Client)
	})
	overridden := func(ctx context.Context, override options.FlavorOverride) scheduling.Requirements {
		GinkgoHelper()
		nodeClass := newNodeClass("HN1")
		before := r.list(ctx, nodeClass)
		r.tune(func(o *options.Options) { o.FlavorOverrides = map[string]options.FlavorOverride{"p2.8c_32g": override} })
		after := r.list(ctx, nodeClass)
		Expect(after["p2.2c_4g"].Requirements).To(Equal(before["p2.2c_4g"].Requirements), "another flavor has changed")
		if after["p2.8c_32g"] == nil {
			return nil
		}
		return after["p2.8c_32g"].Requirements
	}

	DescribeTable("should set a label", func(ctx context.Context, override options.FlavorOverride, key, value string) {
		Expect(overridden(ctx, override).Get(key).Values()).To(ConsistOf(value))
		Expect(source.snapshot.Flavors[1].GPU).To(BeNil(), "the shared catalog was edited")
		Expect(source.snapshot.Flavors[1].Generation.Code).To(Equal("2"))
	},
		Entry("the category", options.FlavorOverride{Category: "dedicated"}, v1alpha1.LabelInstanceCategory, "dedicated"),
		Entry("the generation", options.FlavorOverride{Generation: "9z"}, v1alpha1.LabelInstanceGeneration, "9z"),
		Entry("the vendor", options.FlavorOverride{CPUVendor: "amd"}, v1alpha1.LabelInstanceCPUManufacturer, "amd"),
		Entry("the GPU's name", options.FlavorOverride{GPUName: "NVIDIA L40S", GPUCount: lo.ToPtr(2)}, v1alpha1.LabelInstanceGPUName, "NVIDIA-L40S"),
		Entry("the number of GPUs", options.FlavorOverride{GPUName: "NVIDIA L40S", GPUCount: lo.ToPtr(2)}, v1alpha1.LabelInstanceGPUCount, "2"),
	)
	It("should order in the category that they say", func(ctx context.Context) {
		overridden(ctx, options.FlavorOverride{Category: "dedicated"})
		category, known := r.Category("p2.8c_32g")
		Expect(known).To(BeTrue())
		Expect(category).To(Equal("dedicated"))
	})
	It("should hide a flavor", func(ctx context.Context) {
		Expect(overridden(ctx, options.FlavorOverride{Hidden: true})).To(BeNil())
	})
	It("should keep a hidden flavor that a node runs on, and not sell it", func(ctx context.Context) {
		nodeClass := newNodeClass("HN1")
		claim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClass.Name},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
		}}
		claim.Name = "hidden-flavor"
		claim.Labels = map[string]string{corev1.LabelInstanceTypeStable: "p2.8c_32g", corev1.LabelTopologyZone: "HN1"}
		Expect(env.Client.Create(ctx, claim)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(env.Client.Delete(ctx, claim)).To(Succeed()) })
		r.tune(func(o *options.Options) {
			o.FlavorOverrides = map[string]options.FlavorOverride{"p2.8c_32g": {Hidden: true}}
		})
		types := r.list(ctx, nodeClass)
		Expect(types).To(HaveKey("p2.8c_32g"))
		Expect(types["p2.8c_32g"].Offerings.Available()).To(BeEmpty())
		Expect(types["p2.8c_32g"].Offerings).To(HaveEach(HaveField("Price", BeNumerically(">", 0))))
	})
})

var _ = Describe("Flavors that are not for us", func() {
	It("should be logged once with the reason, however often the catalog is read", func(ctx context.Context) {
		var lines []string
		ctx = log.IntoContext(ctx, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		source := newHandmade(newFlavor("p2.2c_4g"), newFlavor("2c_2g_vps"), newFlavor("broken", withSize(0, 0)))
		r := newRoom(source, env.Client)
		for range 3 {
			for _, nodeClass := range []*v1alpha1.BizflyNodeClass{newNodeClass("HN1"), newNodeClass("HN2")} {
				_, err := r.List(ctx, nodeClass)
				Expect(err).NotTo(HaveOccurred())
			}
			source.change(func(*catalog.Snapshot) {})
		}
		Expect(lines).To(ConsistOf(
			And(ContainSubstring("2c_2g_vps"), ContainSubstring("another product")),
			And(ContainSubstring("broken"), ContainSubstring("no CPU or no memory")),
		))
	})
})
