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
	"k8s.io/apimachinery/pkg/api/resource"
)

// RootDisk is the disk that a server boots from.
// +kubebuilder:validation:XValidation:message="set type or volumeType, not both",rule="!(has(self.type) && has(self.volumeType))"
type RootDisk struct {
	// Size is the size of the disk, at least 20Gi, in steps of 10Gi. It is the node's ephemeral storage.
	// +kubebuilder:default="40Gi"
	// +kubebuilder:validation:XValidation:message="rootDisk.size must be a multiple of 10Gi, in which steps disks are sold, for example 40Gi",rule="!isQuantity(string(self)) || (quantity(string(self)).isInteger() && quantity(string(self)).asInteger() % 10737418240 == 0)"
	// +kubebuilder:validation:XValidation:message="rootDisk.size must be between 20Gi and 16Ti, for example 40Gi",rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('20Gi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0"
	// +optional
	Size *resource.Quantity `json:"size,omitempty" hash:"string"`
	// Type is the medium: the volume type of the server's category and zone with this medium is used. The default,
	// where volumeType is not set either, is SSD.
	// +optional
	Type DiskType `json:"type,omitempty"`
	// VolumeType is a volume type by its name, for example PREMIUM-SSD1. A volume type belongs to one category, so
	// only flavors of that category are then used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
}

// DataDisk is a further disk of a server.
// +kubebuilder:validation:XValidation:message="set type or volumeType, not both",rule="!(has(self.type) && has(self.volumeType))"
type DataDisk struct {
	// Size is the size of the disk, at least 10Gi, in steps of 10Gi.
	// +kubebuilder:validation:XValidation:message="dataDisks.size must be a multiple of 10Gi, in which steps disks are sold, for example 100Gi",rule="!isQuantity(string(self)) || (quantity(string(self)).isInteger() && quantity(string(self)).asInteger() % 10737418240 == 0)"
	// +kubebuilder:validation:XValidation:message="dataDisks.size must be between 10Gi and 16Ti, for example 100Gi",rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('10Gi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0"
	// +required
	Size *resource.Quantity `json:"size" hash:"string"`
	// Type is the medium: the volume type of the server's category and zone with this medium is used. The default,
	// where volumeType is not set either, is SSD.
	// +optional
	Type DiskType `json:"type,omitempty"`
	// VolumeType is a volume type by its name, for example PREMIUM-HDD1. A volume type belongs to one category, so only
	// flavors of that category are then used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
}
