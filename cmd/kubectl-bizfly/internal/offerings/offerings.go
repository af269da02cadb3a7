// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package offerings says why a NodeClass cannot launch a flavor in a zone, and how sure the price of one is.
package offerings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Explanation is why a NodeClass cannot launch one flavor in one zone.
type Explanation struct {
	// Flavor and Zone are the offering. Zone is empty where the flavor is excluded whatever the zone.
	Flavor, Zone string
	// CPU, MemoryMiB, GPUName and GPUCount are the flavor's advertised size.
	CPU, MemoryMiB int
	GPUName        string
	GPUCount       int
	// Source is the least certain source of the numbers that its price is made of.
	Source string
	// Excluded is why the NodeClass can never launch it; empty where it can. Unavailable is why it cannot now.
	Excluded, Unavailable string
}

// Explain returns every flavor that the cloud lists, in every zone of the region or, where the zone does not matter,
// once. Those that List returns as available have neither reason.
func Explain(p *wiring.Providers, nodeClass *v1alpha1.BizflyNodeClass) ([]Explanation, error) {
	snapshot, err := p.Catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	names, err := p.Flavors.Matching(v1alpha1.FlavorSelectorTerm{})
	if err != nil {
		return nil, err
	}
	r := &reasons{
		nodeClass: nodeClass, snapshot: snapshot, settings: p.CloudProviderConfig.Settings.Load(),
		disks: catalog.Disks(&nodeClass.Spec),
	}
	for _, term := range nodeClass.Spec.FlavorSelectorTerms {
		selected, err := p.Flavors.Matching(term)
		if err != nil {
			return nil, err
		}
		r.selected = append(r.selected, selected...)
	}
	if r.overcommitted, err = p.Flavors.Overcommitted(nodeClass); err != nil {
		return nil, err
	}
	plan := nodeClass.EffectiveBillingPlan()
	var explained []Explanation
	for _, name := range names {
		listed, _ := lo.Find(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse) bool { return f.Name == name })
		item, _ := p.Flavors.Item(map[string]string{corev1.LabelInstanceTypeStable: name}, plan)
		item.Disks = r.priced()
		e := Explanation{
			Flavor: name, CPU: item.CPU, MemoryMiB: item.MemoryMiB, GPUName: item.GPUName, GPUCount: item.GPUCount,
			Source: SourceOf(r.settings.Prices, item),
		}
		if e.Excluded = r.excluded(listed, item.Category); e.Excluded != "" {
			explained = append(explained, e)
			continue
		}
		for _, zone := range snapshot.Zones() {
			e.Zone, e.Excluded, e.Unavailable = zone.Name, "", ""
			key := capacity.Offering{
				Flavor: name, Zone: zone.Name, BillingPlan: bizfly.PlanWord(plan), NodeClass: capacity.NodeClassKey(nodeClass),
			}
			switch reason, marked := p.Capacity.Unavailable(key); {
			case !slices.Contains(nodeClass.Status.Zones, zone.Name):
				e.Excluded = "the zone is none of the NodeClass's (status.zones)"
			case !existsIn(listed, zone.Name):
				e.Excluded = fmt.Sprintf("the zone does not have its generation %s", item.Generation)
			default:
				e.Unavailable = r.closed(zone, item.Category)
				if marked && e.Unavailable == "" {
					e.Unavailable = "marked unavailable after a failed launch: " + strings.TrimSpace(reason)
				}
			}
			explained = append(explained, e)
		}
	}
	return explained, nil
}

// reasons are the rules by which the controller makes instance types available, in words.
type reasons struct {
	nodeClass *v1alpha1.BizflyNodeClass
	snapshot  *catalog.Snapshot
	settings  *options.Options
	disks     []catalog.Disk
	// selected are the flavors that a term of the NodeClass selects.
	selected []string
	// overcommitted says by flavor of what spec.kubelet keeps more than a server has.
	overcommitted map[string]string
}

// priced are the disks with their media; a volume type that names none counts as SSD.
func (r *reasons) priced() []pricing.Disk {
	return lo.Map(r.disks, func(disk catalog.Disk, _ int) pricing.Disk {
		medium := lo.CoalesceOrEmpty(disk.Type, v1alpha1.DiskMediumSSD)
		for _, t := range r.snapshot.VolumeTypes {
			if of, known := catalog.Medium(t); known && t.Name == disk.VolumeType {
				medium = of
			}
		}
		return pricing.Disk{GiB: disk.GiB, Type: medium}
	})
}

