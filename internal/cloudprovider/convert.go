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
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// listing is an answer of the cloud to List.
type listing struct {
	at      time.Time
	servers map[string]*instance.Instance
	// interfaces is nil while they were never read; they may be older than the servers.
	interfaces *interfaces
}

// describe returns the NodeClaim of a server from the server alone, so that deleted configuration never hides a server.
func (c *config) describe(server *instance.Instance) *karpv1.NodeClaim {
	region := ""
	if snapshot, err := c.Catalog.Snapshot(); err == nil {
		region = snapshot.RegionLabel()
	}
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: server.Flavor,
		corev1.LabelTopologyZone:       server.Zone,
		corev1.LabelTopologyRegion:     region,
		karpv1.CapacityTypeLabelKey:    karpv1.CapacityTypeOnDemand,
		karpv1.NodePoolLabelKey:        server.NodePool,
		karpv1.NodeClassLabelKey(v1alpha1.GroupVersion.WithKind(nodeClassKind).GroupKind()): server.NodeClass,
	}
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              server.NodeClaim,
			Labels:            lo.OmitByValues(labels, []string{""}),
			CreationTimestamp: metav1.NewTime(server.CreatedAt),
		},
		Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(server.ID), ImageID: server.ImageID},
	}
	if server.Deleting() {
		// The API does not return since when; core only asks whether.
		claim.DeletionTimestamp = lo.ToPtr(metav1.NewTime(c.Clock.Now()))
	}
	return claim
}

// convert returns the NodeClaim that Create returns, with a label for every requirement that the instance type and the offering
// decide, because a NodePool may require any of them and core compares labels.
func (c *config) convert(l *launch, server *instance.Instance, record launchRecord) *karpv1.NodeClaim {
	claim := c.describe(server)
	if instanceType, offering := find(l.types, server.Flavor, server.Zone); instanceType != nil {
		claim.Labels = lo.Assign(claim.Labels, typeLabels(instanceType, offering))
		if offering != nil && offering.Price > 0 {
			claim.Labels[v1alpha1.LabelLaunchPrice] = strconv.FormatFloat(offering.Price, 'f', 0, 64)
		}
		claim.Status.Capacity = withoutZeros(instanceType.Capacity)
		claim.Status.Allocatable = withoutZeros(instanceType.Allocatable())
	}
	claim.Annotations = map[string]string{
		v1alpha1.AnnotationNodeClassHash:        record.Hash,
		v1alpha1.AnnotationNodeClassHashVersion: record.HashVersion,
	}
	return claim
}

// typeLabels returns the requirements that leave one value, the offering's last.
func typeLabels(instanceType *cloudprovider.InstanceType, offering *cloudprovider.Offering) map[string]string {
	labels := map[string]string{}
	add := func(requirements scheduling.Requirements) {
		for key, requirement := range requirements {
			if requirement.Operator() == corev1.NodeSelectorOpIn && requirement.Len() == 1 {
				labels[key] = requirement.Any()
			}
		}
	}
	add(instanceType.Requirements)
	if offering != nil {
		add(offering.Requirements)
	}
	return labels
}

func withoutZeros(list corev1.ResourceList) corev1.ResourceList {
	return lo.PickBy(list, func(_ corev1.ResourceName, quantity resource.Quantity) bool { return !resources.IsZero(quantity) })
}

// OwnedAddresses returns the ids of the network interfaces that are recorded on the NodeClaim as its server's own.
func OwnedAddresses(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedAddresses], ","))
}

// OwnedVolumes returns the ids of the disks that are recorded on the NodeClaim as its server's own.
func OwnedVolumes(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedVolumes], ","))
}

// ServerName is the name of the NodeClaim's server as far as the NodeClaim knows it.
func ServerName(claim *karpv1.NodeClaim) string {
	if intent, err := IntentOf(claim); err == nil && intent != nil {
		return intent.Name
	}
	return claim.Status.NodeName
}

// delivered is the server that a create request led to, as it was before the node registered. Where BizFly Cloud rounds a disk,
// names a plan differently or adds a network of its own, its next server would be the same again: what was delivered so has
// not drifted, or nodes would be replaced indefinitely.
type delivered struct {
	// BillingPlan is the billing plan that BizFly Cloud returned.
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
	text, err := json.Marshal(delivered{BillingPlan: server.BillingPlan, Networks: networksOf(ports)[server.ID],
		Disks: lo.SliceToMap(server.Volumes, func(v instance.Volume) (string, deliveredDisk) {
			return v.ID, deliveredDisk{GiB: v.SizeGiB, Medium: v.Medium}
		})})
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// deliveredOf reads the annotation of the NodeClaim; it is empty where that is missing or invalid.
func deliveredOf(claim *karpv1.NodeClaim) delivered {
	var as delivered
	if err := json.Unmarshal([]byte(claim.Annotations[v1alpha1.AnnotationDelivered]), &as); err != nil {
		return delivered{}
	}
	return as
}

// same reports whether the disk is as it was delivered.
func (d delivered) same(v instance.Volume) bool {
	as, known := d.Disks[v.ID]
	return known && as == deliveredDisk{GiB: v.SizeGiB, Medium: v.Medium}
}
