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
	"encoding/json"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// delivered is what the cloud made of an order, as it was seen before the node registered. Where a cloud rounds a disk, has
// its own word for a plan or adds a network of its own, its next server would be the same again: what was delivered so has
// not drifted, or nodes would be replaced for ever.
type delivered struct {
	// BillingPlan is how the cloud says that the server is paid for.
	BillingPlan string `json:"billingPlan,omitempty"`
	// Networks are the private networks of its interfaces, as far as they were listed by then.
	Networks []string `json:"networks,omitempty"`
	// Disks are its disks by id.
	Disks map[string]deliveredDisk `json:"disks,omitempty"`
}

type deliveredDisk struct {
	GiB    int                 `json:"gib"`
	Medium v1alpha1.DiskMedium `json:"type,omitempty"`
}

// Delivered returns how a new server was delivered, as text for AnnotationDelivered. The ports are those of the project.
func Delivered(server *instance.Instance, ports []instance.Port) string {
	text, err := json.Marshal(delivered{BillingPlan: server.BillingPlan, Networks: networksOf(ports)[server.ID], Disks: lo.SliceToMap(server.Volumes, func(v instance.Volume) (string, deliveredDisk) {
		return v.ID, deliveredDisk{GiB: v.SizeGiB, Medium: v.Medium}
	})})
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// deliveredOf reads what was written on the claim; nothing where nobody wrote it down or somebody has changed it.
func deliveredOf(claim *karpv1.NodeClaim) delivered {
	var as delivered
	if err := json.Unmarshal([]byte(claim.Annotations[v1alpha1.AnnotationDelivered]), &as); err != nil {
		return delivered{}
	}
	return as
}

// same says that the disk is as it was delivered.
func (d delivered) same(v instance.Volume) bool {
	as, known := d.Disks[v.ID]
	return known && as == deliveredDisk{GiB: v.SizeGiB, Medium: v.Medium}
}
