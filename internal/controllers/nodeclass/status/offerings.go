// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// resolveFlavors checks whether selector, zones, billing plan and disks leave any flavor. Unavailable ones count: they
// become available again by themselves.
func (c *Controller) resolveFlavors(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	if !v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeZonesReady) {
		return awaiting(reasonAwaitingZones, "flavors depend on the zones, which are not known yet")
	}
	unmatched, miss, err := c.unmatched(nodeClass.Spec.FlavorSelectorTerms)
	if err != nil {
		return unavailable(err)
	}
	if miss {
		return missing(reasonFlavorNotFound, strings.Join(unmatched, "; "))
	}
	if !v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeDisksReady) {
		return awaiting(reasonAwaitingDisks, "flavors depend on the disks, which are not available as specified")
	}
	instanceTypes, err := c.flavors.List(ctx, nodeClass)
	if err != nil {
		return unavailable(err)
	}
	usable := lo.CountBy(instanceTypes, func(it *cloudprovider.InstanceType) bool {
		return slices.ContainsFunc(nodeClass.Status.Zones, func(zone string) bool { return launchable(it, zone) })
	})
	nodeClass.Status.FlavorCount = int32(min(usable, math.MaxInt32)) //nolint:gosec // G115: bounded
	if usable == 0 {
		overcommitted, err := c.flavors.Overcommitted(nodeClass)
		if err != nil {
			return unavailable(err)
		}
		return missing(reasonNoFlavors, noFlavors(nodeClass, overcommitted))
	}
	return fine(append([]string{fmt.Sprintf("%d flavors", usable)}, unmatched...)...)
}

// unmatched returns a message for each term that selects no flavor of the cloud, and whether those are all terms: a
// single one is perhaps for a flavor that is yet to come.
func (c *Controller) unmatched(terms []v1alpha1.FlavorSelectorTerm) (messages []string, all bool, err error) {
	every, err := c.flavors.Matching(v1alpha1.FlavorSelectorTerm{})
	if err != nil {
		return nil, false, err
	}
	for i, term := range terms {
		matching, err := c.flavors.Matching(term)
		if err != nil {
			return nil, false, err
		}
		if len(matching) == 0 {
			messages = append(messages, fmt.Sprintf("spec.flavorSelectorTerms[%d]: no flavor matches %s; available: %v",
				i, termOf(term), lookup.Shorten(every)))
		}
	}
	return messages, len(terms) > 0 && len(messages) == len(terms), nil
}

func termOf(term v1alpha1.FlavorSelectorTerm) string {
	var parts []string
	for _, part := range [][2]string{{"name", term.Name}, {"category", term.Category}, {"generation", term.Generation}} {
		if part[1] != "" {
			parts = append(parts, fmt.Sprintf("%s %q", part[0], part[1]))
		}
	}
	return strings.Join(parts, " and ")
}

// launchable reports whether the flavor exists in the zone at all. An offering alone does not show it: one that nodes
// still run on is listed even where the class could not launch it again.
func launchable(it *cloudprovider.InstanceType, zone string) bool {
	return it.Requirements.Get(corev1.LabelTopologyZone).Has(zone) &&
		lo.ContainsBy(it.Offerings,
			func(o *cloudprovider.Offering) bool { return o.Requirements.Get(corev1.LabelTopologyZone).Has(zone) })
}

// noFlavors names all that excludes flavors; overcommitted are those for which spec.kubelet keeps too much.
func noFlavors(nodeClass *v1alpha1.BizflyNodeClass, overcommitted map[string]string) string {
	asked := []string{fmt.Sprintf("spec.billingPlan %q", nodeClass.EffectiveBillingPlan()),
		describe(catalog.Disks(&nodeClass.Spec))}
	if terms := nodeClass.Spec.FlavorSelectorTerms; len(terms) > 0 {
		names := lo.Map(terms, func(t v1alpha1.FlavorSelectorTerm, _ int) string { return termOf(t) })
		asked = append(asked, "spec.flavorSelectorTerms ("+strings.Join(names, ", or ")+")")
	}
	if names := slices.Sorted(maps.Keys(overcommitted)); len(names) > 0 {
		asked = append(asked, fmt.Sprintf("spec.kubelet (%d flavors are too small: %s)", len(names), overcommitted[names[0]]))
	}
	return fmt.Sprintf("no flavor is available in zones %v with %s; change one of these, or allow more zones",
		nodeClass.Status.Zones, strings.Join(asked, " and "))
}

