// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	_ "embed"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// metadataBlock drops what a node forwards to the metadata service, at the first hook of the kernel, so that no rule of
// kube-proxy or of the pod network is before it. The node's own processes still reach the address. IPv4 is enough: no
// node forwards the service's IPv6 address, which is link-local.
//
//go:embed metadata-block.sh
var metadataBlock string

// PodAccess is whether user data keeps pods off the metadata service, or else why not: then it is also the reason of a
// condition.
type PodAccess string

// Reasons of the condition PodAccessEnforced.
const (
	// ReasonSingleScript says that the image takes a single script.
	ReasonSingleScript = "ImageTakesOneScript"
	// ReasonOtherUserData says that user data is not for cloud-init, or a document to which nothing can be added.
	ReasonOtherUserData = "UserDataNotForCloudInit"
)

// The values of PodAccess.
const (
	// PodAccessEnforced says that user data begins with the script that keeps them off.
	PodAccessEnforced PodAccess = "Enforced"
	// PodAccessNotAsked says that spec.metadataOptions.podAccess is Allowed.
	PodAccessNotAsked      PodAccess = "NotAsked"
	PodAccessSingleScript  PodAccess = ReasonSingleScript
	PodAccessOtherUserData PodAccess = ReasonOtherUserData
)

// Message says it with the field.
func (a PodAccess) Message() string {
	return map[PodAccess]string{
		PodAccessSingleScript: "spec.metadataOptions.podAccess Blocked: the worker image takes a single script, BKE's own, " +
			"so that the unit that keeps pods off the metadata service cannot be added",
		PodAccessOtherUserData: "spec.metadataOptions.podAccess Blocked: the user data is not for cloud-init, or a " +
			"document in a document, so that the unit that keeps pods off the metadata service cannot be added",
	}[a]
}

// podAccess says whether the script can be put before these pieces, which are the user's.
func podAccess(nodeClass *v1alpha1.BizflyNodeClass, pieces []source) PodAccess {
	switch image := nodeClass.Status.Image(); {
	case nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessAllowed:
		return PodAccessNotAsked
	case image != nil && image.SingleScript:
		return PodAccessSingleScript
	// BKE's script, and a second piece, need cloud-init anyway.
	case nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeCustom && len(pieces) == 1 && !canBePart(pieces[0]):
		return PodAccessOtherUserData
	}
	return PodAccessEnforced
}

// canBePart reports whether cloud-init takes a piece beside others.
func canBePart(piece source) bool {
	parts, err := partsOf(piece)
	return err == nil && lo.EveryBy(parts, func(p part) bool { return typeOf(p) != "" })
}
