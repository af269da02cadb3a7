// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// HoldStaticPools makes core's static provisioning, which is one of the controllers, wait while nothing that a NodePool
// allows can be launched. Core would create a NodeClaim again as soon as one ends, many a second, and schedule nothing
// for anyone while that has no server (kubernetes-sigs/karpenter#3198). It waits by itself at a limit of nodes, so that
// is what it is shown of such a NodePool.
func (c *CloudProvider) HoldStaticPools(all []controller.Controller) []controller.Controller {
	return lo.Map(all, func(one controller.Controller, _ int) controller.Controller {
		if named, ok := one.(interface{ Name() string }); ok && named.Name() == "static.provisioning" {
			return staticProvisioning{one, c}
		}
		return one
	})
}

// staticProvisioning is core's controller, which reads NodePools through launchablePools.
type staticProvisioning struct {
	controller.Controller
	provider *CloudProvider
}

// Register implements controller.Controller.
func (s staticProvisioning) Register(ctx context.Context, m manager.Manager) error {
	return s.Controller.Register(ctx, launchableManager{m, s.provider})
}

type launchableManager struct {
	manager.Manager
	provider *CloudProvider
}

// GetClient implements manager.Manager.
func (m launchableManager) GetClient() client.Client {
	return m.provider.LaunchablePools(m.Manager.GetClient())
}

// LaunchablePools returns the client through which core's static provisioning reads NodePools.
func (c *CloudProvider) LaunchablePools(kubeClient client.Client) client.Client {
	return launchablePools{kubeClient, c}
}

type launchablePools struct {
	client.Client
	provider *CloudProvider
}

// Get implements client.Client.
func (l launchablePools) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	if err := l.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	pool, ok := object.(*karpv1.NodePool)
	if !ok || pool.Spec.Replicas == nil || !v1alpha1.IsOurs(pool.Spec.Template.Spec.NodeClassRef) {
		return nil
	}
	types, err := l.provider.GetInstanceTypes(ctx, pool)
	if err != nil || flavor.CanLaunch(ctx, pool, types) {
		return nil //nolint:nilerr // core asks for a ready NodeClass itself
	}
	claims := &karpv1.NodeClaimList{}
	if err := l.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	wanted := *pool.Spec.Replicas
	if limit, limited := pool.Spec.Limits[resources.Node]; limited {
		wanted = min(wanted, limit.Value())
	}
	if lacking := wanted - int64(len(claims.Items)); lacking > 0 {
		l.provider.config.Recorder.Publish(events.StaticNodePoolWaits(pool, lacking))
	}
	pool.Spec.Limits = karpv1.Limits(corev1.ResourceList{resources.Node: resource.Quantity{}})
	return nil
}
