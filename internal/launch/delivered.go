// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Delivered is what a server had before its node registered: it is the server's own, because no pod could run by then.
// The limits of spending and drift use it, and not what was requested: where BizFly Cloud rounds a disk, names a plan
// differently or adds a network of its own, its next server would be the same again.
type Delivered struct {
	// BillingPlan is the billing plan that BizFly Cloud returned.
	BillingPlan string `json:"billingPlan,omitempty"`
	// Networks are its private networks, and Interfaces the ids of its network interfaces, as far as they were listed
	// by then.
	Networks   []string `json:"networks,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"`
	// Disks are its disks by id, with 0 and empty for what is not known, and DataDisks is how many it was to have beside
	// the root disk.
	Disks     map[string]pricing.Disk `json:"disks"`
	DataDisks int                     `json:"dataDisks,omitempty"`
}

// EncodeDelivered returns what the server of the NodeClaim has, of which these disks are its own, as text for
// AnnotationDelivered. What is recorded stays as it is. Once the node has registered, at a time that is zero before,
// only what is missing altogether is added, of interfaces those that are older, and no network: a user may have added
// one.
func EncodeDelivered(claim *karpv1.NodeClaim, server *instance.Instance, own []instance.Volume, ports *instance.Ports,
	registered time.Time) string {
	as := DeliveredOf(claim)
	if registered.IsZero() || len(as.Disks) == 0 {
		as.BillingPlan, as.DataDisks = lo.CoalesceOrEmpty(as.BillingPlan, server.BillingPlan), server.DataDisks
		as.Disks = lo.Assign(lo.SliceToMap(own, func(v instance.Volume) (string, pricing.Disk) {
			return v.ID, pricing.Disk{GiB: v.SizeGiB, Type: v.Medium}
		}), as.Disks)
	}
	if len(as.Interfaces) == 0 {
		as.Interfaces = ports.Of(server.ID, registered)
		if registered.IsZero() {
			as.Networks = ports.Networks(server.ID)
		}
	}
	text, _ := json.Marshal(as) // strings and numbers always marshal
	return string(text)
}

// DeliveredOf reads the annotation of the NodeClaim; it is empty where that is missing or invalid.
func DeliveredOf(claim *karpv1.NodeClaim) (as Delivered) {
	text, recorded := claim.Annotations[v1alpha1.AnnotationDelivered]
	if !recorded || json.Unmarshal([]byte(text), &as) != nil {
		return Delivered{}
	}
	return as
}

// OwnedInterfaces returns the ids of the network interfaces that are recorded on the NodeClaim as its server's own.
func OwnedInterfaces(claim *karpv1.NodeClaim) []string { return DeliveredOf(claim).Interfaces }

// OwnedVolumes returns the ids of the disks that are recorded on the NodeClaim as its server's own.
func OwnedVolumes(claim *karpv1.NodeClaim) []string {
	return slices.Sorted(maps.Keys(DeliveredOf(claim).Disks))
}
