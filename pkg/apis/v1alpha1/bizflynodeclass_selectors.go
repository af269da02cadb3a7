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

// ImageSelectorTerm selects an image in exactly one way.
// +kubebuilder:validation:XValidation:message="set exactly one of alias, id, name, os and snapshot",rule="[has(self.alias), has(self.id), has(self.name), has(self.os), has(self.snapshot)].filter(x, x).size() == 1"
type ImageSelectorTerm struct {
	// Alias is the BKE worker image. Its family is bke (the cluster's default), bke-ubuntu or bke-flatcar:
	// "bke@latest" follows the version of the control plane, "bke-flatcar@v1.33" or "bke@v1.33.5" stays with that version.
	// +kubebuilder:validation:Pattern=`^bke(-ubuntu|-flatcar)?@(latest|v[0-9]+\.[0-9]+(\.[0-9]+)?)$`
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Alias string `json:"alias,omitempty"`
	// ID is the id of an image, public or custom.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the name of a custom image of the project, in which * stands for any characters, for example "worker-*";
	// of several, the newest is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
	// OS is a public operating system image.
	// +optional
	OS *OSImageSelector `json:"os,omitempty"`
	// Snapshot is a snapshot of a boot volume, from which the root disk is made.
	// +optional
	Snapshot *SnapshotSelector `json:"snapshot,omitempty"`
}

// SnapshotSelector selects a volume snapshot in exactly one way.
// +kubebuilder:validation:XValidation:message="set exactly one of snapshot.id and snapshot.name",rule="has(self.id) != has(self.name)"
type SnapshotSelector struct {
	// ID is the id of a volume snapshot.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the name of a volume snapshot, in which * stands for any characters, for example "golden-*"; of several,
	// the newest is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
}

// FlavorSelectorTerm selects flavors; what is set must all hold.
// +kubebuilder:validation:XValidation:message="set at least one of name, category and generation",rule="has(self.name) || has(self.category) || has(self.generation)"
type FlavorSelectorTerm struct {
	// Name is the name of flavors, in which * stands for any characters, for example "nix.*" or "4c_8g_dedicated".
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.*-]+$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// Category is basic, premium, enterprise or dedicated, or another that the cloud sells.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Category string `json:"category,omitempty"`
	// Generation is the code of the hardware generation, for example "2" or "4a": the value of the label
	// karpenter.bizflycloud.vn/instance-generation.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Generation string `json:"generation,omitempty"`
}

// OSImageSelector selects a public operating system image.
type OSImageSelector struct {
	// Distribution is the distribution as the cloud names it, for example "Ubuntu"; letter case does not matter.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Distribution string `json:"distribution"`
	// Version is the version as the cloud names it, for example "24.04 x64"; letter case does not matter.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
}

// NetworkSelectorTerm selects VPC networks in exactly one way.
// +kubebuilder:validation:XValidation:message="set exactly one of alias, id, name and tag",rule="[has(self.id), has(self.name), has(self.tag), has(self.alias)].filter(x, x).size() == 1"
type NetworkSelectorTerm struct {
	// ID is the id of a VPC network.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the exact name of a VPC network.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
	// Tag is a tag of VPC networks.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Tag string `json:"tag,omitempty"`
	// Alias is "default": the project's default VPC network.
	// +kubebuilder:validation:Enum={default}
	// +optional
	Alias string `json:"alias,omitempty"`
}

// FirewallSelectorTerm selects a firewall in exactly one way.
// +kubebuilder:validation:XValidation:message="set exactly one of id and name",rule="has(self.id) != has(self.name)"
type FirewallSelectorTerm struct {
	// ID is the id of a firewall.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the exact name of a firewall.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
}
