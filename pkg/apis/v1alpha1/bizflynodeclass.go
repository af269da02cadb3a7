// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BillingPlan is how a server and its disks are paid for.
// +kubebuilder:validation:Enum={OnDemand,SavingPlan}
type BillingPlan string

// The billing plans.
const (
	// BillingPlanOnDemand is paid by the hour while the server exists.
	BillingPlanOnDemand BillingPlan = "OnDemand"
	// BillingPlanSavingPlan is prepaid at each create. Whether what remains is refunded at a delete is not certain: only
	// for static replicas.
	BillingPlanSavingPlan BillingPlan = "SavingPlan"
)

// NetworkPlan is how the server's traffic is charged.
// +kubebuilder:validation:Enum={FreeDataTransfer,FreeBandwidth}
type NetworkPlan string

// The network plans.
const (
	// NetworkPlanFreeDataTransfer does not charge traffic.
	NetworkPlanFreeDataTransfer NetworkPlan = "FreeDataTransfer"
	// NetworkPlanFreeBandwidth has a faster port and an allowance of outbound traffic.
	NetworkPlanFreeBandwidth NetworkPlan = "FreeBandwidth"
)

// DiskMedium is the medium of a disk: the volume type of the server's category and zone with this medium is used.
// +kubebuilder:validation:Enum={SSD,HDD}
type DiskMedium string

// The media of disks.
const (
	// DiskMediumSSD is solid state.
	DiskMediumSSD DiskMedium = "SSD"
	// DiskMediumHDD is rotating disks.
	DiskMediumHDD DiskMedium = "HDD"
)

// DefaultRootDiskSize is the default of spec.rootDisk.size.
const DefaultRootDiskSize = "40Gi"

// DiskStepGiB is the step of disk sizes: a disk of a size between two steps may be delivered as the next bigger one.
const DiskStepGiB = 10

// BootstrapMode is how a new server becomes a node.
// +kubebuilder:validation:Enum={BKE,Custom}
type BootstrapMode string

// The bootstrap modes.
const (
	// BootstrapModeBKE joins a cluster of BizFly Kubernetes Engine with its worker image's own script.
	BootstrapModeBKE BootstrapMode = "BKE"
	// BootstrapModeCustom runs user data of the user's own.
	BootstrapModeCustom BootstrapMode = "Custom"
)

// PlacementStrategy is how one of the offerings that cost the same is chosen.
// +kubebuilder:validation:Enum={Balanced,BinPack,Spread}
type PlacementStrategy string

// The placement strategies. None of them takes a more expensive offering while a cheaper one is available.
const (
	// PlacementStrategyBalanced prefers the offerings that failed least recently, and then those that start fastest.
	PlacementStrategyBalanced PlacementStrategy = "Balanced"
	// PlacementStrategyBinPack prefers the flavor that leaves the least CPU and memory unrequested.
	PlacementStrategyBinPack PlacementStrategy = "BinPack"
	// PlacementStrategySpread prefers the zone in which the NodePool has the fewest nodes.
	PlacementStrategySpread PlacementStrategy = "Spread"
)

// PodAccess is whether pods reach the metadata service of their node's server.
// +kubebuilder:validation:Enum={Blocked,Allowed}
type PodAccess string

// The values of PodAccess.
const (
	// PodAccessBlocked drops what a node forwards to the metadata service.
	PodAccessBlocked PodAccess = "Blocked"
	// PodAccessAllowed changes nothing on servers.
	PodAccessAllowed PodAccess = "Allowed"
)

