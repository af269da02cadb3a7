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
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// built is an instance type with what is needed to look again at its availability alone.
type built struct {
	*cloudprovider.InstanceType
	// keys are the offerings for the capacity provider, in the order of InstanceType.Offerings.
	keys []capacity.Offering
	// sellable says by offering whether catalog, NodeClass and prices allow it.
	sellable []bool
	// estimate and report are what its size was made from, for making it anew when its nodes turn out to have another.
	estimate estimate
	report   Report
	// source says where its price comes from.
	source pricing.Source
}

// item is what a server of the flavor is priced as.
func (c *class) item(f *facts) pricing.Item {
	return pricing.Item{
		Category: f.category, Generation: f.generation, CPU: f.cpu, MemoryMiB: f.memoryMiB,
		GPUName: f.gpuName, GPUCount: f.gpuCount, DiskGiB: c.root.GiB, DiskType: c.root.Type, DataDisks: c.data,
		BillingPlan: c.billingPlan, NetworkPlan: c.networkPlan,
	}
}

// build makes the instance type of a flavor: usable are the zones in which the NodeClass may launch it, used are zones
// in which claims run on it.
func (p *DefaultProvider) build(c *class, f *facts, usable, used []string) *built {
	item := c.item(f)
	price, priced := p.pricing.Price(item)
	reservations := p.bootstrap.Reservations(c.nodeClass, f.cpu, f.memoryMiB, c.root.GiB)
	nodeClassKey := capacity.NodeClassKey(c.nodeClass)
	b := &built{
		source: p.pricing.Source(item),
		report: p.lessons.load().byKey[learnedKey{c.profile, f.name}].believed,
		estimate: estimate{
			capacities: p.capacities(c, f, reservations.MaxPods), memoryMiB: f.memoryMiB, rootDiskGiB: c.root.GiB, reservations: reservations,
		},
	}
	var offerings cloudprovider.Offerings
	add := func(zone string, sellable bool) {
		key := capacity.Offering{Flavor: f.name, Zone: zone, BillingPlan: bizfly.PlanWord(c.billingPlan), NodeClass: nodeClassKey}
		b.keys = append(b.keys, key)
		b.sellable = append(b.sellable, sellable)
		offerings = append(offerings, &cloudprovider.Offering{
			Requirements: c.offering(zone), Price: price, Available: sellable && p.available(key),
		})
	}
	for _, zone := range usable {
		add(zone, priced && c.sellable(f, zone))
	}
	for _, zone := range lo.Without(used, usable...) {
		add(zone, false)
	}
	capacities, kept := p.size(b.estimate, b.report)
	b.InstanceType = &cloudprovider.InstanceType{
		Name:         f.name,
		Requirements: requirements(c, f, c.domains(f, usable)),
		Offerings:    offerings,
		Capacity:     capacities,
		Overhead:     kept,

		VolumeAttachmentLimits: volumeAttachmentLimits,
	}
	return p.finished(b)
}

// available says whether no mark covers the offering.
func (p *DefaultProvider) available(key capacity.Offering) bool {
	_, unavailable := p.marks.Unavailable(key)
	return !unavailable
}

// reassess returns the instance type with the availability of now: itself when nothing has changed, else a new one that
// shares all that did not. An InstanceType is never edited or copied as a struct: others read it, and it holds a
// sync.Once whose result depends on the offerings.
func (p *DefaultProvider) reassess(b *built) *built {
	var offerings cloudprovider.Offerings
	for i, offering := range b.Offerings {
		available := b.sellable[i] && p.available(b.keys[i])
		if available == offering.Available {
			continue
		}
		if offerings == nil {
			offerings = append(offerings, b.Offerings...)
		}
		offerings[i] = &cloudprovider.Offering{Requirements: offering.Requirements, Price: offering.Price, Available: available}
	}
	if offerings == nil {
		return b
	}
	return p.finished(&built{keys: b.keys, sellable: b.sellable, estimate: b.estimate, report: b.report, source: b.source,
		InstanceType: &cloudprovider.InstanceType{
			Name: b.Name, Requirements: b.Requirements, Offerings: offerings, Capacity: b.Capacity, Overhead: b.Overhead,
			VolumeAttachmentLimits: b.VolumeAttachmentLimits,
		}})
}

