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

package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxVolumeTypes is how many entries the status may have.
	maxVolumeTypes = 64
	// diskStepGiB is in which steps disks are sold.
	diskStepGiB = 10
)

// disksReconciler checks whether there is a zone and a category in which all disks of a server are available, and whether the
// root disk is large enough for the image.
type disksReconciler struct {
	catalog catalog.Provider
}

func (*disksReconciler) conditionType() string { return v1alpha1.ConditionTypeDisksReady }

func (c *disksReconciler) resolve(_ context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	snapshot, err := c.catalog.Snapshot()
	if err != nil {
		return unavailable(err)
	}
	if len(nodeClass.Status.Zones) == 0 {
		return awaiting(reasonAwaitingZones, "volume types depend on the zones, which are not known yet")
	}
	disks := catalog.Disks(&nodeClass.Spec)
	if image := nodeClass.Status.Image(); image != nil && int(image.MinDiskGiB) > disks[0].GiB {
		return missing(reasonRootDiskTooSmall, fmt.Sprintf("spec.rootDisk.size: %dGi is too small for the %s %s (%s), which needs %dGi; set at least %dGi",
			disks[0].GiB, lo.CoalesceOrEmpty(image.Type, v1alpha1.ImageTypeImage), image.Name, image.ID, image.MinDiskGiB,
			(image.MinDiskGiB+diskStepGiB-1)/diskStepGiB*diskStepGiB))
	}
	var found []v1alpha1.VolumeTypeStatus
	var without []string
	for _, in := range nodeClass.Status.Zones {
		here := volumeTypes(snapshot, disks, in)
		if len(here) == 0 {
			without = append(without, in)
		}
		found = append(found, here...)
	}
	if len(found) == 0 {
		return unavailableDisks(snapshot, disks, nodeClass.Status.Zones)
	}
	nodeClass.Status.VolumeTypes = found[:min(len(found), maxVolumeTypes)]
	return fine(lo.Map(without, func(in string, _ int) string {
		return fmt.Sprintf("zone %s does not sell %s, so that no server is launched there", in, describe(disks))
	})...)
}

// volumeTypes are those that root disks get in the zone, for the categories in which all disks can be had.
func volumeTypes(snapshot *catalog.Snapshot, disks []catalog.Disk, in string) []v1alpha1.VolumeTypeStatus {
	return lo.FilterMap(snapshot.Categories(), func(category string, _ int) (v1alpha1.VolumeTypeStatus, bool) {
		sold := lo.EveryBy(disks, func(disk catalog.Disk) bool {
			_, ok := disk.In(snapshot, in, category)
			return ok
		})
		name, _ := disks[0].In(snapshot, in, category)
		return v1alpha1.VolumeTypeStatus{Zone: in, Category: category, Name: name}, sold
	})
}

// unavailableDisks names the disk that is available nowhere or, where each is, that they are not available together.
func unavailableDisks(snapshot *catalog.Snapshot, disks []catalog.Disk, zones []string) result {
	available := lookup.Shorten(lo.FlatMap(zones, func(in string, _ int) []string { return snapshot.VolumeTypesIn(in) }))
	for _, disk := range disks {
		if !slices.ContainsFunc(zones, func(in string) bool { return len(volumeTypes(snapshot, []catalog.Disk{disk}, in)) > 0 }) {
			return missing(reasonDiskNotSold, fmt.Sprintf("%s is not sold in zones %v; volume types there: %v; use %s.medium (SSD or HDD) or one of these",
				disk, zones, available, disk.Field))
		}
	}
	return missing(reasonDisksNotTogether, fmt.Sprintf(
		"%s are each sold in zones %v, but no zone sells all of them for servers of one category; volume types there: %v; use medium (SSD or HDD) or volume types "+
			"of one category",
		describe(disks), zones, available))
}

func describe(disks []catalog.Disk) string {
	return strings.Join(lo.Uniq(lo.Map(disks, func(disk catalog.Disk, _ int) string { return disk.String() })), ", ")
}
