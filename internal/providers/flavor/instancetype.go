// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// build returns the instance type of a flavor: usable are the zones in which the NodeClass may launch it, used are
// zones in which NodeClaims run on it. It is never edited: others read it, and it holds a sync.Once whose result
// depends on the offerings.
func (p *DefaultProvider) build(c *class, f *facts, usable, used []string) *cloudprovider.InstanceType {
	price, priced := c.settings.Prices.Price(c.item(f))
	capacities, kept := p.size(c, f)
	it := &cloudprovider.InstanceType{
		Name:                   f.name,
		Requirements:           requirements(c, f, c.domains(f, usable)),
		Capacity:               capacities,
		Overhead:               &cloudprovider.InstanceTypeOverhead{KubeReserved: kept},
		VolumeAttachmentLimits: volumeAttachmentLimits,
	}
	for i, zone := range slices.Concat(usable, lo.Without(used, usable...)) {
		_, marked := p.marks.Unavailable(c.key(f, zone))
		it.Offerings = append(it.Offerings, &cloudprovider.Offering{
			Requirements: c.offeringIn(zone), Price: price,
			Available: i < len(usable) && priced && c.open(f, zone) && !marked,
		})
	}
	it.Allocatable() // core computes it once per object: here it stays out of the first scheduling
	return it
}

// overcommitted says of which resource the kubelet keeps more than a server of the flavor has: it would not start.
// Empty where it does.
func (p *DefaultProvider) overcommitted(c *class, f *facts) string {
	reservations := p.reservations(c, f)
	capacities := c.estimated(f, reservations)
	for _, name := range slices.Sorted(maps.Keys(capacities)) {
		if keeps, has := reservations.Kept[name], capacities[name]; keeps.Cmp(has) > 0 {
			return fmt.Sprintf("kubeReserved, systemReserved and evictionHard of spec.kubelet keep %s of %s, and a server of "+
				"%s has %s",
				keeps.String(), name, f.name, has.String())
		}
	}
	return ""
}

// reservations are those of the flavor's nodes.
func (p *DefaultProvider) reservations(c *class, f *facts) bootstrap.Reservations {
	return p.bootstrap.Reservations(c.nodeClass, f.cpu, f.memoryMiB, fileSystem(c.disks[0].GiB))
}

// volumeAttachmentLimits is what the CSI driver reports of every node (MaxVolumesPerNode), whatever its flavor, so that
// core expects of a node that does not exist yet what its CSINode will report. It counts the driver's own volumes only:
// the root disk and the data disks of the NodeClass take nothing from it. Instance types share the map, which is never
// edited.
var volumeAttachmentLimits = map[string]int{v1alpha1.CSIBlockDriver: 20}

// requirements defines every well-known label, because one that is not defined matches any selector. The only exception
// is the NodePool's own label, which core adds. The zones are those that the NodeClass can use: they are the
// domains over which topology spread is computed, so a zone that only old claims are in must not be among them.
func requirements(c *class, f *facts, zones []string) scheduling.Requirements {
	return scheduling.NewRequirements(
		label(corev1.LabelInstanceTypeStable, f.name),
		label(corev1.LabelArchStable, karpv1.ArchitectureAmd64),
		label(corev1.LabelOSStable, string(corev1.Linux)),
		label(corev1.LabelTopologyZone, zones...),
		label(corev1.LabelTopologyRegion, c.snapshot.RegionLabel()),
		label(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand),
		label(corev1.LabelWindowsBuild),
		label(v1alpha1.LabelInstanceCategory, f.category),
		label(v1alpha1.LabelInstanceFamily, f.family()),
		label(v1alpha1.LabelInstanceSize, f.size()),
		label(v1alpha1.LabelInstanceGeneration, f.generation),
		label(v1alpha1.LabelInstanceCPU, strconv.Itoa(f.cpu)),
		label(v1alpha1.LabelInstanceCPUManufacturer, f.vendor),
		label(v1alpha1.LabelInstanceMemory, strconv.Itoa(f.memoryMiB)),
		label(v1alpha1.LabelInstanceGPUName, f.gpuName),
		label(v1alpha1.LabelInstanceGPUCount, lo.Ternary(f.gpuCount > 0, strconv.Itoa(f.gpuCount), "")),
	)
}

// label requires one of the values that are not empty, and that the label does not exist when there is none.
func label(key string, values ...string) *scheduling.Requirement {
	if values = lo.Compact(values); len(values) == 0 {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist)
	}
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// estimated is what the node will report, as far as nothing is known yet: too low rather than too high.
func (c *class) estimated(f *facts, r bootstrap.Reservations) corev1.ResourceList {
	memoryMiB := int64(float64(f.memoryMiB) * (100 - 100*c.settings.MemoryOverheadPercent) / 100)
	capacities := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(f.cpu), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memoryMiB*mib, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(r.MaxPods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(fileSystem(c.disks[0].GiB), resource.BinarySI),
	}
	if f.gpuCount > 0 {
		capacities[v1alpha1.ResourceNVIDIAGPU] = *resource.NewQuantity(int64(f.gpuCount), resource.DecimalSI)
	}
	return capacities
}

// fileSystem is what the kubelet reports of a root disk in bytes, whole MiB: images keep about 1 GiB for their boot
// partitions, and ext4 keeps 1.6 to 2.5 % for its own tables. Like memory, it is estimated too low rather than too
// high.
func fileSystem(diskGiB int) int64 {
	const bootGiB, perMille = 1, 975
	return int64(max(diskGiB-bootGiB, 0)) * (gib / mib) * perMille / 1000 * mib
}

// keptOf returns what is kept, at most what there is: a negative allocatable confuses every sum in core.
func keptOf(capacities, wanted corev1.ResourceList) corev1.ResourceList {
	kept := corev1.ResourceList{}
	for name, quantity := range wanted {
		if has, known := capacities[name]; known {
			kept[name] = lo.Ternary(quantity.Cmp(has) > 0, has, quantity).DeepCopy()
		}
	}
	return kept
}