// volumeAttachmentLimits is what the CSI driver reports of every node (MaxVolumesPerNode), whatever its flavor, so that
// core expects of a node that does not exist yet what its CSINode will say. It counts the driver's own volumes only:
// the root disk and the data disks of the NodeClass take nothing from it. Instance types share the map, which is never edited.
var volumeAttachmentLimits = map[string]int{v1alpha1.CSIBlockDriver: 20}

// requirements defines every well-known label, because one that is not defined matches any selector. The only exception
// is the NodePool's own label, which core adds. The zones are those that the NodeClass can use: they are the
// domains over which topology spread is computed, so a zone that only old claims are in must not be among them.
func requirements(c *class, f *facts, zones []string) scheduling.Requirements {
	number := func(n int) string { return strconv.Itoa(n) }
	return scheduling.NewRequirements(
		label(corev1.LabelInstanceTypeStable, f.name),
		label(corev1.LabelArchStable, karpv1.ArchitectureAmd64),
		label(corev1.LabelOSStable, string(corev1.Linux)),
		label(corev1.LabelTopologyZone, zones...),
		label(corev1.LabelTopologyRegion, c.region),
		label(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand),
		label(corev1.LabelWindowsBuild),
		label(v1alpha1.LabelInstanceCategory, f.category),
		label(v1alpha1.LabelInstanceFamily, f.family()),
		label(v1alpha1.LabelInstanceSize, f.size()),
		label(v1alpha1.LabelInstanceGeneration, f.generation),
		label(v1alpha1.LabelInstanceCPU, number(f.cpu)),
		label(v1alpha1.LabelInstanceCPUManufacturer, f.vendor),
		label(v1alpha1.LabelInstanceMemory, number(f.memoryMiB)),
		label(v1alpha1.LabelInstanceGPUName, f.gpuName),
		label(v1alpha1.LabelInstanceGPUManufacturer, f.gpuManufacturer()),
		label(v1alpha1.LabelInstanceGPUMemory, f.gpuMemory()),
		label(v1alpha1.LabelInstanceGPUCount, lo.Ternary(f.gpuCount > 0, number(f.gpuCount), "")),
	)
}

// label requires one of the values that are not empty, and that the label does not exist when there is none.
func label(key string, values ...string) *scheduling.Requirement {
	if values = lo.Compact(values); len(values) == 0 {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist)
	}
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// capacities is what the node will report, as far as nothing is known yet: estimated too low rather than too high.
func (p *DefaultProvider) capacities(c *class, f *facts, maxPods int32) corev1.ResourceList {
	capacities := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(f.cpu), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(float64(f.memoryMiB)*(100-100*p.options.Load().MemoryOverheadPercent)/100)*mib,
			resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(fileSystem(c.root.GiB), resource.BinarySI),
	}
	if f.gpuCount > 0 {
		capacities[v1alpha1.ResourceNVIDIAGPU] = *resource.NewQuantity(int64(f.gpuCount), resource.DecimalSI)
	}
	return capacities
}

// fileSystem is what the kubelet reports of a root disk in bytes, whole MiB: images keep about 1 GiB for their boot
// partitions, and ext4 up to 3 % for its own tables. Like memory, it is estimated too low rather than too high.
func fileSystem(diskGiB int) int64 {
	const bootGiB, percent = 1, 95
	return int64(max(diskGiB-bootGiB, 0)) * (gib / mib) * percent / 100 * mib
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
		KubeReserved: take(r.KubeReserved), SystemReserved: take(r.SystemReserved), EvictionThreshold: take(r.EvictionThreshold),
	}
}
