// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UserDataSource is where user data comes from, beside spec.userData: a key of a Secret or of a ConfigMap of the
// controller's namespace.
// +kubebuilder:validation:XValidation:message="userDataFrom must have one of secretKeyRef and configMapKeyRef",rule="has(self.secretKeyRef) != has(self.configMapKeyRef)"
type UserDataSource struct {
	// SecretKeyRef is a key of a Secret, which the chart's value userDataSecrets must list.
	// +optional
	SecretKeyRef *KeySelector `json:"secretKeyRef,omitempty"`
	// ConfigMapKeyRef is a key of a ConfigMap, which the chart's value userDataConfigMaps must list.
	// +optional
	ConfigMapKeyRef *KeySelector `json:"configMapKeyRef,omitempty"`
}

// KeySelector selects a key of a Secret or ConfigMap of the controller's namespace.
type KeySelector struct {
	// Name is the name of the Secret or ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:message="name must be that of a Secret or ConfigMap: lower-case letters, digits, - and ., beginning and ending with a letter or digit",rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')"
	Name string `json:"name"`
	// Key is the key within it, for example userData.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:message="key must be that of a Secret or ConfigMap: letters, digits, - _ and .",rule="self.matches('^[-._a-zA-Z0-9]+$')"
	Key string `json:"key"`
}

// JoinToken is a bootstrap token that is created for one server.
type JoinToken struct {
	// TTL is how long the token is valid, 15m to 24h: core gives a node 15 minutes to register.
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:message="joinToken.ttl must be a duration between 15m and 24h, for example 30m",rule="self.matches('^([0-9]{1,5}(s|m|h)){1,3}$') && duration(self) >= duration('15m') && duration(self) <= duration('24h')"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +optional
	TTL metav1.Duration `json:"ttl,omitempty"`
}

// MetadataOptions are who reaches the metadata service of a server.
type MetadataOptions struct {
	// PodAccess is Blocked or Allowed. Blocked puts a script before other scripts of user data: a systemd unit that drops
	// what pods send to the metadata service, where each could read user data and join token. Where that does not hold,
	// the condition PodAccessEnforced says what else is needed. Allowed is for images without cloud-init, and where a
	// policy of the pod network holds.
	// +kubebuilder:default=Blocked
	// +optional
	PodAccess PodAccess `json:"podAccess,omitempty"`
}

