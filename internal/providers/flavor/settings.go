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
	"reflect"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// settings are what instance types are made from, with the number by which those made from them are known. They are
// immutable.
type settings struct {
	from *options.Options
	seq  uint64
}

// active returns the active settings. Others that concern no flavor keep the number: each new one makes all instance types
// anew.
func (p *DefaultProvider) active() *settings {
	from := p.options.Load()
	if current := p.settings.Load(); current != nil && current.from == from {
		return current
	}
	p.settingMu.Lock()
	defer p.settingMu.Unlock()
	next := &settings{from: from, seq: 1}
	if current := p.settings.Load(); current != nil {
		same := current.from.MemoryOverheadPercent == from.MemoryOverheadPercent && reflect.DeepEqual(current.from.FlavorOverrides, from.FlavorOverrides)
		next.seq = current.seq + lo.Ternary[uint64](same, 0, 1)
	}
	p.settings.Store(next)
	return next
}

// applied returns the flavor as the override makes it; the catalog's own is shared and stays as it is.
func applied(o options.FlavorOverride, flavor *gobizfly.ServerFlavorResponse) *gobizfly.ServerFlavorResponse {
	if o == (options.FlavorOverride{Hidden: o.Hidden}) {
		return flavor
	}
	changed := *flavor
	if o.Category != "" {
		changed.Category = o.Category
	}
	if o.Generation != "" {
		changed.Generation.Code = o.Generation
	}
	if o.CPUVendor != "" {
		changed.Generation.Vendor = o.CPUVendor
	}
	gpu := gobizfly.FlavorGPU{}
	if flavor.GPU != nil {
		gpu = *flavor.GPU
	}
	if o.GPUName != "" {
		gpu.Name = o.GPUName
	}
	if o.GPUCount != nil {
		gpu.Count = *o.GPUCount
	}
	changed.GPU = &gpu
	return &changed
}
