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
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
)

// Conditions of a BizflyNodeClass. Ready is true when all of them are.
const (
	// ConditionTypeZonesReady says whether at least one zone is left in which servers may be launched.
	ConditionTypeZonesReady = "ZonesReady"
	// ConditionTypeImagesReady says whether the image was found.
	ConditionTypeImagesReady = "ImagesReady"
	// ConditionTypeNetworksReady says whether the VPC networks were found.
	ConditionTypeNetworksReady = "NetworksReady"
	// ConditionTypeFirewallsReady says whether every firewall was found.
	ConditionTypeFirewallsReady = "FirewallsReady"
	// ConditionTypeSSHKeyReady says whether the SSH key was found.
	ConditionTypeSSHKeyReady = "SSHKeyReady"
	// ConditionTypeBootstrapReady says whether user data can be made that lets a server join.
	ConditionTypeBootstrapReady = "BootstrapReady"
	// ConditionTypeDisksReady says whether the volume types of the disks are sold anywhere.
	ConditionTypeDisksReady = "DisksReady"
	// ConditionTypeFlavorsReady says whether the zones, billing plan, volume types and flavor selector leave any flavor.
	ConditionTypeFlavorsReady = "FlavorsReady"
)

// ConditionTypeLaunchesSucceeding is a condition beside the others, which Ready does not depend on: False while launches
// with this NodeClass pause because they kept failing for reasons other than capacity, and True once the pause has
// ended. A NodeClass with which launches never kept failing does not have it.
const ConditionTypeLaunchesSucceeding = "LaunchesSucceeding"

// ConditionTypeEgressAvailable is a condition beside the others, which Ready does not depend on: False with the reason
// NoEgress where servers get no public address and no network of theirs has an internet gateway, so that they can reach
// neither registries nor, perhaps, the cluster.
const ConditionTypeEgressAvailable = "EgressAvailable"

// ConditionTypeLaunchVerified is a condition beside the others, which Ready does not depend on: Unknown with the reason
// UnknownUntilFirstLaunch while no node of this spec has registered, because what only a launch can show (that the image
// boots, that user data joins, that the flavor can be had with these disks) is not known before; True afterwards.
const ConditionTypeLaunchVerified = "LaunchVerified"

// ConditionTypeBillingPlanSuitable is a condition beside the others, which Ready does not depend on: False while billingPlan
// is SavingPlan and a NodePool of this NodeClass makes and removes nodes by itself, since a saving plan is prepaid at each
// create and forfeited at each delete. A NodeClass that is paid for on demand does not have it.
const ConditionTypeBillingPlanSuitable = "BillingPlanSuitable"

// ConditionTypePackageRoomAvailable is a condition beside the others, which Ready does not depend on: False with the reason
// PackageLimitReached while the cluster has as many nodes as the package of the BKE cluster allows. A NodeClass whose servers
// do not join by BKE, and one of a cluster whose package does not say how many nodes it allows, do not have it.
const ConditionTypePackageRoomAvailable = "PackageRoomAvailable"

// BizflyNodeClassStatus is what the spec means in the cloud right now.
type BizflyNodeClassStatus struct {
	// Zones are the zones in which servers may be launched. They stay listed while they are sold out.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// Images are the images that new servers boot.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Images []ImageStatus `json:"images,omitempty"`
	// Networks are the VPC networks in which servers get a port, in the order of the ports.
	// +optional
	Networks []NetworkStatus `json:"networks,omitempty"`
	// Firewalls are the firewalls that are attached to servers.
	// +optional
	Firewalls []FirewallStatus `json:"firewalls,omitempty"`
	// SSHKeyName is the name of the SSH key that is installed on servers.
	// +optional
	SSHKeyName string `json:"sshKeyName,omitempty"`
	// FlavorCount is how many flavors servers may have, available or not.
	// +optional
	FlavorCount int32 `json:"flavorCount,omitempty"`
	// VolumeTypes are the volume types of the root disk by zone and category.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	VolumeTypes []VolumeTypeStatus `json:"volumeTypes,omitempty"`
	// UserDataHash is the hash of the templates that make user data, wherever they come from; empty in BKE mode without any.
	// +optional
	UserDataHash string `json:"userDataHash,omitempty"`
	// VerifiedLaunch is what a node has registered with since: the evidence of the condition LaunchVerified, which outlives
	// the node.
	// +optional
	VerifiedLaunch *VerifiedLaunchStatus `json:"verifiedLaunch,omitempty"`
	// KubernetesVersion is the version that a BKE worker image runs, for example v1.35.4; empty for other images.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Conditions say what is well and what is not, and what to do about it.
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// ImageStatus is a resolved image.
type ImageStatus struct {
	// ID is the id of the image.
	ID string `json:"id"`
	// Name is what people call the image.
	// +optional
	Name string `json:"name,omitempty"`
	// Type is image or snapshot; empty means image.
	// +optional
	Type ImageType `json:"type,omitempty"`
	// Requirements are what instance types must have to boot it, as well-known labels.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
	// MinDiskGiB is the least root disk that it fits on, in GiB; 0 where the cloud does not say.
	// +optional
	MinDiskGiB int32 `json:"minDiskGiB,omitempty"`
}

// VerifiedLaunchStatus is what a node was launched with that has registered.
type VerifiedLaunchStatus struct {
	// Hash is the hash of the spec's fields that cannot change on a running server.
	Hash string `json:"hash"`
	// ImageID is the id of the image.
	ImageID string `json:"imageID"`
}

// ImageType is what a root disk is made from.
// +kubebuilder:validation:Enum={image,snapshot}
type ImageType string

// What root disks are made from; the words are those of the API.
const (
	// ImageTypeImage is an image.
	ImageTypeImage ImageType = "image"
	// ImageTypeSnapshot is a volume snapshot.
	ImageTypeSnapshot ImageType = "snapshot"
)

// VolumeTypeStatus is the volume type that a root disk gets.
type VolumeTypeStatus struct {
	// Zone is the zone.
	Zone string `json:"zone"`
	// Category is the category of the server.
	Category string `json:"category"`
	// Name is the name of the volume type.
	Name string `json:"name"`
}

// NetworkStatus is a resolved VPC network.
type NetworkStatus struct {
	// ID is the id of the network.
	ID string `json:"id"`
	// Name is the name of the network.
	// +optional
	Name string `json:"name,omitempty"`
}

// FirewallStatus is a resolved firewall.
type FirewallStatus struct {
	// ID is the id of the firewall.
	ID string `json:"id"`
	// Name is the name of the firewall.
	// +optional
	Name string `json:"name,omitempty"`
}

// Image returns the image that new servers boot, nil while none is resolved.
func (in *BizflyNodeClassStatus) Image() *ImageStatus {
	if len(in.Images) == 0 {
		return nil
	}
	return &in.Images[0]
}

// GetConditions returns the conditions, for operatorpkg.
func (in *BizflyNodeClass) GetConditions() []status.Condition { return in.Status.Conditions }

// SetConditions sets the conditions, for operatorpkg.
func (in *BizflyNodeClass) SetConditions(conditions []status.Condition) {
	in.Status.Conditions = conditions
}

// StatusConditions returns the set of conditions whose conjunction is Ready.
func (in *BizflyNodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(
		ConditionTypeZonesReady,
		ConditionTypeImagesReady,
		ConditionTypeNetworksReady,
		ConditionTypeFirewallsReady,
		ConditionTypeSSHKeyReady,
		ConditionTypeBootstrapReady,
		ConditionTypeDisksReady,
		ConditionTypeFlavorsReady,
	).For(in, opts...)
}
