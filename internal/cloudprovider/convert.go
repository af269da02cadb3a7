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

// describe makes the claim of a server from the server alone, so that deleted configuration never hides a server.
func (c *CloudProvider) describe(server *instance.Instance) *karpv1.NodeClaim {
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: server.Flavor,
		corev1.LabelTopologyZone:       server.Zone,
		corev1.LabelTopologyRegion:     c.zones.RegionLabel(),
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
		// The cloud does not say since when; core only asks whether.
		claim.DeletionTimestamp = lo.ToPtr(metav1.NewTime(c.clock.Now()))
	}
	return claim
}

// convert returns what Create returns: a label for every requirement that the instance type and the offering decide,
// because a NodePool may ask for any of them and core compares labels.
func (c *CloudProvider) convert(l *launch, server *instance.Instance, record launchRecord) *karpv1.NodeClaim {
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

// OwnedAddresses returns the ids of the network interfaces that are recorded on the claim as its server's own.
func OwnedAddresses(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedAddresses], ","))
}

// OwnedVolumes returns the ids of the disks that are recorded on the claim as its server's own.
func OwnedVolumes(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedVolumes], ","))
}

// serverName is the name of the claim's server as far as the claim knows it.
func serverName(claim *karpv1.NodeClaim) string {
	if intent, err := IntentOf(claim); err == nil && intent != nil {
		return intent.Name
	}
	return claim.Status.NodeName
}
