// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the custom resources of this provider, and the labels, annotations and metadata keys that it
// writes on Kubernetes objects and on servers.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.bizflycloud.vn
package v1alpha1

import (
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Group is the API group of this provider's custom resources and the domain of its labels and annotations.
const Group = "karpenter.bizflycloud.vn"

// GroupVersion is the version of this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// NodeClassKind is the one kind of NodeClass of this provider.
const NodeClassKind = "BizflyNodeClass"

// IsOurs reports whether a reference is to a NodeClass of this provider.
func IsOurs(ref *karpv1.NodeClassReference) bool {
	return ref != nil && ref.Group == Group && ref.Kind == NodeClassKind
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, GroupVersion)
	s.AddKnownTypes(GroupVersion, &BizflyNodeClass{}, &BizflyNodeClassList{}, &ProviderConfig{}, &ProviderConfigList{})
	return nil
}

// Labels of an instance type. Each is defined on every instance type, with DoesNotExist where it does not apply, so
// that a NodePool may ask for it with In, NotIn, Exists and DoesNotExist. Gt, Gte, Lt and Lte need numbers: vCPUs,
// memory and the number of GPUs.
const (
	// LabelInstanceCategory is basic, premium, enterprise or dedicated.
	LabelInstanceCategory = Group + "/instance-category"
	// LabelInstanceFamily is the flavor's name before the dot, for example "nix" or "p4a"; the category where a name has
	// none.
	LabelInstanceFamily = Group + "/instance-family"
	// LabelInstanceSize is the size within the family, for example "4c_8g".
	LabelInstanceSize = Group + "/instance-size"
	// LabelInstanceGeneration is the hardware generation's code, for example "2" (Intel) or "4a" (AMD).
	LabelInstanceGeneration = Group + "/instance-generation"
	// LabelInstanceCPU is the number of vCPUs.
	LabelInstanceCPU = Group + "/instance-cpu"
	// LabelInstanceCPUManufacturer is intel or amd, lower case.
	LabelInstanceCPUManufacturer = Group + "/instance-cpu-manufacturer"
	// LabelInstanceMemory is the advertised memory in MiB.
	LabelInstanceMemory = Group + "/instance-memory"
	// LabelInstanceGPUName is the GPU's model, sanitised to a label value.
	LabelInstanceGPUName = Group + "/instance-gpu-name"
	// LabelInstanceGPUCount is the number of GPUs.
	LabelInstanceGPUCount = Group + "/instance-gpu-count"
)

// Names that other BizFly components give.
const (
	// CSIBlockDriver is the name of the block storage driver.
	CSIBlockDriver = "volume.csi.bizflycloud.vn"
	// LabelCSIBlockZone is the zone key of the block storage driver's volume topology.
	LabelCSIBlockZone = "topology.volume.csi.bizflycloud.vn/zone"
	// LabelCSIFileZone is the zone key of the file storage driver's volume topology.
	LabelCSIFileZone = "topology.fs.csi.bizflycloud.vn/zone"
)

// ResourceNVIDIAGPU is the extended resource that the NVIDIA device plugin reports.
const ResourceNVIDIAGPU corev1.ResourceName = "nvidia.com/gpu"

// Annotations and finalizers on Kubernetes objects.
const (
	// AnnotationNodeClassHash is the hash of the NodeClass fields that cannot change on a running server.
	AnnotationNodeClassHash = Group + "/bizflynodeclass-hash"
	// AnnotationNodeClassHashVersion is the version of the hash function; hashes of different versions do not compare.
	AnnotationNodeClassHashVersion = Group + "/bizflynodeclass-hash-version"
	// AnnotationLaunchIntent records what is requested and when, before the create request is sent, and later its task. A
	// retry learns from it that a server may already exist. Its firewalls are those that were attached since: only they
	// may be detached again.
	AnnotationLaunchIntent = Group + "/launch-intent"
	// AnnotationDelivered is JSON: billing plan, networks, network interfaces and disks that the server had before its
	// node registered, and so before any pod's volume. Drift compares with it, and firewalls of other interfaces are not
	// changed. Alone it proves nothing: a disk is deleted only if it is attached to the server as well.
	AnnotationDelivered = Group + "/delivered"
	// AnnotationDoNotDisruptReason says why a Node has karpenter.sh/do-not-disrupt from this controller: "ZoneClosed: HN1"
	// while the tuning closes the zone, "AccountUnpaid", or "HourPaid: until" a time. Both annotations go when the reason
	// does.
	AnnotationDoNotDisruptReason = Group + "/do-not-disrupt-reason"
	// AnnotationDoNotRepairReason says the same of karpenter.sh/do-not-repair: "AccountUnpaid" while the account is unpaid
	// and the kubelet silent.
	AnnotationDoNotRepairReason = Group + "/do-not-repair-reason"
	// AnnotationScope is JSON: host, region and project of this cluster's servers, recorded in the ProviderConfig at the
	// first login. It is an annotation because a backup that is restored has those, and no status.
	AnnotationScope = Group + "/scope"
	// AnnotationAPIServers are the addresses of the API servers, separated by commas, recorded in the ProviderConfig.
	// A user deletes it to confirm that a cluster with none of them is no clone.
	AnnotationAPIServers = Group + "/api-servers"
	// TerminationFinalizer holds a NodeClass while NodeClaims use it.
	TerminationFinalizer = Group + "/termination"
)

