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

package v1alpha1

import (
	"fmt"

	"github.com/mitchellh/hashstructure/v2"
	"github.com/samber/lo"
)

// NodeClassHashVersion is the version of Hash. It is raised whenever the same spec would hash differently (a new field
// with a default, a changed tag), so that an upgrade re-stamps hashes instead of rolling every node.
const NodeClassHashVersion = "v1"

// Hash returns the hash of the fields that cannot change on a running server and that no other drift check covers.
// Selector terms and zones are left out: what they resolve to is compared with the live server instead, so that a
// selector which is written differently but means the same rolls nothing.
func (in *BizflyNodeClass) Hash() string {
	return fmt.Sprint(lo.Must(hashstructure.Hash(in.Spec, hashstructure.FormatV2, &hashstructure.HashOptions{
		// Not as sets: two equal data disks would cancel each other out, and their order is the order of the devices.
		SlicesAsSets:    false,
		IgnoreZeroValue: true,
		ZeroNil:         true,
	})))
}
