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
	// ConditionTypeFlavorsReady says whether the zones, billing plan and volume type leave any flavor.
	ConditionTypeFlavorsReady = "FlavorsReady"
)

// ConditionTypeLaunchesSucceeding is a condition beside the others, which Ready does not depend on: False while launches
// with this NodeClass pause because they kept failing for reasons other than capacity, and True once they are tried
// again. A NodeClass with which launches never kept failing does not have it.
const ConditionTypeLaunchesSucceeding = "LaunchesSucceeding"

// BizflyNodeClassStatus is what the spec means in the cloud right now.
type BizflyNodeClassStatus struct {
	// Zones are the zones in which servers may be launched. They stay listed while they are sold out.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// Image is the image that new servers boot.
	// +optional
	Image *ImageStatus `json:"image,omitempty"`
	// Networks are the VPC networks in which servers get a port, in the order of the ports.
	// +optional
	Networks []NetworkStatus `json:"networks,omitempty"`
	// Firewalls are the firewalls that are attached to servers.
	// +optional
	Firewalls []FirewallStatus `json:"firewalls,omitempty"`
	// SSHKey is the name of the SSH key that is installed on servers.
	// +optional
	SSHKey string `json:"sshKey,omitempty"`
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
		ConditionTypeFlavorsReady,
	).For(in, opts...)
}
