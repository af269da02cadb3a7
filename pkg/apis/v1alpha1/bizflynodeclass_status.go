// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"github.com/awslabs/operatorpkg/status"
)

// Conditions of a BizflyNodeClass. Ready is true when all of them are.
const (
	// ConditionTypeZonesReady reports whether at least one zone is left in which servers may be launched.
	ConditionTypeZonesReady = "ZonesReady"
	// ConditionTypeImagesReady reports whether the image was found and suits the bootstrap mode.
	ConditionTypeImagesReady = "ImagesReady"
	// ConditionTypeNetworksReady reports whether the VPC networks were found.
	ConditionTypeNetworksReady = "NetworksReady"
	// ConditionTypeFirewallsReady reports whether every firewall was found.
	ConditionTypeFirewallsReady = "FirewallsReady"
	// ConditionTypeSSHKeyReady reports whether the SSH key was found.
	ConditionTypeSSHKeyReady = "SSHKeyReady"
	// ConditionTypeBootstrapReady reports whether user data can be created with which a server joins.
	ConditionTypeBootstrapReady = "BootstrapReady"
	// ConditionTypeDisksReady reports whether the volume types of the disks are available anywhere.
	ConditionTypeDisksReady = "DisksReady"
	// ConditionTypeFlavorsReady reports whether the zones, billing plan, volume types and flavor selector leave any
	// flavor.
	ConditionTypeFlavorsReady = "FlavorsReady"
)

// Conditions of a BizflyNodeClass that Ready does not depend on. Each is True while nothing is wrong, also where it
// does not apply.
const (
	// ConditionTypeLaunchesSucceeding is False while launches pause that kept failing for reasons other than capacity.
	ConditionTypeLaunchesSucceeding = "LaunchesSucceeding"
	// ConditionTypeEgressAvailable is False where spec.publicIPv4 is false and no network of servers has an internet
	// gateway.
	ConditionTypeEgressAvailable = "EgressAvailable"
	// ConditionTypePodAccessEnforced is not True where metadataOptions.podAccess is Blocked and pods may reach the
	// metadata service all the same: its message says what else keeps them off.
	ConditionTypePodAccessEnforced = "PodAccessEnforced"
)

// ReasonNotApplicable says that what the condition reports does not apply.
const ReasonNotApplicable = "NotApplicable"

// BizflyNodeClassStatus is what the spec resolves to in the cloud at the moment.
type BizflyNodeClassStatus struct {
	// Summary is what the columns of kubectl get show.
	// +optional
	Summary *NodeClassSummary `json:"summary,omitempty"`
	// Zones are the zones in which servers may be launched, also while nothing is available there.
	// +listType=atomic
	// +optional
	Zones []string `json:"zones,omitempty"`
	// Images are the images that new servers boot.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Images []ImageStatus `json:"images,omitempty"`
	// Networks are the VPC networks of servers, in the order of the ports.
	// +listType=atomic
	// +optional
	Networks []NetworkStatus `json:"networks,omitempty"`
	// Firewalls are the firewalls of servers.
	// +listType=atomic
	// +optional
	Firewalls []FirewallStatus `json:"firewalls,omitempty"`
	// PoolServer is what a server of BKE's own pools has, where bke.discoverFromPool is or was on. New servers have the
	// same where the spec selects no network, no firewall or no publicIPv4. It is read once for each spec.
	// +optional
	PoolServer *PoolServerStatus `json:"poolServer,omitempty"`
	// SSHKeyName is the SSH key that is installed on servers.
	// +optional
	SSHKeyName string `json:"sshKeyName,omitempty"`
	// FlavorCount is how many flavors servers may have, available or not.
	// +optional
	FlavorCount int32 `json:"flavorCount,omitempty"`
	// UserDataHash is the hash of the user data templates; empty without any.
	// +optional
	UserDataHash string `json:"userDataHash,omitempty"`
	// KubernetesVersion is the version of a BKE worker image, for example v1.35.4; empty for other images.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Conditions report what is right and what is wrong, and what to do about it.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// NodeClassSummary is what the columns of kubectl get show, each as one text.
type NodeClassSummary struct {
	// Reason is why it is not ready; empty while it is.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Zones are the zones, separated by commas.
	// +optional
	Zones string `json:"zones,omitempty"`
	// Networks are the names of the networks, separated by commas.
	// +optional
	Networks string `json:"networks,omitempty"`
}

// ImageStatus is a resolved image.
type ImageStatus struct {
	// ID is its id.
	ID string `json:"id"`
	// Name is its name.
	// +optional
	Name string `json:"name,omitempty"`
	// Type is Image or Snapshot; the default is Image.
	// +optional
	Type ImageType `json:"type,omitempty"`
	// MinDiskGiB is the smallest root disk that it fits on, in GiB; 0: not known.
	// +optional
	MinDiskGiB int32 `json:"minDiskGiB,omitempty"`
	// SingleScript reports that it takes a single script as user data: BKE's worker image with Flatcar.
	// +optional
	SingleScript bool `json:"singleScript,omitempty"`
}

// ImageType is what a root disk is created from.
// +kubebuilder:validation:Enum={Image,Snapshot}
type ImageType string

// What root disks are created from.
const (
	// ImageTypeImage is an image.
	ImageTypeImage ImageType = "Image"
	// ImageTypeSnapshot is a volume snapshot.
	ImageTypeSnapshot ImageType = "Snapshot"
)

// NetworkStatus is a resolved VPC network.
type NetworkStatus struct {
	// ID is its id.
	ID string `json:"id"`
	// Name is its name.
	// +optional
	Name string `json:"name,omitempty"`
}

// FirewallStatus is a resolved firewall.
type FirewallStatus struct {
	// ID is its id.
	ID string `json:"id"`
	// Name is its name.
	// +optional
	Name string `json:"name,omitempty"`
}

// PoolServerStatus is what the network interfaces of a server of BKE's own pools have.
type PoolServerStatus struct {
	// Node is the node of the server.
	Node string `json:"node"`
	// Networks are the ids of the VPC networks that it is in.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Networks []string `json:"networks,omitempty"`
	// Firewalls are the ids of the firewalls of its interfaces.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Firewalls []string `json:"firewalls,omitempty"`
	// PublicIPv4 reports whether it has a public IPv4 address.
	PublicIPv4 bool `json:"publicIPv4"`
}

// Image returns the image that new servers boot, nil while none is resolved.
func (in *BizflyNodeClassStatus) Image() *ImageStatus {
	if len(in.Images) == 0 {
		return nil
	}
	return &in.Images[0]
}

// ImageID returns the id of that image, empty while none is resolved.
func (in *BizflyNodeClassStatus) ImageID() string {
	if image := in.Image(); image != nil {
		return image.ID
	}
	return ""
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

// Resolved reports whether a condition of an object is true for its present spec. It reads the list itself: the set of
// conditions, which is built for each call, would fill in what is missing in an object that may belong to a cache.
func Resolved(object status.Object, condition string) bool {
	return slices.ContainsFunc(object.GetConditions(), func(c status.Condition) bool {
		return c.Type == condition && c.IsTrue() && c.ObservedGeneration == object.GetGeneration()
	})
}
