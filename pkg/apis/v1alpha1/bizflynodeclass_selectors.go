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

// ImageSelectorTerm selects an image. An alias and an id each stand alone; name, os and snapshot are different kinds of images.
// +kubebuilder:validation:XValidation:message="set one of alias, id, name, os and snapshot",rule="has(self.alias) || has(self.id) || has(self.name) || has(self.os) || has(self.snapshot) || has(self.osType)"
// +kubebuilder:validation:XValidation:message="alias already names one image: it cannot be combined with other fields of a term",rule="!has(self.alias) || !(has(self.id) || has(self.name) || has(self.os) || has(self.snapshot))"
// +kubebuilder:validation:XValidation:message="id already names one image: it cannot be combined with other fields of a term",rule="!has(self.id) || !(has(self.alias) || has(self.name) || has(self.os) || has(self.snapshot))"
// +kubebuilder:validation:XValidation:message="name (custom images), os (public images) and snapshot are different kinds of images: use a term for each",rule="[has(self.name), has(self.os), has(self.snapshot)].filter(x, x).size() <= 1"
type ImageSelectorTerm struct {
	// Alias is the BKE worker image. Its family is bke (the cluster's default), bke-ubuntu or bke-flatcar:
	// "bke@latest" follows the version of the control plane, "bke-flatcar@v1.33" or "bke@v1.33.5" stays with that version.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:message="alias must be a family (bke, bke-ubuntu or bke-flatcar), @ and a version (latest, v1.33 or v1.33.5), for example bke@latest",rule="self.matches('^bke(-ubuntu|-flatcar)?@(latest|v[0-9]+[.][0-9]+([.][0-9]+)?)$')"
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
	// Snapshot is a snapshot of a boot volume, from which the root disk is created.
	// +optional
	Snapshot *SnapshotSelector `json:"snapshot,omitempty"`
	// OSType became part of the alias.
	// +kubebuilder:validation:XValidation:message="osType became part of the alias: use alias bke-ubuntu@... or bke-flatcar@...",rule="false"
	// +optional
	OSType string `json:"osType,omitempty"`
}

// SnapshotSelector selects a volume snapshot by its id or by its name.
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

// FlavorSelectorTerm selects flavors; the fields that are set must all match.
// +kubebuilder:validation:XValidation:message="set at least one of name, category and generation",rule="has(self.name) || has(self.category) || has(self.generation)"
type FlavorSelectorTerm struct {
	// Name is the name of flavors, in which * stands for any characters, for example "nix.*" or "4c_8g_dedicated".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="name must be made of letters, digits, - _ . and *, for example nix.*",rule="self.matches('^[A-Za-z0-9_.*-]+$')"
	// +optional
	Name string `json:"name,omitempty"`
	// Category is basic, premium, enterprise or dedicated, or another category of the cloud.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="category must be lower case: letters, digits, - and _, for example premium",rule="self.matches('^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$')"
	// +optional
	Category string `json:"category,omitempty"`
	// Generation is the code of the hardware generation, for example "2" or "4a". It is the value of the label
	// karpenter.bizflycloud.vn/instance-generation.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="generation must begin and end with a letter or digit, with only letters, digits, '-', '_' or '.' between, for example 4a",rule="self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')"
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

// NetworkSelectorTerm selects VPC networks; name and tag must both match where both are set.
// +kubebuilder:validation:XValidation:message="set at least one of alias, id, name and tag",rule="has(self.alias) || has(self.id) || has(self.name) || has(self.tag) || has(self.default)"
// +kubebuilder:validation:XValidation:message="alias already names one network: it cannot be combined with other fields of a term",rule="!has(self.alias) || !(has(self.id) || has(self.name) || has(self.tag))"
// +kubebuilder:validation:XValidation:message="id already names one network: it cannot be combined with other fields of a term",rule="!has(self.id) || !(has(self.alias) || has(self.name) || has(self.tag))"
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
	// Default was replaced by alias.
	// +kubebuilder:validation:XValidation:message="default was replaced: use alias: default",rule="false"
	// +optional
	Default *bool `json:"default,omitempty"`
}

// FirewallSelectorTerm selects a firewall by its id or by its name.
// +kubebuilder:validation:XValidation:message="set at least one of id and name",rule="has(self.id) || has(self.name)"
// +kubebuilder:validation:XValidation:message="id already names one firewall: it cannot be combined with other fields of a term",rule="!has(self.id) || !has(self.name)"
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