// BizflyNodeClassSpec is what the servers of a NodePool are made of. An empty spec works on BizFly Kubernetes
// Engine: image, network and zones are discovered from the cluster.
type BizflyNodeClassSpec struct {
	// Zones are the zones in which servers may be launched, for example ["HN1","HN2"]. Empty: every active zone of the
	// region in which the networks exist. A change concerns new nodes only.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:message="each of zones must begin and end with a letter or digit, with only letters, digits, '-', '_' or '.' between, for example HN1",rule="self.all(z, z.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
	// +listType=set
	// +optional
	Zones []string `json:"zones,omitempty" hash:"ignore"`
	// FlavorSelectorTerms each allow flavors: servers may have those that any term selects. Empty: every flavor. A change
	// concerns new nodes only.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	FlavorSelectorTerms []FlavorSelectorTerm `json:"flavorSelectorTerms,omitempty" hash:"ignore"`
	// ImageSelectorTerms are tried in order: the first that matches gives the image. A term with an alias must be the only
	// one. A change that leads to another image replaces nodes, and so does a newer image.
	// +kubebuilder:default={{alias: "bke@latest"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:message="an alias term must be the only term of imageSelectorTerms",rule="!self.exists(t, has(t.alias)) || size(self) == 1"
	// +listType=atomic
	// +optional
	ImageSelectorTerms []ImageSelectorTerm `json:"imageSelectorTerms,omitempty" hash:"ignore"`
	// NetworkSelectorTerms each select one VPC network: the server gets a port in each, in this order. Empty: those of
	// BKE's pools where bke.discoverFromPool is on (status.poolServer), else the BKE cluster's own or, without BKE, the
	// project's default one. A change replaces nodes; what the terms select later does not.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	NetworkSelectorTerms []NetworkSelectorTerm `json:"networkSelectorTerms,omitempty"`
	// FirewallSelectorTerms select firewalls: all that match are attached. Empty: those of BKE's pools where
	// bke.discoverFromPool is on (status.poolServer), else the cloud's default firewall. A change is applied in place.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	FirewallSelectorTerms []FirewallSelectorTerm `json:"firewallSelectorTerms,omitempty" hash:"ignore"`
	// SSHKeyName is the name of the SSH key whose owner may log in. Empty: no key and no password. A change concerns new
	// nodes only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	SSHKeyName string `json:"sshKeyName,omitempty" hash:"ignore"`
	// RootDisk is the disk that the server boots from, deleted with it. A change replaces nodes.
	// +kubebuilder:default={size: "40Gi", medium: SSD}
	// +optional
	RootDisk *RootDisk `json:"rootDisk,omitempty"`
	// DataDisks are further disks, blank, deleted with the server: /dev/vdb and so on, in this order. User data must wait
	// for them, format and mount them. A change replaces nodes.
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +optional
	DataDisks []DataDisk `json:"dataDisks,omitempty"`
	// NetworkPlan is how traffic is charged. A change replaces nodes.
	// +kubebuilder:default=FreeDataTransfer
	// +optional
	NetworkPlan NetworkPlan `json:"networkPlan,omitempty"`
	// BillingPlan is how servers and their disks are paid for; only flavors that are available with it are used.
	// SavingPlan is prepaid at each create, and perhaps not refunded at a delete: of NodePools, only static ones launch
	// it (spec.replicas). A change replaces nodes.
	// +kubebuilder:default=OnDemand
	// +optional
	BillingPlan BillingPlan `json:"billingPlan,omitempty"`
	// PublicIPv4 gives each server a public IPv4 address. Without one, servers reach the cluster and image registries only
	// through an internet gateway of their VPC network. Default: as servers of BKE's pools where bke.discoverFromPool is
	// on (status.poolServer), else true. A change replaces nodes.
	// +optional
	PublicIPv4 *bool `json:"publicIPv4,omitempty"`
	// IPv6 gives each server an IPv6 address, too. Default: false. A change replaces nodes.
	// +optional
	IPv6 *bool `json:"ipv6,omitempty"`
	// BootstrapMode is how a new server becomes a node: BKE with the worker image's own script, Custom with user data. A
	// change replaces nodes.
	// +kubebuilder:default=BKE
	// +optional
	BootstrapMode BootstrapMode `json:"bootstrapMode,omitempty"`
	// UserData is a Go text/template of a script, cloud-config or MIME multipart: docs/reference/bootstrap.md. In BKE mode
	// it is optional. userDataFrom comes first, then userData, then BKE's script. A change replaces nodes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	UserData *string `json:"userData,omitempty"`
	// UserDataFrom is where else user data comes from, for templates that hold credentials or are shared. A change
	// replaces nodes, also one of the content of the Secret or ConfigMap.
	// +optional
	UserDataFrom *UserDataSource `json:"userDataFrom,omitempty"`
	// JoinToken creates a short-lived bootstrap token for each server; templates get it as .JoinToken. It needs the
	// chart's value joinTokens.enabled. A change replaces nodes.
	// +optional
	JoinToken *JoinToken `json:"joinToken,omitempty"`
	// MetadataOptions are who reaches the metadata service of a server, 169.254.169.254. A change replaces nodes.
	// +kubebuilder:default={podAccess: Blocked}
	// +optional
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// Kubelet is the kubelet configuration that the scheduler computes with. In Custom mode user data gives it to the
	// node. A change replaces nodes then. In BKE mode nothing of it is sent to the server, and a change concerns new nodes
	// only: set what the worker image reserves, if nodes offer pods less than estimated.
	// +optional
	Kubelet *KubeletConfiguration `json:"kubelet,omitempty"`
	// PlacementStrategy chooses among the cheapest available offerings: Balanced prefers those that failed least and start
	// fastest, BinPack the tightest fit, Spread the zone with the fewest nodes of the NodePool. A change concerns new
	// nodes only.
	// +kubebuilder:default=Balanced
	// +optional
	PlacementStrategy PlacementStrategy `json:"placementStrategy,omitempty" hash:"ignore"`
	// UserDataValues are values for templates of user data, for example a version: .Values.kubernetesMinor. A change
	// replaces nodes.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:message="userDataValues must have keys of at most 63 letters, digits and _ that begin with a letter, and values of at most 4096 characters",messageExpression="'userDataValues: key \"' + self.filter(k, size(k) > 63 || !k.matches('^[A-Za-z][A-Za-z0-9_]*$') || size(self[k]) > 4096)[0] + '\": a key has at most 63 letters, digits and _ and begins with a letter, for example kubernetesMinor, and its value at most 4096 characters'",rule="self.all(k, size(k) <= 63 && k.matches('^[A-Za-z][A-Za-z0-9_]*$') && size(self[k]) <= 4096)"
	// +optional
	UserDataValues map[string]string `json:"userDataValues,omitempty"`
	// Tags are metadata on each server, which BizFly Cloud's console shows and each process on the server can read: no
	// secrets. A change replaces nodes.
	// +kubebuilder:validation:MaxProperties=30
	// +kubebuilder:validation:XValidation:message="tags must have keys of 1 to 255 letters, digits, spaces and - _ . :",messageExpression="'tags: key \"' + self.filter(k, size(k) > 255 || !k.matches('^[a-zA-Z0-9_:. -]+$'))[0] + '\": BizFly Cloud takes keys of 1 to 255 letters, digits, spaces and - _ . :, so write . for /'",rule="self.all(k, size(k) <= 255 && k.matches('^[a-zA-Z0-9_:. -]+$'))"
	// +kubebuilder:validation:XValidation:message="tags must have values of at most 255 bytes, where a letter with an accent is two or three",rule="self.all(k, size(bytes(self[k])) <= 255)"
	// +kubebuilder:validation:XValidation:message="tags whose keys begin with bizfly-karpenter-, karpenter-, bke_, bizfly_cloud_service, kubernetes_version, cluster_id, billing_plan or network_plan belong to this provider and to BizFly Cloud",messageExpression="'tags: key \"' + self.filter(k, k.startsWith('bizfly-karpenter-') || k.startsWith('karpenter-') || k.startsWith('bke_') || k.startsWith('bizfly_cloud_service') || k.startsWith('kubernetes_version') || k.startsWith('cluster_id') || k.startsWith('billing_plan') || k.startsWith('network_plan'))[0] + '\" belongs to this provider or to BizFly Cloud: begin no key with bizfly-karpenter-, karpenter-, bke_, bizfly_cloud_service, kubernetes_version, cluster_id, billing_plan, network_plan'",rule="self.all(k, !k.startsWith('bizfly-karpenter-') && !k.startsWith('karpenter-') && !k.startsWith('bke_') && !k.startsWith('bizfly_cloud_service') && !k.startsWith('kubernetes_version') && !k.startsWith('cluster_id') && !k.startsWith('billing_plan') && !k.startsWith('network_plan'))"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
}