// resolveZones finds the zones in which servers may be launched: those that the region has open, that the spec allows,
// and in which servers can have a port in every network. They are also the domains over which pods are spread.
func (c *Controller) resolveZones(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	snapshot, err := c.catalog.Snapshot()
	if err != nil {
		return unavailable(err)
	}
	all := snapshot.Zones()
	names := lo.Map(all, func(z catalog.Zone, _ int) string { return z.Name })
	for i, wanted := range nodeClass.Spec.Zones {
		if !slices.Contains(names, wanted) {
			return missing(reasonZoneNotFound, fmt.Sprintf("spec.zones[%d]: no zone of the region matches %q; available: %v",
				i, wanted, lookup.Shorten(names)))
		}
	}
	if !v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeNetworksReady) {
		return awaiting(reasonAwaitingNetworks, "zones depend on the networks, which are not known yet")
	}
	networks, err := c.networks.Networks(ctx, nodeClass)
	if err != nil {
		return unavailable(err)
	}
	usable, excluded := usableZones(all, nodeClass.Spec.Zones, networks)
	if len(usable) == 0 {
		return missing(reasonNoZones, fmt.Sprintf(
			"spec.zones: no zone is left in which servers may be launched: %s; available zones of the region: %v",
			strings.Join(excluded, "; "), lookup.Shorten(names)))
	}
	nodeClass.Status.Zones = usable
	return fine(excluded...)
}

// usableZones also returns why each zone that was asked for is left out.
func usableZones(all []catalog.Zone, wanted []string, networks []network.Network) (usable, excluded []string) {
	for _, z := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, z.Name) {
			continue
		}
		unreachable, found := lo.Find(networks, func(n network.Network) bool {
			return len(n.Zones) > 0 && !slices.Contains(n.Zones, z.Name)
		})
		switch {
		case !z.Active:
			excluded = append(excluded, fmt.Sprintf("zone %s is closed for new servers", z.Name))
		case found:
			excluded = append(excluded, fmt.Sprintf("network %s (%s) is not in zone %s, only in %v",
				unreachable.Name, unreachable.ID, z.Name, unreachable.Zones))
		default:
			usable = append(usable, z.Name)
		}
	}
	return usable, excluded
}

// resolveDisks checks whether there is a zone and a category in which all disks of a server are available, and whether
// the root disk is large enough for the image.
func (c *Controller) resolveDisks(_ context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	snapshot, err := c.catalog.Snapshot()
	if err != nil {
		return unavailable(err)
	}
	if !v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeZonesReady) {
		return awaiting(reasonAwaitingZones, "volume types depend on the zones, which are not known yet")
	}
	disks := catalog.Disks(&nodeClass.Spec)
	image := lo.FromPtr(nodeClass.Status.Image())
	if v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeImagesReady) && int(image.MinDiskGiB) > disks[0].GiB {
		kind := strings.ToLower(string(lo.CoalesceOrEmpty(image.Type, v1alpha1.ImageTypeImage)))
		return missing(reasonRootDiskTooSmall, fmt.Sprintf(
			"spec.rootDisk.size: %dGi is too small for the %s %s (%s), which needs %dGi; set at least %dGi",
			disks[0].GiB, kind, image.Name, image.ID, image.MinDiskGiB,
			(image.MinDiskGiB+v1alpha1.DiskStepGiB-1)/v1alpha1.DiskStepGiB*v1alpha1.DiskStepGiB))
	}
	without := lo.Reject(nodeClass.Status.Zones, func(in string, _ int) bool { return together(snapshot, disks, in) })
	if len(without) == len(nodeClass.Status.Zones) {
		return unavailableDisks(snapshot, disks, nodeClass.Status.Zones)
	}
	return fine(lo.Map(without, func(in string, _ int) string {
		return fmt.Sprintf("zone %s does not have %s, so that no server is launched there", in, describe(disks))
	})...)
}

// together reports whether the servers of any category can have all disks in the zone.
func together(snapshot *catalog.Snapshot, disks []catalog.Disk, in string) bool {
	return lo.SomeBy(snapshot.Categories(), func(category string) bool {
		return lo.EveryBy(disks, func(disk catalog.Disk) bool {
			_, ok := disk.In(snapshot, in, category)
			return ok
		})
	})
}

// unavailableDisks names the disk that is available nowhere or, where each is, that they are not available together.
func unavailableDisks(snapshot *catalog.Snapshot, disks []catalog.Disk, zones []string) result {
	available := lookup.Shorten(lo.FlatMap(zones, func(in string, _ int) []string { return snapshot.VolumeTypesIn(in) }))
	for _, disk := range disks {
		if !slices.ContainsFunc(zones, func(in string) bool { return together(snapshot, []catalog.Disk{disk}, in) }) {
			return missing(reasonDiskNotSold, fmt.Sprintf(
				"%s is not available in zones %v; volume types there: %v; use %s.medium (SSD or HDD) or one of these",
				disk, zones, available, disk.Field))
		}
	}
	return missing(reasonDisksNotTogether, fmt.Sprintf(
		"%s are each available in zones %v, but no zone has all of them for servers of one category; "+
			"volume types there: %v; use medium (SSD or HDD) or volume types of one category",
		describe(disks), zones, available))
}

func describe(disks []catalog.Disk) string {
	return strings.Join(lo.Uniq(lo.Map(disks, func(disk catalog.Disk, _ int) string { return disk.String() })), ", ")
}
