// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/mitchellh/hashstructure/v2"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
)

// NodeClassHashVersion is the version of Hash. It is raised whenever the same spec would hash differently (a new field
// with a default, a changed tag), so that an upgrade re-stamps hashes instead of replacing every node. It hashes what
// is in effect rather than what is written, so that `rootDisk: {}` and `rootDisk: {medium: SSD}` are the same.
const NodeClassHashVersion = "v3"

// Hash returns the hash of the fields that cannot change on a running server and that no other drift check covers, and
// behind it whether servers get a public IPv4 address, which a pool of BKE may decide (HashDiffers). Other selector
// terms than those of networks, and zones, are left out: what they resolve to is compared with the live server instead,
// so that a selector which is written differently but means the same rolls nothing. Networks that anyone in the project
// creates must not roll anything either, so that only their terms do.
func (in *BizflyNodeClass) Hash() string {
	hash := lo.Must(hashstructure.Hash(in.effective(), hashstructure.FormatV2, &hashstructure.HashOptions{
		// Not as sets: two equal data disks would cancel each other out, and their order is the order of the devices.
		SlicesAsSets:    false,
		IgnoreZeroValue: true,
		ZeroNil:         true,
	}))
	parts := []string{fmt.Sprint(hash), lo.Ternary(in.EffectivePublicIPv4(), addressPublic, addressPrivate)}
	if in.Spec.PublicIPv4 == nil {
		parts = append(parts, addressDefault)
	}
	return strings.Join(parts, hashSeparator)
}

// The parts of a hash behind its number.
const (
	hashSeparator  = "-"
	addressPublic  = "public"
	addressPrivate = "private"
	// addressDefault says that the spec left the address to BKE's pool or the default.
	addressDefault = "default"
)

// HashDiffers reports whether a server that was launched with this hash differs from those of the present spec. The
// hash of the present spec is that of the annotation, because this is asked on every event of every pod. While the spec
// leaves the address open, a change of what it is left to replaces no server that was launched so.
func (in *BizflyNodeClass) HashDiffers(launched string) bool {
	present, _, _ := strings.Cut(in.Annotations[AnnotationNodeClassHash], hashSeparator)
	hash, rest, _ := strings.Cut(launched, hashSeparator)
	address, origin, _ := strings.Cut(rest, hashSeparator)
	switch {
	case present == "" || hash == "":
		return false
	case present != hash:
		return true
	case address == "" || in.Spec.PublicIPv4 == nil && origin == addressDefault:
		return false
	}
	return in.EffectivePublicIPv4() != (address == addressPublic)
}

// effective returns the spec with every default written out and everything that says nothing left out, as far as hashed
// fields go: what means the same must hash the same, however it is written.
func (in *BizflyNodeClass) effective() *BizflyNodeClassSpec {
	// JSON leaves out an empty list or map, like one that was never set.
	spec := &BizflyNodeClassSpec{}
	lo.Must0(json.Unmarshal(lo.Must(json.Marshal(in.Spec)), spec))
	spec.BillingPlan = in.EffectiveBillingPlan()
	spec.NetworkPlan = in.EffectiveNetworkPlan()
	spec.PublicIPv4 = nil // which Hash adds
	if !lo.FromPtr(spec.IPv6) {
		spec.IPv6 = nil
	}
	spec.RootDisk = lo.ToPtr(spec.EffectiveRootDisk())
	for i := range spec.DataDisks {
		spec.DataDisks[i].Medium = EffectiveMedium(spec.DataDisks[i].Medium, spec.DataDisks[i].VolumeType)
	}
	spec.BootstrapMode = in.EffectiveBootstrapMode()
	spec.MetadataOptions = &MetadataOptions{PodAccess: in.Spec.EffectivePodAccess()}
	kubelet := lo.FromPtr(spec.Kubelet)
	for _, values := range []map[string]string{
		kubelet.SystemReserved, kubelet.KubeReserved, kubelet.EvictionHard, kubelet.EvictionSoft,
		kubelet.EvictionSoftGracePeriod,
	} {
		for key, value := range values {
			// Percentages and durations are none, and stay as they are.
			if quantity, err := resource.ParseQuantity(value); err == nil {
				values[key] = quantity.String()
			}
		}
	}
	// In BKE mode it only says what the worker image does by itself.
	if spec.BootstrapMode != BootstrapModeCustom || reflect.ValueOf(kubelet).IsZero() {
		spec.Kubelet = nil
	}
	return spec
}

// EffectiveMedium is the medium of a disk that is asked for: none where a volume type says it.
func EffectiveMedium(medium DiskMedium, volumeType string) DiskMedium {
	if volumeType != "" {
		return ""
	}
	return lo.CoalesceOrEmpty(medium, DiskMediumSSD)
}

// EffectiveBillingPlan returns the billing plan with its default.
func (in *BizflyNodeClass) EffectiveBillingPlan() BillingPlan {
	return lo.CoalesceOrEmpty(in.Spec.BillingPlan, BillingPlanOnDemand)
}

// EffectiveNetworkPlan returns the network plan with its default.
func (in *BizflyNodeClass) EffectiveNetworkPlan() NetworkPlan {
	return lo.CoalesceOrEmpty(in.Spec.NetworkPlan, NetworkPlanFreeDataTransfer)
}

// EffectivePublicIPv4 reports whether new servers get a public IPv4 address.
func (in *BizflyNodeClass) EffectivePublicIPv4() bool {
	return lo.FromPtrOr(in.Spec.PublicIPv4, in.Status.PoolServer == nil || in.Status.PoolServer.PublicIPv4)
}

// EffectiveBootstrapMode returns the bootstrap mode with its default.
func (in *BizflyNodeClass) EffectiveBootstrapMode() BootstrapMode {
	return lo.CoalesceOrEmpty(in.Spec.BootstrapMode, BootstrapModeBKE)
}

// EffectivePodAccess returns whether pods reach the metadata service, with its default.
func (in *BizflyNodeClassSpec) EffectivePodAccess() PodAccess {
	return lo.CoalesceOrEmpty(lo.FromPtr(in.MetadataOptions).PodAccess, PodAccessBlocked)
}

// EffectiveRootDisk returns the root disk with the defaults of what is not set.
func (in *BizflyNodeClassSpec) EffectiveRootDisk() RootDisk {
	root := lo.FromPtr(in.RootDisk)
	root.Size = lo.CoalesceOrEmpty(root.Size, lo.ToPtr(resource.MustParse(DefaultRootDiskSize)))
	root.Medium = EffectiveMedium(root.Medium, root.VolumeType)
	return root
}
