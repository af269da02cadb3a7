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

package cloudprovider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// roomInPackage refuses a launch beyond what the package of the BKE cluster allows, where that is enforced: whether nodes
// outside of BKE's own worker pools count is not documented, so nobody is stopped who did not ask for it. Launches at
// the same moment may go a little beyond, as far as caches lag.
func (c *CloudProvider) roomInPackage(ctx context.Context, claim *karpv1.NodeClaim) error {
	if c.maxNodes == nil {
		return nil
	}
	limit := c.maxNodes()
	if limit <= 0 {
		return nil
	}
	nodes, claims := &corev1.NodeList{}, &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting nodes: %w", err)
	}
	if err := c.kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting NodeClaims: %w", err)
	}
	count := len(nodes.Items)
	for i := range claims.Items {
		if other := &claims.Items[i]; other.UID != claim.UID && other.Status.ProviderID != "" && other.Status.NodeName == "" {
			count++
		}
	}
	if count < limit {
		return nil
	}
	pause := c.pauses.Load().Account
	c.capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonPackageLimit, pause)
	c.recorder.Publish(events.PackageLimitReached(claim, count, limit, pause))
	return noRoom("the package of the BKE cluster allows %d nodes and there are %d", limit, count)
}
