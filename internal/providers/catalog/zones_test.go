// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Zones", func() {
	var snapshot *catalog.Snapshot

	BeforeEach(func() {
		snapshot = &catalog.Snapshot{
			Region: gobizfly.Region{Active: true, ShortName: "HN", RegionName: "HaNoi", Zones: []gobizfly.AvailabilityZone{
				{ShortName: "HN2", Active: true}, {ShortName: "HN1", Active: false}, {ShortName: "not a label", Active: true},
				{ShortName: "HN2", Active: true}, {ShortName: ""},
			}},
			VolumeTypes: []*gobizfly.VolumeType{
				{Name: "BASIC_SSD1", Category: "basic", Type: "SSD", AvailabilityZones: []string{"HN1", "HN2"}},
				{Name: "PREMIUM-HDD1", Category: "premium", Type: "PREMIUM HDD", AvailabilityZones: []string{"HN1"}},
				{Name: "PREMIUM-SSD1", Category: "premium", Type: "PREMIUM SSD", AvailabilityZones: []string{"HN1"}},
				{Name: "PREMIUM-SSD2", Category: "Premium", Type: "premium ssd", AvailabilityZones: []string{"HN1", "HN2"}},
				{Name: "PREMIUM_SSD_OLD", Category: "enterprise"},
				{Name: "PREMIUM-NVME1", Category: "premium", Type: "PREMIUM NVME", AvailabilityZones: []string{"HN3", "HN4"}},
				{Name: "PREMIUM-SSD9", Category: "premium", Type: "PREMIUM SSD", AvailabilityZones: []string{"HN4"}},
				{Name: "TAPE", Category: "dedicated", Type: "TAPE", AvailabilityZones: []string{"HN1"}},
			},
		}
	})
	It("should list the zones by name, closed ones included, without invalid labels", func() {
		Expect(snapshot.Zones()).To(Equal([]catalog.Zone{{Name: "HN1", Active: false}, {Name: "HN2", Active: true}}))
	})
	It("should close every zone of a closed region", func() {
		snapshot.Region.Active = false
		Expect(snapshot.Zones()).To(HaveEach(HaveField("Active", false)))
	})
	It("should label the region with its short name, as the cloud controller manager does", func() {
		Expect(snapshot.RegionLabel()).To(Equal("HN"))
	})
	DescribeTable("should choose the volume type of medium, category and zone",
		func(in, category string, disk v1alpha1.DiskMedium, expected string) {
			name, ok := snapshot.VolumeType(in, category, disk)
			Expect(ok).To(Equal(expected != ""))
			Expect(name).To(Equal(expected))
		},
		Entry("the first of several by name", "HN1", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-SSD1"),
		Entry("only one that is in the zone", "HN2", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-SSD2"),
		Entry("another medium", "HN1", "premium", v1alpha1.DiskMediumHDD, "PREMIUM-HDD1"),
		Entry("none where there is none", "HN2", "premium", v1alpha1.DiskMediumHDD, ""),
		Entry("a short type", "HN2", "basic", v1alpha1.DiskMediumSSD, "BASIC_SSD1"),
		Entry("one that says its medium in its name and names no zones", "HN2", "enterprise", v1alpha1.DiskMediumSSD, "PREMIUM_SSD_OLD"),
		Entry("NVMe for SSD where there is nothing else", "HN3", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-NVME1"),
		Entry("no NVMe where there is SSD", "HN4", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-SSD9"),
		Entry("no NVMe for HDD", "HN3", "premium", v1alpha1.DiskMediumHDD, ""),
		Entry("none of a medium that we do not know", "HN1", "dedicated", v1alpha1.DiskMediumSSD, ""),
	)
	DescribeTable("should know a volume type by name",
		func(in, category, name string, expected bool) {
			Expect(snapshot.HasVolumeType(in, category, name)).To(Equal(expected))
		},
		Entry("in its zone", "HN1", "premium", "PREMIUM-SSD1", true),
		Entry("not in another zone", "HN2", "premium", "PREMIUM-SSD1", false),
		Entry("not for another category", "HN1", "basic", "PREMIUM-SSD1", false),
		Entry("not one that does not exist", "HN1", "premium", "", false),
	)
	It("should list the volume types of a zone", func() {
		Expect(snapshot.VolumeTypesIn("HN2")).To(Equal([]string{"BASIC_SSD1", "PREMIUM-SSD2", "PREMIUM_SSD_OLD"}))
	})
	It("should list the categories of flavors", func() {
		snapshot.Flavors = []*gobizfly.ServerFlavorResponse{{Category: "Premium"}, {Category: "Basic"}, {Category: "Dedicated"}, {Category: "premium"}, {}}
		Expect(snapshot.Categories()).To(Equal([]string{"basic", "dedicated", "premium"}))
	})
	It("should read the disks of a NodeClass, the root disk first and with every default", func() {
		spec := &v1alpha1.BizflyNodeClassSpec{}
		Expect(catalog.Disks(spec)).To(Equal([]catalog.Disk{{Field: "spec.rootDisk", GiB: 40, Type: v1alpha1.DiskMediumSSD}}))
		spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("60Gi")), VolumeType: "PREMIUM-HDD1"}
		spec.DataDisks = []v1alpha1.DataDisk{{Size: lo.ToPtr(resource.MustParse("100Gi")), Medium: v1alpha1.DiskMediumHDD}}
		Expect(catalog.Disks(spec)).To(Equal([]catalog.Disk{
			{Field: "spec.rootDisk", GiB: 60, VolumeType: "PREMIUM-HDD1"}, {Field: "spec.dataDisks[0]", GiB: 100, Type: v1alpha1.DiskMediumHDD},
		}))
	})
	It("should give a disk the volume type that it names or that its medium has there", func() {
		for disk, expected := range map[catalog.Disk]string{
			{VolumeType: "PREMIUM-SSD2"}:    "PREMIUM-SSD2",
			{VolumeType: "PREMIUM-SSD1"}:    "",
			{Type: v1alpha1.DiskMediumSSD}:  "PREMIUM-SSD2",
			{Type: v1alpha1.DiskMediumHDD}:  "",
			{VolumeType: "PREMIUM_SSD_OLD"}: "",
		} {
			name, ok := disk.In(snapshot, "HN2", "premium")
			Expect(ok).To(Equal(expected != ""), "%+v", disk)
			if ok {
				Expect(name).To(Equal(expected))
			}
		}
		Expect(catalog.Disk{Field: "spec.rootDisk", VolumeType: "X"}.String()).To(Equal(`spec.rootDisk.volumeType "X"`))
		Expect(catalog.Disk{Field: "spec.dataDisks[1]", Type: v1alpha1.DiskMediumHDD}.String()).To(Equal(`spec.dataDisks[1].medium "HDD"`))
	})
})
