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

package cloudprovider

import (
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// pausedTypes makes, for NodeClasses whose launches pause, instance types with which nothing is launched. They stay
// there, since core drifts nodes whose type has vanished and prices them at 0; only their offerings are sold out.
type pausedTypes struct {
	cache *cache.Cache
}

// pausedView is what was made from one slice of instance types, which is shared until something changes.
type pausedView struct {
	from  *cloudprovider.InstanceType
	count int
	types []*cloudprovider.InstanceType
}

// of returns the instance types with every offering unavailable. What is given is shared and not changed.
func (p *pausedTypes) of(nodeClass types.UID, instanceTypes []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if len(instanceTypes) == 0 {
		return instanceTypes
	}
	if known, ok := p.cache.Get(string(nodeClass)); ok {
		if view := known.(pausedView); view.from == instanceTypes[0] && view.count == len(instanceTypes) {
			return view.types
		}
	}
	view := pausedView{from: instanceTypes[0], count: len(instanceTypes), types: lo.Map(instanceTypes, soldOut)}
	p.cache.SetDefault(string(nodeClass), view)
	return view.types
}

// soldOut makes an instance type anew, because one that has been used must not be copied.
func soldOut(it *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name:         it.Name,
		Requirements: it.Requirements,
		Capacity:     it.Capacity,
		Overhead:     it.Overhead,

		VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		Offerings: lo.Map(it.Offerings, func(offering *cloudprovider.Offering, _ int) *cloudprovider.Offering {
			return &cloudprovider.Offering{Requirements: offering.Requirements, Price: offering.Price}
		}),
	}
}
