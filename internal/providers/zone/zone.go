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

// Package zone knows the zones of the configured region and what each can host.
package zone

import (
	"fmt"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Zone is one availability zone.
type Zone struct {
	// Name is the zone's name everywhere: in the API, on nodes and on volumes, for example HN1.
	Name string
	// Active is false when the cloud has closed the zone for new servers.
	Active bool
}

// Provider answers from the catalog's snapshot; every error is catalog.ErrNotReady.
type Provider interface {
	// Zones returns the zones of the region, sorted by name, closed ones included.
	Zones() ([]Zone, error)
	// RegionLabel is the value of topology.kubernetes.io/region, byte for byte what the cloud controller manager
	// writes: its own configured short name, for example HN.
	RegionLabel() string
	// VolumeType returns the name of the volume type of this medium that servers of the category can have in the zone,
	// and false where there is none. Of several, the alphabetically first is used, so that the answer is stable.
	VolumeType(zone, category string, disk v1alpha1.DiskMedium) (string, bool)
	// HasVolumeType says whether the named volume type exists for the category in the zone.
	HasVolumeType(zone, category, volumeType string) bool
	// VolumeTypes returns the names of the volume types of all categories in the zone, sorted.
	VolumeTypes(zone string) []string
	// Categories returns the categories in which servers are sold, those that are closed today included, in lower case and
	// sorted.
	Categories() []string
}

const bytesPerGiB = 1 << 30

// Disk is a disk that a NodeClass asks for.
type Disk struct {
	// Field is where it is asked for, for example spec.dataDisks[0].
	Field string
	// GiB is its size in GiB.
	GiB int
	// Type is the medium; it is empty where VolumeType says it.
	Type v1alpha1.DiskMedium
	// VolumeType is a volume type by its name, or empty.
	VolumeType string
}

// Disks are the disks of each server, the root disk first, with the defaults of what is not said.
func Disks(spec *v1alpha1.BizflyNodeClassSpec) []Disk {
	root := lo.FromPtr(spec.RootDisk)
	size := lo.CoalesceOrEmpty(root.Size, lo.ToPtr(resource.MustParse(v1alpha1.DefaultRootDiskSize)))
	disks := []Disk{newDisk("spec.rootDisk", size, root.Medium, root.VolumeType)}
	for i, data := range spec.DataDisks {
		disks = append(disks, newDisk(fmt.Sprintf("spec.dataDisks[%d]", i), data.Size, data.Medium, data.VolumeType))
	}
	return disks
}

func newDisk(field string, size *resource.Quantity, medium v1alpha1.DiskMedium, volumeType string) Disk {
	disk := Disk{Field: field, Type: lo.CoalesceOrEmpty(medium, v1alpha1.DiskMediumSSD), VolumeType: volumeType}
	if volumeType != "" {
		disk.Type = ""
	}
	if size != nil {
		disk.GiB = int((size.Value() + bytesPerGiB - 1) / bytesPerGiB)
	}
	return disk
}

// In returns the name of the volume type that the disk gets in the zone with a server of the category, and false where
// there is none.
func (d Disk) In(zones Provider, zone, category string) (string, bool) {
	if d.VolumeType != "" {
		return d.VolumeType, zones.HasVolumeType(zone, category, d.VolumeType)
	}
	return zones.VolumeType(zone, category, d.Type)
}

// String is the field that decides and its value, for messages.
func (d Disk) String() string {
	if d.VolumeType != "" {
		return fmt.Sprintf("%s.volumeType %q", d.Field, d.VolumeType)
	}
	return fmt.Sprintf("%s.medium %q", d.Field, d.Type)
}
