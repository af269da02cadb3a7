// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// HoldStaticPools makes core's two controllers of static NodePools, which are among all, read NodePools as
// LaunchablePools and CountedPools show them.
func (c *CloudProvider) HoldStaticPools(cluster *state.Cluster, all []controller.Controller) []controller.Controller {
	reads := map[string]func(client.Client) client.Client{
		"static.provisioning":   c.LaunchablePools,
		"static.deprovisioning": func(kube client.Client) client.Client { return CountedPools(kube, cluster) },
	}
	return lo.Map(all, func(one controller.Controller, _ int) controller.Controller {
		if named, ok := one.(interface{ Name() string }); ok && reads[named.Name()] != nil {
			return staticController{one, reads[named.Name()]}
		}
		return one
	})
}

// staticController is a controller of core that reads through another client.
type staticController struct {
	controller.Controller
	reads func(client.Client) client.Client
}

// Register implements controller.Controller.
func (s staticController) Register(ctx context.Context, m manager.Manager) error {
	return s.Controller.Register(ctx, staticManager{m, s.reads(m.GetClient())})
}

type staticManager struct {
	manager.Manager
	reads client.Client
}

// GetClient implements manager.Manager.
func (m staticManager) GetClient() client.Client { return m.reads }

// staticPools changes what core reads of a static NodePool.
type staticPools struct {
	client.Client
	show func(ctx context.Context, pool *karpv1.NodePool) error
}

// Get implements client.Client.
func (s staticPools) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	if err := s.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	pool, ok := object.(*karpv1.NodePool)
	if !ok || pool.Spec.Replicas == nil || !v1alpha1.IsOurs(pool.Spec.Template.Spec.NodeClassRef) {
		return nil
	}
	return s.show(ctx, pool)
}

// LaunchablePools makes core's static provisioning wait while nothing that a NodePool allows can be launched, as before
// the catalog was read or the last change of the NodeClass was resolved, which is reported elsewhere. Core would create
// a NodeClaim again as soon as one ends, many a second, and schedule nothing for anyone while that has no server
// (kubernetes-sigs/karpenter#3198). It waits by itself at a limit of nodes, so that is what it is shown of such a
// NodePool.
func (c *CloudProvider) LaunchablePools(kube client.Client) client.Client {
	return staticPools{kube, func(ctx context.Context, pool *karpv1.NodePool) error {
		types, err := c.GetInstanceTypes(ctx, pool)
		nodeClass, _ := c.nodeClass(ctx, pool.Spec.Template.Spec.NodeClassRef)
		resolved := nodeClass != nil && v1alpha1.Resolved(nodeClass, status.ConditionReady)
		if err == nil && resolved && flavor.CanLaunch(ctx, pool, types) {
			return nil
		}
		claims, listErr := claimsOf(ctx, kube, pool)
		if listErr != nil {
			return listErr
		}
		wanted := *pool.Spec.Replicas
		if limit, limited := pool.Spec.Limits[resources.Node]; limited {
			wanted = min(wanted, limit.Value())
		}
		if lacking := wanted - int64(len(claims)); err == nil && resolved && lacking > 0 {
			c.config.Recorder.Publish(events.StaticNodePoolWaits(pool, lacking))
		}
		pool.Spec.Limits = karpv1.Limits(corev1.ResourceList{resources.Node: resource.Quantity{}})
		return nil
	}}
}

// CountedPools keeps core's static deprovisioning from deleting running nodes in place of NodeClaims that are gone. It
// takes the number of NodeClaims from its memory and looks for those without a server in the API. So it is shown as
// many more replicas as its memory has NodeClaims more.
func CountedPools(kube client.Client, cluster *state.Cluster) client.Client {
	return staticPools{kube, func(ctx context.Context, pool *karpv1.NodePool) error {
		counted, _, _ := cluster.NodePoolState.GetNodeCount(pool.Name)
		claims, err := claimsOf(ctx, kube, pool)
		if err != nil {
			return err
		}
		living := lo.CountBy(claims, func(claim karpv1.NodeClaim) bool { return claim.DeletionTimestamp.IsZero() })
		pool.Spec.Replicas = lo.ToPtr(*pool.Spec.Replicas + int64(max(0, counted-living)))
		return nil
	}}
}

// claimsOf lists the NodeClaims of a NodePool, which must not be changed.
func claimsOf(ctx context.Context, kube client.Client, pool *karpv1.NodePool) ([]karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	err := kube.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name}, client.UnsafeDisableDeepCopy)
	return claims.Items, err
}
