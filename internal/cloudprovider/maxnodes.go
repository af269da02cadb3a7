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

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// CountNodes returns how many nodes the cluster has, servers that are no nodes yet included, but for that of one claim.
func CountNodes(ctx context.Context, kubeClient client.Reader, except types.UID) (int, error) {
	nodes, claims := &corev1.NodeList{}, &karpv1.NodeClaimList{}
	if err := kubeClient.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting nodes: %w", err)
	}
	if err := kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting NodeClaims: %w", err)
	}
	return len(nodes.Items) + lo.CountBy(claims.Items, func(claim karpv1.NodeClaim) bool {
		return claim.UID != except && claim.Status.ProviderID != "" && claim.Status.NodeName == ""
	}), nil
}

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
	count, err := CountNodes(ctx, c.kubeClient, claim.UID)
	if err != nil || count < limit {
		return err
	}
	pause := c.settings.Load().AccountPause
	c.capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonPackageLimit, pause)
	c.recorder.Publish(events.PackageLimitReached(claim, count, limit, pause))
	return noRoom("the package of the BKE cluster allows %d nodes and there are %d", limit, count)
}
