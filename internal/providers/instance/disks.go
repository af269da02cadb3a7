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

package instance

import (
	"strconv"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// defaultRootDiskGiB is the root disk of a NodeClass that says nothing, as in the API's defaults.
	defaultRootDiskGiB = 40
	bytesPerGiB        = 1 << 30
	// dataDiskInfix begins, after the server's name, the names of the disks that the cloud made with the server.
	dataDiskInfix = "_datadisk"
)

// disks are what is ordered: the disk that the server boots from and then the data disks in their order.
func (p *DefaultProvider) disks(request *LaunchRequest) ([]Disk, error) {
	spec := request.NodeClass.Spec
	root := lo.FromPtr(spec.RootDisk)
	disk, err := p.disk(request, "spec.rootDisk", root.Size, root.Medium, root.VolumeType)
	if err != nil {
		return nil, err
	}
	disks := []Disk{disk}
	for i, data := range spec.DataDisks {
		field := "spec.dataDisks[" + strconv.Itoa(i) + "]"
		if data.Size == nil {
			return nil, invalid("%s.size is required", field)
		}
		if disk, err = p.disk(request, field, data.Size, data.Medium, data.VolumeType); err != nil {
			return nil, err
		}
		disks = append(disks, disk)
	}
	return disks, nil
}

// disk is one disk: its size in whole GiB and the volume type of its medium for the server's category and zone.
func (p *DefaultProvider) disk(request *LaunchRequest, field string, size *resource.Quantity, medium v1alpha1.DiskMedium, volumeType string) (Disk, error) {
	disk := Disk{SizeGiB: defaultRootDiskGiB, VolumeType: volumeType}
	if size != nil {
		disk.SizeGiB = int((size.Value() + bytesPerGiB - 1) / bytesPerGiB)
	}
	if volumeType != "" {
		return disk, nil
	}
	medium = lo.CoalesceOrEmpty(medium, v1alpha1.DiskMediumSSD)
	var ok bool
	if disk.VolumeType, ok = p.zones.VolumeType(request.Zone, request.Category, medium); !ok {
		return disk, invalid("%s.medium: zone %s sells no %s disk for %s servers; choose another medium or set %s.volumeType",
			field, request.Zone, medium, request.Category, field)
	}
	return disk, nil
}

// MediumOf returns the medium that a word of the cloud says, be it the type of a disk or the name of a volume type; empty
// where it says none that we know.
func MediumOf(text string) v1alpha1.DiskMedium {
	medium, _ := lo.Find([]v1alpha1.DiskMedium{v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD}, func(medium v1alpha1.DiskMedium) bool {
		return strings.Contains(strings.ToUpper(text), string(medium))
	})
	return medium
}

// dataDisksOf returns how many data disks a server was ordered with, and false where that was not written down.
func dataDisksOf(server *gobizfly.Server) (int, bool) {
	count, err := strconv.Atoi(v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataDataDisks))
	return count, err == nil && count >= 0
}

// orderedDataDisk says that a disk of a server of ours is one of those that we ordered with it, also where nobody wrote
// down its id: the order had data disks, and the cloud named this one after the order's name, which is unique for ever.
func (p *DefaultProvider) orderedDataDisk(server *gobizfly.Server, volumeName string) bool {
	count, written := dataDisksOf(server)
	return written && count > 0 && dataDiskNamed(volumeName, p.orderedName(server))
}

// strayDisk reports whether a disk is by its name one that a launch made and that was not deleted with its server: the launch
// failed, or the server was deleted outside Karpenter. Where the cloud was told which disks to delete with the server, a data
// disk that is left was detached by a user before, who may want it; where there is a record, what is not on it is not ours;
// and where only the name of a disk is known, nothing tells a detached data disk from one that was never attached.
func strayDisk(volume *gobizfly.Volume, current record) bool {
	if current.Name == "" || volume.Name == rootDiskName(current.Name) {
		return current.Name != ""
	}
	return len(current.Asked) == 0 && !current.Found && dataDiskNamed(volume.Name, current.Name) &&
		(len(current.Recorded) == 0 || lo.Contains(current.Recorded, volume.ID))
}

// dataDiskNamed says that a disk has a name that the cloud gives to the data disks of an order.
func dataDiskNamed(volumeName, serverName string) bool {
	return serverName != "" && strings.HasPrefix(volumeName, serverName+dataDiskInfix)
}
