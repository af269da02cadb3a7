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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	gib = 1 << 30
	mib = 1 << 20
)

// class is a NodeClass as a build of its instance types needs it, resolved once for all flavors.
type class struct {
	nodeClass   *v1alpha1.BizflyNodeClass
	zones       []string // sorted
	active      map[string]bool
	enabled     map[string]bool // by category
	root        pricing.Disk
	data        []pricing.Disk
	billingPlan v1alpha1.BillingPlan
	networkPlan v1alpha1.NetworkPlan
	profile     string
	region      string

	snapshot *catalog.Snapshot
	wanted   []catalog.Disk // the root disk first
	// named says that a volume type is asked for by its name.
	named bool
	// disks remembers by zone and category whether there is a volume type for each disk.
	disks map[[2]string]bool
	// offered are the requirements of an offering by zone, shared by all flavors.
	offered map[string]scheduling.Requirements
}

func newClass(nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot) *class {
	c := &class{
		nodeClass:   nodeClass,
		zones:       slices.Sorted(slices.Values(nodeClass.Status.Zones)),
		active:      lo.SliceToMap(snapshot.Zones(), func(z catalog.Zone) (string, bool) { return z.Name, z.Active }),
		enabled:     map[string]bool{},
		billingPlan: nodeClass.EffectiveBillingPlan(),
		networkPlan: nodeClass.EffectiveNetworkPlan(),
		profile:     profileOf(nodeClass),
		region:      snapshot.RegionLabel(),
		snapshot:    snapshot,
		wanted:      catalog.Disks(&nodeClass.Spec),
		disks:       map[[2]string]bool{},
		offered:     map[string]scheduling.Requirements{},
	}
	for _, t := range snapshot.ServerTypes {
		c.enabled[strings.ToLower(t.Name)] = t.Enabled
	}
	priced := lo.Map(c.wanted, func(disk catalog.Disk, _ int) pricing.Disk {
		c.named = c.named || disk.VolumeType != ""
		return pricing.Disk{GiB: disk.GiB, Type: mediumOf(snapshot, disk)}
	})
	c.root, c.data = priced[0], priced[1:]
	return c
}

// mediumOf returns the medium of a disk for its price; a volume type that does not say it is taken for SSD, the dearer.
func mediumOf(snapshot *catalog.Snapshot, disk catalog.Disk) v1alpha1.DiskMedium {
	if disk.VolumeType == "" {
		return disk.Type
	}
	if found, ok := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool { return t.Name == disk.VolumeType }); ok {
		if medium, known := catalog.Medium(found); known {
			return medium
		}
	}
	return v1alpha1.DiskMediumSSD
}

// selects says whether the NodeClass wants the flavor.
func (c *class) selects(f *facts) bool {
	terms := c.nodeClass.Spec.FlavorSelectorTerms
	return len(terms) == 0 || lo.SomeBy(terms, f.matches)
}

// usableZones are the zones of the class in which the flavor can ever be launched; none when it cannot be used at all.
func (c *class) usableZones(f *facts) []string {
	if f.hidden || !f.soldWith(c.billingPlan) || !c.selects(f) {
		return nil
	}
	zones := lo.Filter(c.zones, func(zone string, _ int) bool { return f.soldIn(zone) })
	// A volume type that is asked for by name belongs to one category for good. One that is only chosen by its medium
	// may appear any day, so that its absence makes offerings unavailable and not flavors vanish.
	if c.named && len(c.domains(f, zones)) == 0 {
		return nil
	}
	return zones
}

// domains are those of the zones in which each disk can be had at all, and hence a server: over them pods are spread. A
// zone without such a volume type would be one that no pod can ever be in, and keep the others waiting for it; a zone that
// is sold out is one, because it comes back.
func (c *class) domains(f *facts, zones []string) []string {
	return lo.Filter(zones, func(zone string, _ int) bool { return c.hasDisks(zone, f.category) })
}

// sellable says whether the flavor can be launched in the zone as far as catalog and NodeClass go.
func (c *class) sellable(f *facts, zone string) bool {
	return c.active[zone] && c.enabled[f.category] && c.hasDisks(zone, f.category)
}

func (c *class) hasDisks(in, category string) bool {
	key := [2]string{in, category}
	has, known := c.disks[key]
	if !known {
		has = lo.EveryBy(c.wanted, func(disk catalog.Disk) bool {
			_, ok := disk.In(c.snapshot, in, category)
			return ok
		})
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
