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

package flavor

import (
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	gib = 1 << 30
	mib = 1 << 20
	// defaultRootDiskGiB is the default of spec.rootDisk.size, for objects that did not pass the API server.
	defaultRootDiskGiB = 40
)

// class is a NodeClass as a build of its instance types needs it, resolved once for all flavors.
type class struct {
	nodeClass   *v1alpha1.BizflyNodeClass
	zones       []string // sorted
	active      map[string]bool
	enabled     map[string]bool // by category
	diskGiB     int
	diskType    v1alpha1.DiskType
	volumeType  string // the one that is asked for by name, or empty
	billingPlan v1alpha1.BillingPlan
	networkPlan v1alpha1.NetworkPlan
	region      string

	zoneProvider zone.Provider
	// disks remembers by zone and category whether there is a volume type for the root disk.
	disks map[[2]string]bool
	// offered are the requirements of an offering by zone, shared by all flavors.
	offered map[string]scheduling.Requirements
}

func (p *DefaultProvider) newClass(nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot) (*class, error) {
	zones, err := p.zones.Zones()
	if err != nil {
		return nil, err
	}
	c := &class{
		nodeClass:    nodeClass,
		zones:        slices.Sorted(slices.Values(nodeClass.Status.Zones)),
		active:       lo.SliceToMap(zones, func(z zone.Zone) (string, bool) { return z.Name, z.Active }),
		enabled:      map[string]bool{},
		diskGiB:      defaultRootDiskGiB,
		diskType:     v1alpha1.DiskTypeSSD,
		billingPlan:  lo.CoalesceOrEmpty(nodeClass.Spec.BillingPlan, v1alpha1.BillingPlanOnDemand),
		networkPlan:  lo.CoalesceOrEmpty(nodeClass.Spec.NetworkPlan, v1alpha1.NetworkPlanFreeDataTransfer),
		region:       p.zones.RegionLabel(),
		zoneProvider: p.zones,
		disks:        map[[2]string]bool{},
		offered:      map[string]scheduling.Requirements{},
	}
	for _, t := range snapshot.ServerTypes {
		c.enabled[strings.ToLower(t.Name)] = t.Enabled
	}
	if disk := nodeClass.Spec.RootDisk; disk != nil {
		if disk.Size != nil {
			c.diskGiB = int((disk.Size.Value() + gib - 1) / gib)
		}
		c.diskType = lo.CoalesceOrEmpty(disk.Type, c.diskType)
		if c.volumeType = disk.VolumeType; c.volumeType != "" {
			c.diskType = mediumOf(snapshot, c.volumeType)
		}
	}
	return c, nil
}

// mediumOf returns the medium of a volume type for its price; one that does not say is taken for SSD, the dearer.
func mediumOf(snapshot *catalog.Snapshot, volumeType string) v1alpha1.DiskType {
	if found, ok := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool { return t.Name == volumeType }); ok {
		if medium, known := zone.Medium(found); known {
			return medium
		}
	}
	return v1alpha1.DiskTypeSSD
}

// usableZones are the zones of the class in which the flavor can ever be launched; none when it cannot be used at all.
func (c *class) usableZones(f *facts) []string {
	if f.hidden || !f.soldWith(c.billingPlan) {
		return nil
	}
	zones := lo.Filter(c.zones, func(zone string, _ int) bool { return f.soldIn(zone) })
	// A volume type that is asked for by name belongs to one category for good. One that is only chosen by its medium
	// may appear any day, so that its absence makes offerings unavailable and not flavors vanish.
	if c.volumeType != "" && !lo.ContainsBy(zones, func(zone string) bool { return c.hasDisk(zone, f.category) }) {
		return nil
	}
	return zones
}

// sellable says whether the flavor can be launched in the zone as far as catalog and NodeClass go.
func (c *class) sellable(f *facts, zone string) bool {
	return c.active[zone] && c.enabled[f.category] && c.hasDisk(zone, f.category)
}

func (c *class) hasDisk(zone, category string) bool {
	key := [2]string{zone, category}
	has, known := c.disks[key]
	if !known {
		if c.volumeType != "" {
			has = c.zoneProvider.HasVolumeType(zone, category, c.volumeType)
		} else {
			_, has = c.zoneProvider.VolumeType(zone, category, c.diskType)
		}
		c.disks[key] = has
	}
	return has
}

// offering returns the requirements of an offering in the zone. They hold zone and capacity type and nothing else: a key
// that core does not know as well-known would make the offering match no claim.
func (c *class) offering(zone string) scheduling.Requirements {
	requirements, ok := c.offered[zone]
	if !ok {
		requirements = scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone),
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand),
		)
		c.offered[zone] = requirements
	}
	return requirements
}
