// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"slices"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// class is a NodeClass as a build of its instance types needs it, resolved once for all flavors.
type class struct {
	nodeClass   *v1alpha1.BizflyNodeClass
	snapshot    *catalog.Snapshot
	settings    *options.Options
	zones       []string        // sorted
	active      map[string]bool // by zone
	billingPlan v1alpha1.BillingPlan
	profile     string
	disks       []catalog.Disk // the root disk first
	priced      []pricing.Disk // the same disks
	// offering is what the offerings of the class have in common for the capacity provider.
	offering capacity.Offering
	// requirements are those of an offering by zone, shared by all flavors.
	requirements map[string]scheduling.Requirements
}

func newClass(nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot, settings *options.Options) *class {
	c := &class{
		nodeClass:    nodeClass,
		snapshot:     snapshot,
		settings:     settings,
		zones:        slices.Sorted(slices.Values(nodeClass.Status.Zones)),
		active:       lo.SliceToMap(snapshot.Zones(), func(z catalog.Zone) (string, bool) { return z.Name, z.Active }),
		billingPlan:  nodeClass.EffectiveBillingPlan(),
		profile:      profileOf(nodeClass),
		disks:        catalog.Disks(&nodeClass.Spec),
		requirements: map[string]scheduling.Requirements{},
	}
	c.offering = capacity.Offering{BillingPlan: bizfly.PlanWord(c.billingPlan),
		NodeClass: capacity.NodeClassKey(nodeClass)}
	c.priced = lo.Map(c.disks, func(disk catalog.Disk, _ int) pricing.Disk {
		return pricing.Disk{GiB: disk.GiB, Type: mediumOf(snapshot, disk)}
	})
	return c
}

// mediumOf returns the medium of a disk for its price; a volume type that does not name one counts as SSD, the more
// expensive.
func mediumOf(snapshot *catalog.Snapshot, disk catalog.Disk) v1alpha1.DiskMedium {
	if disk.VolumeType == "" {
		return disk.Type
	}
	if found, ok := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool {
		return t.Name == disk.VolumeType
	}); ok {
		if medium, known := catalog.Medium(found); known {
			return medium
		}
	}
	return v1alpha1.DiskMediumSSD
}

// item is what a server of the flavor is priced as.
func (c *class) item(f *facts) pricing.Item {
	item := f.item(c.billingPlan)
	item.Disks = c.priced
	return item
}

// key identifies an offering for the capacity provider.
func (c *class) key(f *facts, zone string) capacity.Offering {
	key := c.offering
	key.Flavor, key.Zone = f.name, zone
	return key
}

// usableZones are the zones of the class in which the flavor can ever be launched; none when it cannot be used at all.
func (c *class) usableZones(f *facts) []string {
	if c.excludes(f) {
		return nil
	}
	return c.zonesWith(f)
}

// zonesWith are the zones of the class that have the flavor.
func (c *class) zonesWith(f *facts) []string {
	return lo.Filter(c.zones, func(zone string, _ int) bool { return f.existsIn(zone) })
}

// domains are those of the zones in which a server can ever have its disks: over them pods are spread. A zone without
// such a volume type would be one that no pod can ever be in, and keep the others waiting for it; a zone without
// capacity is one, because its capacity comes back.
func (c *class) domains(f *facts, zones []string) []string {
	return lo.Filter(zones, func(zone string, _ int) bool { return c.hasDisksIn(zone, f.category) })
}

// hasDisksIn reports whether there is a volume type for each disk.
func (c *class) hasDisksIn(zone, category string) bool {
	return lo.EveryBy(c.disks, func(disk catalog.Disk) bool {
		_, ok := disk.In(c.snapshot, zone, category)
		return ok
	})
}

// offeringIn returns the requirements of an offering in the zone. They hold zone and capacity type and nothing else: a
// key that core does not know as well-known would make the offering match no claim.
func (c *class) offeringIn(zone string) scheduling.Requirements {
	if _, ok := c.requirements[zone]; !ok {
		c.requirements[zone] = scheduling.NewRequirements(
			label(corev1.LabelTopologyZone, zone), label(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand))
	}
	return c.requirements[zone]
}

// excludes reports whether the NodeClass cannot use the flavor in any zone.
func (c *class) excludes(f *facts) bool {
	terms := c.nodeClass.Spec.FlavorSelectorTerms
	// A volume type that is asked for by name belongs to one category for good. One that is only chosen by its medium
	// may appear any day, so that its absence makes offerings unavailable and does not remove flavors.
	named := lo.SomeBy(c.disks, func(disk catalog.Disk) bool { return disk.VolumeType != "" })
	return slices.Contains(c.settings.HiddenFlavors, f.name) || !f.availableWith(c.billingPlan) ||
		len(terms) > 0 && !lo.SomeBy(terms, f.matches) || named && len(c.domains(f, c.zonesWith(f))) == 0
}

// open reports whether a server of the flavor can be created in the zone at the moment.
func (c *class) open(f *facts, zone string) bool {
	return !slices.Contains(c.settings.ClosedZones, zone) && c.active[zone] && c.hasDisksIn(zone, f.category)
}
