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

// Reasons of the condition PodAccessEnforced.
const (
	// ReasonSingleScript says that the image takes a single script.
	ReasonSingleScript = "ImageTakesOneScript"
	// ReasonOtherUserData says that user data is not for cloud-init, or a document to which nothing can be added.
	ReasonOtherUserData = "UserDataNotForCloudInit"
)

// withoutPodAccess puts the script before these pieces, which are the user's, where the NodeClass asks for it; or says
// why it cannot.
func withoutPodAccess(nodeClass *v1alpha1.BizflyNodeClass, pieces []source) ([]source, *ValidationError) {
	because := func(reason, why string) ([]source, *ValidationError) {
		return pieces, &ValidationError{Reason: reason, Message: "spec.metadataOptions.podAccess Blocked: " + why +
			", so that the unit that keeps pods off the metadata service cannot be added"}
	}
	if nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessAllowed {
		return pieces, nil
	}
	if lo.FromPtr(nodeClass.Status.Image()).SingleScript {
		return because(ReasonSingleScript, "the worker image takes a single script, BKE's own")
	}
	// BKE's script, and a second piece, need cloud-init anyway.
	if nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeCustom && len(pieces) == 1 && !canBePart(pieces[0]) {
		return because(ReasonOtherUserData, "the user data is not for cloud-init, or a document in a document")
	}
	return append([]source{{field: "the script of spec.metadataOptions", text: metadataBlock}}, pieces...), nil
}

// canBePart reports whether cloud-init takes a piece beside others.
func canBePart(piece source) bool {
	parts, err := partsOf(piece)
	return err == nil && lo.EveryBy(parts, func(p part) bool { return typeOf(p) != "" })
}