// existsIn reports whether the zone has the flavor's hardware.
func existsIn(f *gobizfly.ServerFlavorResponse, zone string) bool {
	return len(f.Generation.AvailabilityZones) == 0 || slices.Contains(f.Generation.AvailabilityZones, zone)
}

// excluded returns why the NodeClass cannot use the flavor in any zone; empty where it can.
func (r *reasons) excluded(f *gobizfly.ServerFlavorResponse, category string) string {
	plan := r.nodeClass.EffectiveBillingPlan()
	byName := lo.SomeBy(r.disks, func(disk catalog.Disk) bool { return disk.VolumeType != "" })
	suits := func(zone string) bool { return existsIn(f, zone) && r.hasDisksIn(zone, category) }
	switch {
	case slices.Contains(r.settings.HiddenFlavors, f.Name):
		return "the tuning hides it (hiddenFlavors)"
	case len(f.BillingPlans) > 0 && !slices.Contains(f.BillingPlans, bizfly.PlanWord(plan)):
		return fmt.Sprintf("it is not available with spec.billingPlan %s", plan)
	case len(r.nodeClass.Spec.FlavorSelectorTerms) > 0 && !slices.Contains(r.selected, f.Name):
		return "no term of spec.flavorSelectorTerms selects it"
	case byName && !slices.ContainsFunc(r.nodeClass.Status.Zones, suits):
		return fmt.Sprintf("no zone has the volume types of the disks for the category %s", category)
	}
	return r.overcommitted[f.Name]
}

// closed returns why no server can be created in the zone at the moment; empty where one can.
func (r *reasons) closed(zone catalog.Zone, category string) string {
	switch {
	case slices.Contains(r.settings.ClosedZones, zone.Name):
		return "the tuning closes the zone (closedZones)"
	case !zone.Active:
		return "BizFly Cloud has closed the zone for new servers"
	case !r.hasDisksIn(zone.Name, category):
		return fmt.Sprintf("the zone has no volume type for the disks of the category %s", category)
	}
	return ""
}

func (r *reasons) hasDisksIn(zone, category string) bool {
	return lo.EveryBy(r.disks, func(disk catalog.Disk) bool {
		_, ok := disk.In(r.snapshot, zone, category)
		return ok
	})
}

// sources are where the numbers of a price table may come from, the most certain first.
var sources = []string{"configured", "published", "derived", "assumed"}

// SourceOf returns the least certain source of the numbers that the price of the item is made of. A number that differs
// from the built-in one is configured, unless the table gives a source for it.
func SourceOf(table *pricing.Table, item pricing.Item) string {
	builtIn := numbersOf(pricing.DefaultTable(), item)
	least := 0
	for path, number := range numbersOf(table, item) {
		given, was := sourceAt(table, path), sourceAt(pricing.DefaultTable(), path)
		if given == was && number != builtIn[path] {
			given = sources[0]
		}
		least = max(least, lo.Ternary(slices.Contains(sources, given), slices.Index(sources, given), len(sources)-1))
	}
	return sources[least]
}

// numbersOf returns the numbers of which the price of the item is made, by their paths.
func numbersOf(t *pricing.Table, item pricing.Item) map[string]float64 {
	category, known := item.Category, lo.HasKey(t.Categories, item.Category)
	if !known {
		category = "default"
	}
	plan := "billingPlans." + string(item.BillingPlan)
	rates, factors := t.Categories[category], t.BillingPlans[item.BillingPlan]
	numbers := map[string]float64{
		"categories." + category + ".cpu": rates.CPU, "categories." + category + ".memoryGiB": rates.MemoryGiB,
		plan + ".compute": factors.Compute,
	}
	if factor, named := t.Generations[item.Generation]; named {
		numbers["generations."+item.Generation] = factor
	}
	if item.GPUCount > 0 {
		numbers["gpus."+t.GPU(item.GPUName)] = t.GPUs[t.GPU(item.GPUName)]
	}
	for _, disk := range item.Disks {
		if disk.GiB > 0 {
			numbers["disks."+string(disk.Type)], numbers[plan+".disk"] = t.Disks[disk.Type], factors.Disk
		}
	}
	return numbers
}

// sourceAt returns the source of one number: that of the longest path that leads to it, and nothing for a number that
// is assumed.
func sourceAt(t *pricing.Table, path string) string {
	for ; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
		if source, ok := t.Sources[path]; ok {
			return source
		}
	}
	return ""
}
