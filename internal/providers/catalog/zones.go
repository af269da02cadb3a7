// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Zone is one availability zone.
type Zone struct {
	// Name is the zone's name everywhere: in the API, on nodes and on volumes, for example HN1.
	Name string
	// Active is false when BizFly Cloud has closed the zone for new servers.
	Active bool
}

// Zones returns the zones of the region, sorted by name, closed ones included. A zone whose name cannot be a label's
// value is left out, since no node could have it.
func (s *Snapshot) Zones() []Zone {
	var zones []Zone
	for _, zone := range s.Region.Zones {
		if zone.ShortName != "" && len(validation.IsValidLabelValue(zone.ShortName)) == 0 {
			zones = append(zones, Zone{Name: zone.ShortName, Active: zone.Active && s.Region.Active})
		}
	}
	slices.SortFunc(zones, func(a, b Zone) int { return strings.Compare(a.Name, b.Name) })
	return lo.UniqBy(zones, func(z Zone) string { return z.Name })
}

// RegionLabel returns the value of topology.kubernetes.io/region, byte for byte what the cloud controller manager
// writes: its own configured short name, for example HN.
func (s *Snapshot) RegionLabel() string { return lo.CoalesceOrEmpty(s.regionLabel, s.Region.ShortName) }

// VolumeType returns the name of the volume type of this medium that servers of the category can have in the zone, and
// false where there is none. Of several, the alphabetically first is used, so that the answer is stable; NVMe only
// where there is no other SSD.
func (s *Snapshot) VolumeType(zone, category string, medium v1alpha1.DiskMedium) (string, bool) {
	// The catalog sorts volume types by name.
	types := lo.Filter(s.VolumeTypes, func(t *gobizfly.VolumeType, _ int) bool {
		of, known := Medium(t)
		return known && of == medium && offered(t, zone, category)
	})
	found, ok := lo.Find(types, func(t *gobizfly.VolumeType) bool { return !isNVMe(t) })
	if !ok && len(types) > 0 {
		found, ok = types[0], true
	}
	if !ok {
		return "", false
	}
	return found.Name, true
}

// HasVolumeType reports whether the named volume type exists for the category in the zone.
func (s *Snapshot) HasVolumeType(zone, category, volumeType string) bool {
	return lo.ContainsBy(s.VolumeTypes, func(t *gobizfly.VolumeType) bool {
		return t.Name == volumeType && offered(t, zone, category)
	})
}

// VolumeTypesIn returns the names of the volume types of all categories in the zone, sorted.
func (s *Snapshot) VolumeTypesIn(zone string) []string {
	names := lo.FilterMap(s.VolumeTypes, func(t *gobizfly.VolumeType, _ int) (string, bool) {
		return t.Name, offered(t, zone, t.Category)
	})
	slices.Sort(names)
	return lo.Uniq(names)
}

// Categories returns the categories of flavors, in lower case and sorted.
func (s *Snapshot) Categories() []string {
	names := lo.FilterMap(s.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) (string, bool) {
		return strings.ToLower(f.Category), f.Category != ""
	})
	slices.Sort(names)
	return lo.Uniq(names)
}

// Medium returns the medium of a volume type. The API writes it as "SSD" or with the category before it ("PREMIUM
// SSD"); older types have it in their name only (PREMIUM-SSD1). NVMe disks (PREMIUM-NVME1) are SSD.
func Medium(volumeType *gobizfly.VolumeType) (v1alpha1.DiskMedium, bool) {
	if isNVMe(volumeType) {
		return v1alpha1.DiskMediumSSD, true
	}
	for _, text := range []string{volumeType.Type, volumeType.Name} {
		for _, medium := range []v1alpha1.DiskMedium{v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD} {
			if strings.Contains(strings.ToUpper(text), string(medium)) {
				return medium, true
			}
		}
	}
	return "", false
}

func isNVMe(volumeType *gobizfly.VolumeType) bool {
	return strings.Contains(strings.ToUpper(volumeType.Type+volumeType.Name), "NVME")
}

// offered reports whether servers of the category in the zone can have the volume type; one without zones is in all of
// them.
func offered(volumeType *gobizfly.VolumeType, zone, category string) bool {
	return volumeType.Name != "" && strings.EqualFold(volumeType.Category, category) &&
		(len(volumeType.AvailabilityZones) == 0 || slices.Contains(volumeType.AvailabilityZones, zone))
}

const bytesPerGiB = 1 << 30

// Disk is a disk that a NodeClass specifies.
type Disk struct {
	// Field is where it is specified, for example spec.dataDisks[0].
	Field string
	// GiB is its size in GiB.
	GiB int
	// Type is the medium; it is empty where VolumeType is set.
	Type v1alpha1.DiskMedium
	// VolumeType is a volume type by its name, or empty.
	VolumeType string
}

// Disks returns the disks of each server, the root disk first, with the defaults of unset fields.
func Disks(spec *v1alpha1.BizflyNodeClassSpec) []Disk {
	root := spec.EffectiveRootDisk()
	disks := []Disk{newDisk("spec.rootDisk", root.Size, root.Medium, root.VolumeType)}
	for i, data := range spec.DataDisks {
		disks = append(disks, newDisk(fmt.Sprintf("spec.dataDisks[%d]", i), data.Size, data.Medium, data.VolumeType))
	}
	return disks
}

func newDisk(field string, size *resource.Quantity, medium v1alpha1.DiskMedium, volumeType string) Disk {
	disk := Disk{Field: field, Type: v1alpha1.EffectiveMedium(medium, volumeType), VolumeType: volumeType}
	if size != nil {
		disk.GiB = int((size.Value() + bytesPerGiB - 1) / bytesPerGiB)
	}
	return disk
}

// In returns the name of the volume type that the disk gets in the zone with a server of the category, and false where
// there is none.
func (d Disk) In(snapshot *Snapshot, zone, category string) (string, bool) {
	if d.VolumeType != "" {
		return d.VolumeType, snapshot.HasVolumeType(zone, category, d.VolumeType)
	}
	return snapshot.VolumeType(zone, category, d.Type)
}

// String returns the field that decides and its value, for messages.
func (d Disk) String() string {
	if d.VolumeType != "" {
		return fmt.Sprintf("%s.volumeType %q", d.Field, d.VolumeType)
	}
	return fmt.Sprintf("%s.medium %q", d.Field, d.Type)
}
