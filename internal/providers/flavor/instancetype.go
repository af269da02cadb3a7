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
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// built is an instance type with what is needed to check its availability and size again.
type built struct {
	InstanceType *cloudprovider.InstanceType
	facts        *facts
	rootDiskGiB  int
	reservations bootstrap.Reservations
	// keys are the offerings for the capacity provider, in the order of InstanceType.Offerings.
	keys []capacity.Offering
	// launchable reports by offering whether catalog, NodeClass and prices allow it.
	launchable []bool
	// report is the size that its nodes are known to have.
	report report
}

// build returns the instance type of a flavor: usable are the zones in which the NodeClass may launch it, used are
// zones in which NodeClaims run on it.
func (p *DefaultProvider) build(c *class, f *facts, usable, used []string) *built {
	price, priced := c.settings.Prices.Price(c.item(f))
	b := p.unsized(c, f)
	b.InstanceType = &cloudprovider.InstanceType{Name: f.name, Requirements: requirements(c, f, c.domains(f, usable))}
	var offerings cloudprovider.Offerings
	for i, zone := range slices.Concat(usable, lo.Without(used, usable...)) {
		key, launchable := c.key(f, zone), i < len(usable) && priced && c.open(f, zone)
		b.keys, b.launchable = append(b.keys, key), append(b.launchable, launchable)
		offerings = append(offerings, &cloudprovider.Offering{Requirements: c.offeringIn(zone), Price: price,
			Available: launchable && p.unmarked(key)})
	}
	return p.with(b, offerings, p.learned.Load().byKey[learnedKey{c.profile, f.name}].believed)
}

// unsized is what the size of the flavor's nodes is computed from.
func (p *DefaultProvider) unsized(c *class, f *facts) built {
	return built{
		facts: f, rootDiskGiB: c.disks[0].GiB,
		reservations: p.bootstrap.Reservations(c.nodeClass, f.cpu, f.memoryMiB, fileSystem(c.disks[0].GiB)),
	}
}

// overcommitted says of which resource the kubelet keeps more than a server of the flavor has: it would not start.
// Empty where it does.
func (p *DefaultProvider) overcommitted(c *class, f *facts) string {
	b := p.unsized(c, f)
	r, capacities := b.reservations, p.estimated(&b)
	kept := resources.Merge(r.KubeReserved, r.SystemReserved, r.EvictionThreshold)
	for _, name := range slices.Sorted(maps.Keys(capacities)) {
		if keeps, has := kept[name], capacities[name]; keeps.Cmp(has) > 0 {
			return fmt.Sprintf("kubeReserved, systemReserved and evictionHard of spec.kubelet keep %s of %s, and a server of "+
				"%s has %s",
				keeps.String(), name, f.name, has.String())
		}
	}
	return ""
}

// unmarked reports whether no mark covers the offering.
func (p *DefaultProvider) unmarked(key capacity.Offering) bool {
	_, unavailable := p.marks.Unavailable(key)
	return !unavailable
}

// refreshed returns the instance type with the availability of now and the size that its nodes are known to have:
// itself when nothing has changed, else a new one that shares all that did not.
func (p *DefaultProvider) refreshed(b *built, report report) *built {
	var offerings cloudprovider.Offerings
	for i, offering := range b.InstanceType.Offerings {
		available := b.launchable[i] && p.unmarked(b.keys[i])
		if available == offering.Available {
			continue
		}
		if offerings == nil {
			offerings = slices.Clone(b.InstanceType.Offerings)
		}
		offerings[i] = &cloudprovider.Offering{Requirements: offering.Requirements, Price: offering.Price,
			Available: available}
	}
	if offerings == nil && report == b.report {
		return b
	}
	return p.with(*b, lo.Ternary(offerings == nil, b.InstanceType.Offerings, offerings), report)
}

// with returns a copy with a new instance type. An InstanceType is never edited or copied as a struct: others read it,
// and it holds a sync.Once whose result depends on the offerings.
func (p *DefaultProvider) with(b built, offerings cloudprovider.Offerings, report report) *built {
	b.report = report
	capacities, kept := p.size(&b)
	b.InstanceType = &cloudprovider.InstanceType{
		Name:                   b.InstanceType.Name,
		Requirements:           b.InstanceType.Requirements,
		Offerings:              offerings,
		Capacity:               capacities,
		Overhead:               kept,
		VolumeAttachmentLimits: volumeAttachmentLimits,
	}
	b.InstanceType.Allocatable() // core computes it once per object: here it stays out of the first scheduling
	return &b
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
func (p *DefaultProvider) estimated(b *built) corev1.ResourceList {
	memoryMiB := int64(float64(b.facts.memoryMiB) * (100 - 100*p.options.Load().MemoryOverheadPercent) / 100)
	capacities := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(b.facts.cpu), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memoryMiB*mib, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(b.reservations.MaxPods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(fileSystem(b.rootDiskGiB), resource.BinarySI),
	}
	if b.facts.gpuCount > 0 {
		capacities[v1alpha1.ResourceNVIDIAGPU] = *resource.NewQuantity(int64(b.facts.gpuCount), resource.DecimalSI)
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

// overhead takes the kubelet's reservations, cut where together they would exceed the capacity: the kubelet of a node
// that small would not start, and a negative allocatable confuses every sum in core.
func overhead(capacities corev1.ResourceList, r bootstrap.Reservations) *cloudprovider.InstanceTypeOverhead {
	left := capacities.DeepCopy()
	take := func(wanted corev1.ResourceList) corev1.ResourceList {
		taken := make(corev1.ResourceList, len(wanted))
		for name, quantity := range wanted {
			available, ok := left[name]
			if !ok || quantity.Sign() <= 0 {
				continue
			}
			if quantity.Cmp(available) > 0 {
				quantity = available
			}
			taken[name] = quantity.DeepCopy()
			available.Sub(quantity)
			left[name] = available
		}
		return taken
	}
	return &cloudprovider.InstanceTypeOverhead{
		KubeReserved:      take(r.KubeReserved),
		SystemReserved:    take(r.SystemReserved),
		EvictionThreshold: take(r.EvictionThreshold),
	}
}
