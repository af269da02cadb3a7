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

// Package flavor turns the cloud's flavors into Karpenter's instance types: requirements, capacity, overhead, and one
// priced offering per zone.
package flavor

import (
	"context"
	"reflect"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Provider makes instance types.
type Provider interface {
	// List returns the instance types of a NodeClass: every flavor that it can use, with an offering for each of its
	// zones in which the flavor's generation exists, and every flavor and offering that a live NodeClaim of it runs on,
	// whatever has become of them. What cannot be launched now is there with Available=false and its real price.
	//
	// A flavor that the NodeClass cannot use (not selected by its flavorSelectorTerms, not sold with its billing plan, in
	// none of its zones, no volume type of a name that it asks for) and that no claim runs on is left out: it would only be weighed in vain. It comes back
	// with the catalog or the NodeClass that allows it. One that a claim runs on stays even when the cloud has delisted
	// it, because core replaces nodes whose type or offering has vanished; it is then made from the claim's labels.
	//
	// The slice and all in it are shared and immutable; it is made anew when the NodeClass (UID, generation, resolved
	// zones), the catalog, the prices or the marks of the capacity provider have changed. Errors are catalog.ErrNotReady
	// and those of listing the claims.
	List(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]*cloudprovider.InstanceType, error)
	// Matching returns the names of the flavors that the cloud lists and the term selects, sorted, whatever else would keep a
	// NodeClass from using them. Errors are catalog.ErrNotReady.
	Matching(term v1alpha1.FlavorSelectorTerm) ([]string, error)
	// Category returns the category in which servers of the flavor are ordered, and false for an unknown flavor.
	Category(flavor string) (string, bool)
}

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
