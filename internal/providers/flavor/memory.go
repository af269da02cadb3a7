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
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxSeen bounds what is remembered of flavors times images.
	maxSeen = 16384
	// maxRecordedImages is how many images a NodeClass remembers: the current one, and those that a roll-back returns to.
	maxRecordedImages = 3
	// maxRecordedFlavors bounds what is recorded of one image, so that an annotation never outgrows its object.
	maxRecordedFlavors = 512
	// leastCredible is the share of the advertised memory below which a report is a broken machine rather than a kernel
	// that keeps something for itself, and is not believed: it would shrink the flavor for good.
	leastCredible = 0.5
	kib           = 1 << 10
)

// seenKey is what decides how much memory a machine sees: how much it has, and which kernel boots on it.
type seenKey struct{ image, flavor string }

// seen is the least memory that was ever seen, in KiB, which is how kernels count. It is immutable.
type seen struct {
	seq    uint64
	memory map[seenKey]int64
}

// memories keeps what was seen. Reads take no lock.
type memories struct{ current atomic.Pointer[seen] }

// nothingSeen is what is known at first.
var nothingSeen = &seen{}

func (m *memories) load() *seen {
	if current := m.current.Load(); current != nil {
		return current
	}
	return nothingSeen
}

// lower takes over what is less than was known and reports whether anything was.
func (m *memories) lower(reports map[seenKey]int64) bool {
	for {
		before := m.current.Load()
		known := m.load()
		var next map[seenKey]int64
		for key, kibibytes := range reports {
			old, exists := known.memory[key]
			if exists && old <= kibibytes || !exists && len(known.memory)+len(next) >= maxSeen {
				continue
			}
			if next == nil {
				next = map[seenKey]int64{}
			}
			next[key] = kibibytes
		}
		if next == nil {
			return false
		}
		merged := maps.Clone(known.memory)
		if merged == nil {
			merged = map[seenKey]int64{}
		}
		maps.Copy(merged, next)
		if m.current.CompareAndSwap(before, &seen{seq: known.seq + 1, memory: merged}) {
			return true
		}
	}
}

// ImageMemory is the least memory in KiB, by flavor, that nodes made from one image have reported.
type ImageMemory struct {
	// Image is the id of the image.
	Image string `json:"image"`
	// KiB is the memory by flavor.
	KiB map[string]int64 `json:"kib"`
}

// MemoryRecord is what the nodes of a NodeClass have reported, the image of the last report first. It is kept in an
// annotation of the NodeClass, so that it outlives both the controller and the last node of a flavor.
type MemoryRecord []ImageMemory

// ParseMemoryRecord reads the record of a NodeClass. Its error is one of a record that is not ours any more.
func ParseMemoryRecord(nodeClass *v1alpha1.BizflyNodeClass) (MemoryRecord, error) {
	text := nodeClass.Annotations[v1alpha1.AnnotationMemorySeen]
	if text == "" {
		return nil, nil
	}
	var record MemoryRecord
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return nil, fmt.Errorf("the annotation %s is not what was written there: %w", v1alpha1.AnnotationMemorySeen, err)
	}
	return record, nil
}

// Has says whether anything is recorded of the image.
func (r MemoryRecord) Has(image string) bool {
	for _, of := range r {
		if of.Image == image {
			return true
		}
	}
	return false
}

// With returns the record with one more report, and whether that changes it.
func (r MemoryRecord) With(image, flavor string, kibibytes int64) (MemoryRecord, bool) {
	of := ImageMemory{Image: image, KiB: map[string]int64{}}
	var others MemoryRecord
	for _, recorded := range r {
		if recorded.Image != image {
			others = append(others, recorded)
			continue
		}
		if least, known := recorded.KiB[flavor]; known && least <= kibibytes || !known && len(recorded.KiB) >= maxRecordedFlavors {
			return r, false
		}
		maps.Copy(of.KiB, recorded.KiB)
	}
	of.KiB[flavor] = kibibytes
	return append(MemoryRecord{of}, others[:min(len(others), maxRecordedImages-1)]...), true
}

// String is the record as it is kept.
func (r MemoryRecord) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// SeeMemory tells what a registered node of the flavor, made from the image, reports. From now on instance types of the
// flavor promise no more than the least that was ever seen. It returns the memory in KiB and false when the report is
// not credible, beside what the flavor advertises.
func (p *DefaultProvider) SeeMemory(ctx context.Context, image, flavor string, advertisedMiB int, reported resource.Quantity) (kibibytes int64, credible bool) {
	kibibytes = reported.Value() / kib
	if image == "" || flavor == "" || !credibleMemory(kibibytes, advertisedMiB) {
		return 0, false
	}
	if p.memories.lower(map[seenKey]int64{{image, flavor}: kibibytes}) {
		log.FromContext(ctx).WithValues("flavor", flavor, "image", image, "advertised-mib", advertisedMiB, "seen-mib", kibibytes/kib).
			Info("learned how much memory nodes of a flavor see")
	}
	return kibibytes, true
}

func credibleMemory(kibibytes int64, advertisedMiB int) bool {
	return float64(kibibytes) >= leastCredible*float64(advertisedMiB)*kib && kibibytes > 0
}

// recall takes over what earlier processes have recorded on the NodeClass.
func (p *DefaultProvider) recall(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) {
	record, err := ParseMemoryRecord(nodeClass)
	if err != nil {
		log.FromContext(ctx).WithValues("BizflyNodeClass", nodeClass.Name).Error(err, "forgetting how much memory nodes have seen")
		return
	}
	reports := map[seenKey]int64{}
	for _, of := range record {
		for flavor, kibibytes := range of.KiB {
			if kibibytes > 0 {
				reports[seenKey{of.Image, flavor}] = kibibytes
			}
		}
	}
	p.memories.lower(reports)
}

// memory is what a node of the flavor sees in bytes, whole MiB: the least that was seen of nodes of the same image, and
// until one was, an estimate that is meant to be too low. Promising what is not there makes core launch a second node
// for a pod that the first was made for.
func (p *DefaultProvider) memory(image, flavor string, memoryMiB int) int64 {
	if least, known := p.memories.load().memory[seenKey{image, flavor}]; known && credibleMemory(least, memoryMiB) {
		return min(least/kib, int64(memoryMiB)) * mib
	}
	return int64(float64(memoryMiB)*(100-p.options.Load().MemoryOverheadPercent)/100) * mib
}

// resized returns the instance type with the memory that its nodes are known to see now: itself when nothing has
// changed, else a new one that shares all but its size.
func (p *DefaultProvider) resized(b *built, image string) *built {
	memory := p.memory(image, b.Name, b.memoryMiB)
	if current := b.Capacity[corev1.ResourceMemory]; current.Value() == memory {
		return b
	}
	capacities := b.Capacity.DeepCopy()
	capacities[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	return p.finished(&built{keys: b.keys, sellable: b.sellable, memoryMiB: b.memoryMiB, reservations: b.reservations, InstanceType: &cloudprovider.InstanceType{
		Name: b.Name, Requirements: b.Requirements, Offerings: b.Offerings, Capacity: capacities, Overhead: overhead(capacities, b.reservations),
	}})
}

// finished computes what is allocatable, which core does once per object: here it stays out of the first scheduling.
func (*DefaultProvider) finished(b *built) *built {
	b.Allocatable()
	return b
}
