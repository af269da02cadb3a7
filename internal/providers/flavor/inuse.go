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

package flavor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// use is what live claims of a NodeClass run on: one flavor in some zones.
type use struct {
	labels map[string]string // of one of the claims
	zones  []string          // sorted
}

// inUse returns by flavor what the live claims of the NodeClass run on. The reader is the manager's cache, so this is no
// request; and it is asked only when a catalog or a NodeClass has changed. A claim that is launched later runs on what
// was listed then, and the change that takes that away asks again.
func (p *DefaultProvider) inUse(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (map[string]*use, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims to keep the instance types that they run on, %w", err)
	}
	uses := map[string]*use{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ref := claim.Spec.NodeClassRef
		name, zone := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone]
		if ref == nil || ref.Group != v1alpha1.Group || ref.Name != nodeClass.Name || name == "" || zone == "" {
			continue
		}
		found, ok := uses[name]
		if !ok {
			found = &use{labels: claim.Labels}
			uses[name] = found
		}
		if at, present := slices.BinarySearch(found.zones, zone); !present {
			found.zones = slices.Insert(found.zones, at, zone)
		}
	}
	return uses, nil
}