// LabelLaunchPrice is the estimated price at launch in VND per hour, rounded. No NodePool can require it.
const LabelLaunchPrice = Group + "/launch-price-vnd-per-hour"

// Metadata keys on servers. Nova's metadata keys are plain strings, so they carry no slash; a user's own metadata
// cannot overwrite any key with one of ReservedMetadataPrefixes. The older provider of this cloud adopts and deletes
// servers that carry "karpenter-managed", which is therefore never written.
const (
	// MetadataManaged marks every server of this provider ("true").
	MetadataManaged = "bizfly-karpenter-managed"
	// MetadataClusterName is the cluster's name, for display.
	MetadataClusterName = "bizfly-karpenter-cluster-name"
	// MetadataClusterUID is the UID of the kube-system namespace: the identity of the cluster.
	MetadataClusterUID = "bizfly-karpenter-cluster-uid"
	// MetadataName is the name at launch, after which the cloud named disks and interfaces.
	MetadataName = "bizfly-karpenter-name"
	// MetadataNodeClaim is the NodeClaim's name, for display.
	MetadataNodeClaim = "bizfly-karpenter-nodeclaim"
	// MetadataNodeClaimUID is the NodeClaim's UID: the identity of the NodeClaim that the server serves.
	MetadataNodeClaimUID = "bizfly-karpenter-nodeclaim-uid"
	// MetadataAttempt is the number of the launch attempt within the NodeClaim, from 1.
	MetadataAttempt = "bizfly-karpenter-attempt"
	// MetadataNodePool is the NodePool's name, empty for a standalone NodeClaim.
	MetadataNodePool = "bizfly-karpenter-nodepool"
	// MetadataNodeClass is the BizflyNodeClass's name.
	MetadataNodeClass = "bizfly-karpenter-nodeclass"
	// MetadataImage is the id of the image, which the API does not report.
	MetadataImage = "bizfly-karpenter-image"
	// MetadataDataDisks is the number of data disks in the create request.
	MetadataDataDisks = "bizfly-karpenter-data-disks"
	// MetadataUserDataHash is the hash of the user data templates, empty without any.
	MetadataUserDataHash = "bizfly-karpenter-user-data-hash"
)

const metadataPrefix = "bizfly-karpenter-"

const (
	olderMetadataPrefix = "karpenter-"
	// OlderMetadataManaged is the mark of the older provider's servers.
	OlderMetadataManaged = olderMetadataPrefix + "managed"
)

// ReservedMetadataPrefixes are the beginnings of metadata keys that belong to this provider, to the older one or to
// BizFly Cloud; spec.tags may not use them.
var ReservedMetadataPrefixes = []string{
	metadataPrefix, olderMetadataPrefix, "bke_", "bizfly_cloud_service", "kubernetes_version", "cluster_id",
	"billing_plan", "network_plan",
}

// InstanceTypeLabels are the labels of this provider that every instance type defines.
var InstanceTypeLabels = sets.New(
	LabelInstanceCategory, LabelInstanceFamily, LabelInstanceSize, LabelInstanceGeneration, LabelInstanceCPU,
	LabelInstanceCPUManufacturer, LabelInstanceMemory,
	LabelInstanceGPUName, LabelInstanceGPUCount,
)

func init() {
	// Karpenter core looks NodeClass kinds up in client-go's global scheme and panics when they are not there.
	lo.Must0(AddToScheme(scheme.Scheme))
	// A key that core does not know as well-known is resolved to an arbitrary value when a claim is made.
	karpv1.RestrictedLabelDomains = karpv1.RestrictedLabelDomains.Insert(Group)
	karpv1.WellKnownLabels = karpv1.WellKnownLabels.Insert(InstanceTypeLabels.UnsortedList()...)
	karpv1.NormalizedLabels[LabelCSIBlockZone] = corev1.LabelTopologyZone
	karpv1.NormalizedLabels[LabelCSIFileZone] = corev1.LabelTopologyZone
}
