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

package status

import (
	"context"
	"fmt"
	"math"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// requirements are those of every image: BizFly Cloud has amd64 servers only.
var requirements = []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.ArchitectureAmd64}},
	{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Linux)}},
}

// imageReconciler finds the image.
type imageReconciler struct {
	images image.Provider
}

func (*imageReconciler) conditionType() string { return v1alpha1.ConditionTypeImagesReady }

func (c *imageReconciler) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	found, err := c.images.Resolve(ctx, nodeClass)
	if err != nil {
		return missingOr[*image.NotFoundError](err, reasonImageNotFound)
	}
	if bke := nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeBKE; bke && found.PublicOS {
		return missing(reasonImageUnsuitable, fmt.Sprintf("spec.imageSelectorTerms: %s (%s) is a plain operating system image, which has no BKE script; "+
			"use an alias such as bke@latest, or bootstrapMode Custom", found.Name, found.ID))
	} else if bke && found.Flatcar && (nodeClass.Spec.UserData != nil || nodeClass.Spec.UserDataFrom != nil) {
		return missing(reasonImageUnsuitable, fmt.Sprintf("spec.imageSelectorTerms: %s (%s) takes a single script, which is BKE's, so that spec.userData and "+
			"spec.userDataFrom are not possible; use an alias such as bke-ubuntu@latest, or bootstrapMode Custom", found.Name, found.ID))
	}
	nodeClass.Status.Images = []v1alpha1.ImageStatus{{
		ID: found.ID, Name: found.Name, Type: found.Type, Requirements: requirements,
		MinDiskGiB: int32(min(found.MinDiskGiB, math.MaxInt32)), //nolint:gosec // G115: bounded
	}}
	nodeClass.Status.KubernetesVersion = found.KubernetesVersion
	return fine(lo.Compact([]string{found.Note})...)
}
