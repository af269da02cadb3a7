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
	"math"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// imageConcern finds the image.
type imageConcern struct {
	images image.Provider
}

func (*imageConcern) conditionType() string { return v1alpha1.ConditionTypeImagesReady }

func (c *imageConcern) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) finding {
	found, err := c.images.Resolve(ctx, nodeClass)
	if err != nil {
		return missingOr[*image.NotFoundError](err, reasonImageNotFound)
	}
	nodeClass.Status.Images = []v1alpha1.ImageStatus{{
		ID: found.ID, Name: found.Name, Type: found.Type, MinDiskGiB: int32(min(found.MinDiskGiB, math.MaxInt32)), //nolint:gosec // G115: bounded
	}}
	nodeClass.Status.KubernetesVersion = found.KubernetesVersion
	return fine(lo.Compact([]string{found.Note})...)
}