// KubeletConfiguration is the part of the kubelet's configuration that a NodeClass sets.
// +kubebuilder:validation:XValidation:message="imageGCHighThresholdPercent (default 85) must be greater than imageGCLowThresholdPercent (default 80)",rule="(has(self.imageGCHighThresholdPercent) ? self.imageGCHighThresholdPercent : 85) > (has(self.imageGCLowThresholdPercent) ? self.imageGCLowThresholdPercent : 80)"
// +kubebuilder:validation:XValidation:message="each threshold of evictionSoft needs a time in evictionSoftGracePeriod, and each time a threshold",rule="(has(self.evictionSoft) ? self.evictionSoft.all(k, has(self.evictionSoftGracePeriod) && k in self.evictionSoftGracePeriod) : true) && (has(self.evictionSoftGracePeriod) ? self.evictionSoftGracePeriod.all(k, has(self.evictionSoft) && k in self.evictionSoft) : true)"
type KubeletConfiguration struct {
	// MaxPods is the most pods that the node runs. Default: 110.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxPods *int32 `json:"maxPods,omitempty"`
	// PodsPerCore limits the pods by the number of vCPUs; the lower of it and maxPods holds.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	PodsPerCore *int32 `json:"podsPerCore,omitempty"`
	// SystemReserved is reserved for the operating system: cpu, memory and ephemeral-storage.
	// +kubebuilder:validation:XValidation:message="valid keys for systemReserved are cpu, memory and ephemeral-storage",rule="self.all(x, x in ['cpu','memory','ephemeral-storage'])"
	// +kubebuilder:validation:XValidation:message="systemReserved values must be quantities that are not negative",rule="['cpu','memory','ephemeral-storage'].all(x, !(x in self) || (isQuantity(self[x]) && quantity(self[x]).compareTo(quantity('0')) >= 0))"
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	// KubeReserved is reserved for the kubelet and the container runtime: cpu, memory and ephemeral-storage.
	// +kubebuilder:validation:XValidation:message="valid keys for kubeReserved are cpu, memory and ephemeral-storage",rule="self.all(x, x in ['cpu','memory','ephemeral-storage'])"
	// +kubebuilder:validation:XValidation:message="kubeReserved values must be quantities that are not negative",rule="['cpu','memory','ephemeral-storage'].all(x, !(x in self) || (isQuantity(self[x]) && quantity(self[x]).compareTo(quantity('0')) >= 0))"
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	KubeReserved map[string]string `json:"kubeReserved,omitempty"`
	// EvictionHard is when the kubelet evicts pods: memory.available and nodefs.available, each a quantity or a
	// percentage.
	// +kubebuilder:validation:XValidation:message="valid keys for evictionHard are memory.available and nodefs.available",rule="self.all(x, x in ['memory.available','nodefs.available'])"
	// +kubebuilder:validation:XValidation:message="evictionHard values must be percentages below 100% or quantities above 0, for example 5% or 100Mi; 0% switches a threshold off",rule="['memory.available','nodefs.available'].all(x, !(x in self) || self[x].matches('^[0-9]{1,2}([.][0-9]+)?%$') || (isQuantity(self[x]) && quantity(self[x]).compareTo(quantity('0')) > 0))"
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
	// EvictionSoft is like evictionHard, after evictionSoftGracePeriod. The scheduler computes with evictionHard alone, as
	// the kubelet does.
	// +kubebuilder:validation:XValidation:message="valid keys for evictionSoft are memory.available and nodefs.available",rule="self.all(x, x in ['memory.available','nodefs.available'])"
	// +kubebuilder:validation:XValidation:message="evictionSoft values must be percentages below 100% or quantities above 0, for example 10% or 200Mi; 0% switches a threshold off",rule="['memory.available','nodefs.available'].all(x, !(x in self) || self[x].matches('^[0-9]{1,2}([.][0-9]+)?%$') || (isQuantity(self[x]) && quantity(self[x]).compareTo(quantity('0')) > 0))"
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod is how long each threshold of evictionSoft must hold, for example "1m30s".
	// +kubebuilder:validation:XValidation:message="valid keys for evictionSoftGracePeriod are memory.available and nodefs.available",rule="self.all(x, x in ['memory.available','nodefs.available'])"
	// +kubebuilder:validation:XValidation:message="evictionSoftGracePeriod values must be durations, for example 1m30s",rule="['memory.available','nodefs.available'].all(x, !(x in self) || self[x].matches('^([0-9]+(s|m|h))+$'))"
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	// EvictionMaxPodGracePeriod is how many seconds a pod gets at most to stop at a soft eviction. Default: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	EvictionMaxPodGracePeriod *int32 `json:"evictionMaxPodGracePeriod,omitempty"`
	// ClusterDNS are the addresses of the cluster's DNS. Default: those of the Service kube-system/kube-dns, if it may be
	// read.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:message="each of clusterDNS must be an IP address, for example 10.96.0.10",rule="self.all(a, a.matches('^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$') || a.matches('^[0-9a-fA-F]*:[0-9a-fA-F:]+$'))"
	// +listType=atomic
	// +optional
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// ImageGCHighThresholdPercent is the disk usage above which the kubelet deletes unused images. Default: 85.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent is the disk usage down to which the kubelet deletes unused images. Default: 80.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// CPUCFSQuota enforces CPU limits of containers by CFS quota. Default: true.
	// +optional
	CPUCFSQuota *bool `json:"cpuCFSQuota,omitempty"`
}

// RootDisk is the disk that a server boots from.
// +kubebuilder:validation:XValidation:message="set medium or volumeType, not both",rule="!(has(self.medium) && has(self.volumeType))"
type RootDisk struct {
	// Size is from 20Gi to 16Ti, in steps of 10Gi. It is the node's ephemeral storage.
	// +kubebuilder:default="40Gi"
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:message="rootDisk.size must be a multiple of 10Gi, in which steps disks are sold, for example 40Gi",rule="!isQuantity(string(self)) || (quantity(string(self)).isInteger() && quantity(string(self)).asInteger() % 10737418240 == 0)"
	// +kubebuilder:validation:XValidation:message="rootDisk.size must be between 20Gi and 16Ti, for example 40Gi",rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('20Gi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0"
	// +optional
	Size *resource.Quantity `json:"size,omitempty" hash:"string"`
	// Medium selects the volume type by the server's category and zone. Default: SSD, unless volumeType is set.
	// +optional
	Medium DiskMedium `json:"medium,omitempty"`
	// VolumeType is a volume type, for example PREMIUM-SSD1. Only flavors of its category are used then.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
}

// DataDisk is a further disk of a server.
// +kubebuilder:validation:XValidation:message="set medium or volumeType, not both",rule="!(has(self.medium) && has(self.volumeType))"
type DataDisk struct {
	// Size is from 10Gi to 16Ti, in steps of 10Gi.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:message="dataDisks.size must be a multiple of 10Gi, in which steps disks are sold, for example 100Gi",rule="!isQuantity(string(self)) || (quantity(string(self)).isInteger() && quantity(string(self)).asInteger() % 10737418240 == 0)"
	// +kubebuilder:validation:XValidation:message="dataDisks.size must be between 10Gi and 16Ti, for example 100Gi",rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('10Gi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0"
	// +required
	Size *resource.Quantity `json:"size" hash:"string"`
	// Medium selects the volume type by the server's category and zone. Default: SSD, unless volumeType is set.
	// +optional
	Medium DiskMedium `json:"medium,omitempty"`
	// VolumeType is a volume type, for example PREMIUM-HDD1. Only flavors of its category are used then.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
}

