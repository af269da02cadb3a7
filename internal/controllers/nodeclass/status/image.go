// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// resolveImage finds the image.
func (c *Controller) resolveImage(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	found, err := c.images.Resolve(ctx, nodeClass)
	if err != nil {
		return missingOr(err, reasonImageNotFound)
	}
	if bke := nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeBKE; bke && found.PublicOS {
		return missing(reasonImageUnsuitable, fmt.Sprintf(
			"spec.imageSelectorTerms: %s (%s) is a plain operating system image, which has no BKE script; "+
				"use an alias such as bke@latest, or bootstrapMode Custom", found.Name, found.ID))
	} else if bke && found.Flatcar && (nodeClass.Spec.UserData != nil || nodeClass.Spec.UserDataFrom != nil) {
		return missing(reasonImageUnsuitable, fmt.Sprintf(
			"spec.imageSelectorTerms: %s (%s) takes a single script, which is BKE's, so that spec.userData and "+
				"spec.userDataFrom are not possible; use an alias such as bke-ubuntu@latest, or bootstrapMode Custom",
			found.Name, found.ID))
	}
	nodeClass.Status.Images = []v1alpha1.ImageStatus{{
		ID: found.ID, Name: found.Name, Type: found.Type,
		MinDiskGiB:   int32(min(found.MinDiskGiB, math.MaxInt32)), //nolint:gosec // G115: bounded
		SingleScript: found.Flatcar,
	}}
	nodeClass.Status.KubernetesVersion = found.KubernetesVersion
	return fine()
}

// requeueSecret is how late a change of the Secret with user data is noticed: nodes are compared with what was noticed.
const requeueSecret = time.Minute

// resolveBootstrap checks whether user data can be created with which a server joins. It returns no resolution if not.
func (c *Controller) resolveBootstrap(
	ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass,
) (*bootstrap.Output, result) {
	resolution, err := c.bootstraps.Resolve(ctx, nodeClass)
	if err != nil {
		if invalid := (*bootstrap.ValidationError)(nil); errors.As(err, &invalid) {
			return nil, missing(invalid.Reason, invalid.Message)
		}
		return nil, unavailable(err)
	}
	nodeClass.Status.UserDataHash = resolution.UserDataHash
	notes := resolution.Notes
	if nodeClass.Spec.Kubelet != nil && nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeBKE {
		notes = append(notes, kubeletInBKE)
	}
	found := fine(notes...)
	if nodeClass.Spec.UserDataFrom != nil {
		found.retryAfter = requeueSecret
	}
	return resolution, found
}

// resolvePodAccess says whether pods are kept off the metadata service. Ready does not depend on it: a policy of the
// pod network, which is not read here, may do the same.
func (c *Controller) resolvePodAccess(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass,
	resolution *bootstrap.Output) result {
	switch {
	case resolution == nil:
		return awaiting(reasonAwaitingBootstrap,
			"whether pods are kept off the metadata service depends on the user data, which cannot be created")
	case nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessAllowed:
		return result{status: metav1.ConditionTrue, reason: v1alpha1.ReasonNotApplicable,
			message: "spec.metadataOptions.podAccess is Allowed"}
	case resolution.PodAccess != nil:
		return doubtful(resolution.PodAccess.Reason, resolution.PodAccess.Message+"; "+policyRemedy)
	}
	agents := &appsv1.DaemonSetList{}
	if err := c.kubeClient.List(ctx, agents, client.MatchingLabels{"k8s-app": "cilium"},
		client.UnsafeDisableDeepCopy); err != nil {
		return unavailable(err)
	}
	if len(agents.Items) > 0 {
		return result{status: metav1.ConditionUnknown, reason: reasonCiliumMayBypass, message: fmt.Sprintf(
			"DaemonSet %s/%s: Cilium may route in eBPF, past the rule that keeps pods off the metadata service; %s, which "+
				"kubectl bizfly doctor looks for", agents.Items[0].Namespace, agents.Items[0].Name, policyRemedy)}
	}
	return fine()
}

// policyRemedy is what holds without user data.
const policyRemedy = "apply config/samples/metadata-block/cilium.yaml, or calico.yaml with Calico"

// kubeletInBKE says what spec.kubelet does in BKE mode.
const kubeletInBKE = "spec.kubelet changes nothing on nodes in BKE mode, where the worker image configures the " +
	"kubelet: the scheduler only computes with maxPods, podsPerCore, systemReserved, kubeReserved and evictionHard, " +
	"so set what the image has; the other fields have no effect"