// BizflyNodeClass is what the servers of a NodePool are made of: image, networks, disks, billing and bootstrapping.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=bizflynodeclasses,scope=Cluster,categories={karpenter,nodeclass},shortName={bfnc,bfncs}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether servers can be launched with it"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.summary.reason",description="Why not; empty while it is ready"
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".status.images[0].name",description="The image that new servers boot"
// +kubebuilder:printcolumn:name="Zones",type="string",JSONPath=".status.summary.zones",description="Where servers may be launched"
// +kubebuilder:printcolumn:name="Flavors",type="integer",JSONPath=".status.flavorCount",description="How many flavors servers may have"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="The age of the object"
// +kubebuilder:printcolumn:name="Plan",type="string",JSONPath=".spec.billingPlan",priority=1,description="How servers are paid for"
// +kubebuilder:printcolumn:name="Kubernetes",type="string",JSONPath=".status.kubernetesVersion",priority=1,description="The version that the worker image runs"
// +kubebuilder:printcolumn:name="Networks",type="string",JSONPath=".status.summary.networks",priority=1,description="The VPC networks of servers"
// +kubebuilder:validation:XValidation:message="the name must have at most 63 characters, because it is a label of NodeClaims and nodes",rule="self.metadata.name.size() <= 63"
type BizflyNodeClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:message="bootstrapMode BKE needs a BKE worker image: use an alias such as bke@latest in imageSelectorTerms, or an id or name of one; a plain operating system image (os) has no BKE script",rule="(has(self.bootstrapMode) && self.bootstrapMode == 'Custom') || !has(self.imageSelectorTerms) || !self.imageSelectorTerms.exists(t, has(t.os))"
	// +kubebuilder:validation:XValidation:message="userData and userDataFrom are not possible on BKE's flatcar image, which takes a single script: use alias bke-ubuntu in imageSelectorTerms, or bootstrapMode Custom",rule="(has(self.bootstrapMode) && self.bootstrapMode == 'Custom') || !(has(self.userData) || has(self.userDataFrom)) || !has(self.imageSelectorTerms) || !self.imageSelectorTerms.exists(t, has(t.alias) && t.alias.startsWith('bke-flatcar@'))"
	// +kubebuilder:validation:XValidation:message="bootstrapMode Custom needs userData or userDataFrom, so that the server joins the cluster",rule="!has(self.bootstrapMode) || self.bootstrapMode != 'Custom' || has(self.userData) || has(self.userDataFrom)"
	// +kubebuilder:validation:XValidation:message="joinToken belongs to bootstrapMode Custom: the BKE worker image joins with the cluster's own token",rule="!has(self.joinToken) || (has(self.bootstrapMode) && self.bootstrapMode == 'Custom')"
	// +optional
	Spec BizflyNodeClassSpec `json:"spec,omitempty"`
	// Status is what the spec resolves to in the cloud at the moment.
	// +optional
	Status BizflyNodeClassStatus `json:"status,omitempty"`
}

// BizflyNodeClassList is a list of BizflyNodeClass.
// +kubebuilder:object:root=true
type BizflyNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects.
	Items []BizflyNodeClass `json:"items"`
}