// ImageSelectorTerm selects an image. An alias and an id each stand alone; name, os and snapshot are different kinds of
// images.
// +kubebuilder:validation:XValidation:message="set one of alias, id, name, os and snapshot",rule="has(self.alias) || has(self.id) || has(self.name) || has(self.os) || has(self.snapshot)"
// +kubebuilder:validation:XValidation:message="alias already names one image: it cannot be combined with other fields of a term",rule="!has(self.alias) || !(has(self.id) || has(self.name) || has(self.os) || has(self.snapshot))"
// +kubebuilder:validation:XValidation:message="id already names one image: it cannot be combined with other fields of a term",rule="!has(self.id) || !(has(self.alias) || has(self.name) || has(self.os) || has(self.snapshot))"
// +kubebuilder:validation:XValidation:message="name (custom images), os (public images) and snapshot are different kinds of images: use a term for each",rule="[has(self.name), has(self.os), has(self.snapshot)].filter(x, x).size() <= 1"
type ImageSelectorTerm struct {
	// Alias is a BKE worker image: family bke (the cluster's default), bke-ubuntu or bke-flatcar. "bke@latest" follows the
	// control plane's version; "bke@v1.33" follows its patches, "bke-flatcar@v1.33.5" stays with that version.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:message="alias must be a family (bke, bke-ubuntu or bke-flatcar), @ and a version (latest, v1.33 or v1.33.5), for example bke@latest",rule="self.matches('^bke(-ubuntu|-flatcar)?@(latest|v[0-9]+[.][0-9]+([.][0-9]+)?)$')"
	// +optional
	Alias string `json:"alias,omitempty"`
	// ID is the id of an image, public or custom.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the name of a custom image of the project, with * for any characters, for example "worker-*"; the newest is
	// used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
	// OS is a public operating system image.
	// +optional
	OS *OSImageSelector `json:"os,omitempty"`
	// Snapshot is a snapshot of a boot volume.
	// +optional
	Snapshot *SnapshotSelector `json:"snapshot,omitempty"`
}

// SnapshotSelector selects a volume snapshot by its id or by its name.
// +kubebuilder:validation:XValidation:message="set exactly one of snapshot.id and snapshot.name",rule="has(self.id) != has(self.name)"
type SnapshotSelector struct {
	// ID is the id of a snapshot.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`
	// Name is the name of a snapshot, with * for any characters, for example "golden-*"; the newest is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Name string `json:"name,omitempty"`
}

// FlavorSelectorTerm selects flavors; the fields that are set must all match.
// +kubebuilder:validation:XValidation:message="set at least one of name, category and generation",rule="has(self.name) || has(self.category) || has(self.generation)"
type FlavorSelectorTerm struct {
	// Name is the name of flavors, with * for any characters, for example "nix.*" or "4c_8g_dedicated".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="name must be made of letters, digits, - _ . and *, for example nix.*",rule="self.matches('^[A-Za-z0-9_.*-]+$')"
	// +optional
	Name string `json:"name,omitempty"`
	// Category is basic, premium, enterprise or dedicated, or another one of the cloud.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="category must be lower case: letters, digits, - and _, for example premium",rule="self.matches('^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$')"
	// +optional
	Category string `json:"category,omitempty"`
	// Generation is the hardware generation, for example "2" or "4a".
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:message="generation must begin and end with a letter or digit, with only letters, digits, '-', '_' or '.' between, for example 4a",rule="self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')"
	// +optional
	Generation string `json:"generation,omitempty"`
}

// OSImageSelector selects a public operating system image.
type OSImageSelector struct {
	// Distribution is as the cloud names it, for example "Ubuntu", in upper or lower case.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Distribution string `json:"distribution"`
	// Version is as the cloud names it, for example "24.04 x64".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
}

// NetworkSelectorTerm selects one VPC network; name and tag must both match where both are set. Of several that match,
// the one that the NodeClass uses already stays; where it uses none of them, select one by its id.
// +kubebuilder:validation:XValidation:message="set at least one of alias, id, name and tag",rule="has(self.alias) || has(self.id) || has(self.name) || has(self.tag)"
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
	// Tag is a tag of one VPC network.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Tag string `json:"tag,omitempty"`
	// Alias is "default": the project's default network.
	// +kubebuilder:validation:Enum={default}
	// +optional
	Alias string `json:"alias,omitempty"`
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
