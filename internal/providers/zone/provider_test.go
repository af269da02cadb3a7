/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package zone_test

import (
	"context"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Zones", func() {
	var snapshot *catalog.Snapshot
	var provider *zone.DefaultProvider

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
				{Name: "TAPE", Category: "dedicated", Type: "TAPE", AvailabilityZones: []string{"HN1"}},
			},
		}
		provider = zone.NewDefaultProvider(static{snapshot}, zone.Config{})
	})

	It("should list the zones by name, closed ones included, without those that no label could name", func() {
		Expect(provider.Zones()).To(Equal([]zone.Zone{{Name: "HN1", Active: false}, {Name: "HN2", Active: true}}))
	})
	It("should close every zone of a closed region", func() {
		snapshot.Region.Active = false
		Expect(provider.Zones()).To(HaveEach(HaveField("Active", false)))
	})
	It("should say that the catalog is not ready", func() {
		provider = zone.NewDefaultProvider(static{}, zone.Config{})
		_, err := provider.Zones()
		Expect(err).To(MatchError(catalog.ErrNotReady))
		Expect(provider.RegionLabel()).To(BeEmpty())
		Expect(provider.HasVolumeType("HN1", "premium", "PREMIUM-SSD1")).To(BeFalse())
		_, ok := provider.VolumeType("HN1", "premium", v1alpha1.DiskMediumSSD)
		Expect(ok).To(BeFalse())
	})
	It("should label the region with its short name, as the cloud controller manager does by default", func() {
		Expect(provider.RegionLabel()).To(Equal("HN"))
	})
	It("should label the region as it is told to", func() {
		Expect(zone.NewDefaultProvider(static{snapshot}, zone.Config{RegionLabel: "hanoi"}).RegionLabel()).To(Equal("hanoi"))
	})
	DescribeTable("should choose the volume type of medium, category and zone",
		func(in, category string, disk v1alpha1.DiskMedium, expected string) {
			name, ok := provider.VolumeType(in, category, disk)
			Expect(ok).To(Equal(expected != ""))
			Expect(name).To(Equal(expected))
		},
		Entry("the first of several by name", "HN1", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-SSD1"),
		Entry("only one that is in the zone", "HN2", "premium", v1alpha1.DiskMediumSSD, "PREMIUM-SSD2"),
		Entry("another medium", "HN1", "premium", v1alpha1.DiskMediumHDD, "PREMIUM-HDD1"),
		Entry("none where there is none", "HN2", "premium", v1alpha1.DiskMediumHDD, ""),
		Entry("a short type", "HN2", "basic", v1alpha1.DiskMediumSSD, "BASIC_SSD1"),
		Entry("one that says its medium in its name and names no zones", "HN2", "enterprise", v1alpha1.DiskMediumSSD, "PREMIUM_SSD_OLD"),
		Entry("none of a medium that we do not know", "HN1", "dedicated", v1alpha1.DiskMediumSSD, ""),
	)
	DescribeTable("should know a volume type by name",
		func(in, category, name string, expected bool) {
			Expect(provider.HasVolumeType(in, category, name)).To(Equal(expected))
		},
		Entry("in its zone", "HN1", "premium", "PREMIUM-SSD1", true),
		Entry("not in another zone", "HN2", "premium", "PREMIUM-SSD1", false),
		Entry("not for another category", "HN1", "basic", "PREMIUM-SSD1", false),
		Entry("not one that does not exist", "HN1", "premium", "", false),
	)
	It("should list the volume types of a zone", func() {
		Expect(provider.VolumeTypes("HN2")).To(Equal([]string{"BASIC_SSD1", "PREMIUM-SSD2", "PREMIUM_SSD_OLD"}))
		Expect(zone.NewDefaultProvider(static{}, zone.Config{}).VolumeTypes("HN2")).To(BeEmpty())
	})
	It("should list the categories, closed ones included, which come back", func() {
		snapshot.ServerTypes = []*gobizfly.ServerType{{Name: "Premium", Enabled: true}, {Name: "Basic", Enabled: true}, {Name: "Dedicated"}}
		Expect(provider.Categories()).To(Equal([]string{"basic", "dedicated", "premium"}))
		Expect(zone.NewDefaultProvider(static{}, zone.Config{}).Categories()).To(BeEmpty())
	})
	It("should read the disks of a NodeClass, the root disk first and with every default", func() {
		spec := &v1alpha1.BizflyNodeClassSpec{}
		Expect(zone.Disks(spec)).To(Equal([]zone.Disk{{Field: "spec.rootDisk", GiB: 40, Type: v1alpha1.DiskMediumSSD}}))
		spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("60Gi")), VolumeType: "PREMIUM-HDD1"}
		spec.DataDisks = []v1alpha1.DataDisk{{Size: lo.ToPtr(resource.MustParse("100Gi")), Medium: v1alpha1.DiskMediumHDD}}
		Expect(zone.Disks(spec)).To(Equal([]zone.Disk{
			{Field: "spec.rootDisk", GiB: 60, VolumeType: "PREMIUM-HDD1"}, {Field: "spec.dataDisks[0]", GiB: 100, Type: v1alpha1.DiskMediumHDD},
		}))
	})
	It("should give a disk the volume type that it names or that its medium has there", func() {
		for disk, expected := range map[zone.Disk]string{
			{VolumeType: "PREMIUM-SSD2"}:    "PREMIUM-SSD2",
			{VolumeType: "PREMIUM-SSD1"}:    "",
			{Type: v1alpha1.DiskMediumSSD}:  "PREMIUM-SSD2",
			{Type: v1alpha1.DiskMediumHDD}:  "",
			{VolumeType: "PREMIUM_SSD_OLD"}: "",
		} {
			name, ok := disk.In(provider, "HN2", "premium")
			Expect(ok).To(Equal(expected != ""), "%+v", disk)
			if ok {
				Expect(name).To(Equal(expected))
			}
		}
		Expect(zone.Disk{Field: "spec.rootDisk", VolumeType: "X"}.String()).To(Equal(`spec.rootDisk.volumeType "X"`))
		Expect(zone.Disk{Field: "spec.dataDisks[1]", Type: v1alpha1.DiskMediumHDD}.String()).To(Equal(`spec.dataDisks[1].medium "HDD"`))
	})
})

// static is a catalog that never changes.
type static struct{ snapshot *catalog.Snapshot }

func (s static) Snapshot() (*catalog.Snapshot, error) {
	if s.snapshot == nil {
		return nil, catalog.ErrNotReady
	}
	return s.snapshot, nil
}

func (s static) Refresh(context.Context) error { return nil }
