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
)

// Override says of one flavor what the cloud does not say or says wrongly. What is empty leaves what the cloud says.
type Override struct {
	// Hidden takes the flavor out of what is launched. One that nodes run on stays known, and they stay.
	Hidden bool `json:"hidden,omitempty"`
	// Category is the category in which its servers are ordered and priced.
	Category string `json:"category,omitempty"`
	// Generation is the code of its hardware generation, for example 2 or 4a.
	Generation string `json:"generation,omitempty"`
	// CPUVendor is the vendor of its CPUs, for example intel or amd.
	CPUVendor string `json:"cpuVendor,omitempty"`
	// GPUName is the model of its GPUs.
	GPUName string `json:"gpuName,omitempty"`
	// GPUCount is the number of its GPUs; 0 says that it has none.
	GPUCount *int `json:"gpuCount,omitempty"`
}

// settings are a Config with the number by which answers made from it are known. They are immutable.
type settings struct {
	Config
	seq uint64
}

// SetConfig makes all answers from another configuration from now on; the same one again changes nothing.
func (p *DefaultProvider) SetConfig(config Config) {
	p.settingMu.Lock()
	defer p.settingMu.Unlock()
	next := &settings{Config: config, seq: 1}
	if current := p.settings.Load(); current != nil {
		if reflect.DeepEqual(current.Config, config) {
			return
		}
		next.seq = current.seq + 1
	}
	p.settings.Store(next)
}

// applied returns the flavor as the override makes it; the catalog's own is shared and stays as it is.
func (o Override) applied(flavor *gobizfly.ServerFlavorResponse) *gobizfly.ServerFlavorResponse {
	if o == (Override{Hidden: o.Hidden}) {
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
