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

package usage

import (
	"context"
	"fmt"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the condition LaunchVerified.
const (
	// reasonNodeRegistered says that a node of this spec and image has registered.
	reasonNodeRegistered = "NodeRegistered"
	// reasonUnknownUntilFirstLaunch says that no node has registered yet, and only that shows whether servers boot and join.
	reasonUnknownUntilFirstLaunch = "UnknownUntilFirstLaunch"
)

// verifyLaunch says whether a node has registered that was launched with this spec and image. What has been seen stays in
// the status, so that it is still known when the last node is gone.
func (c *Controller) verifyLaunch(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	image := nodeClass.Status.Image
	if image == nil {
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch, "unknown until first launch, for which there is no image yet")
		return nil
	}
	current := v1alpha1.VerifiedLaunchStatus{Hash: nodeClass.Hash(), ImageID: image.ID}
	if lo.FromPtr(nodeClass.Status.VerifiedLaunch) != current {
		claims := &karpv1.NodeClaimList{}
		if err := c.kubeClient.List(ctx, claims, nodeclaimutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing NodeClaims, %w", err)
		}
		if !lo.ContainsBy(claims.Items, func(claim karpv1.NodeClaim) bool { return verifies(&claim, current) }) {
			conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch, fmt.Sprintf(
				"unknown until first launch: no node of this spec and image %s (%s) has registered yet, and only that shows that the image boots, that its user data joins, and that flavors can be had with these disks",
				image.Name, image.ID))
			return nil
		}
		nodeClass.Status.VerifiedLaunch = &current
	}
	conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonNodeRegistered,
		fmt.Sprintf("a node of this spec and image %s (%s) has registered", image.Name, image.ID))
	return nil
}

// verifies says whether the claim was launched with this spec and image and its node has registered. Hashes of another
// version say nothing.
func verifies(claim *karpv1.NodeClaim, current v1alpha1.VerifiedLaunchStatus) bool {
	return claim.Annotations[v1alpha1.AnnotationNodeClassHashVersion] == v1alpha1.NodeClassHashVersion &&
		claim.Annotations[v1alpha1.AnnotationNodeClassHash] == current.Hash &&
		claim.Status.ImageID == current.ImageID && registered(claim)
}
