// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// reasonNothingLaunchable says that all NodePools of the NodeClass are static and nothing that they lack can be
	// launched now.
	reasonNothingLaunchable = "NothingLaunchable"
	// retryStatic is how late it is noticed that something can be launched again.
	retryStatic = 10 * time.Second
)

// staticWait returns a false result where all NodePools of the NodeClass, those that are being deleted aside, are
// static, some lack nodes, and no offering that these allow is available. Core creates a NodeClaim of a static NodePool
// again as soon as one ends, whatever is available, and schedules nothing for anyone while that has no server
// (kubernetes-sigs/karpenter#3198); it stops only for a NodePool that is not ready.
func (c *Controller) staticWait(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass,
	types cloudprovider.InstanceTypes) (result, bool, error) {
	list := &karpv1.NodePoolList{}
	if err := c.kubeClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return result{}, false, fmt.Errorf("listing NodePools: %w", err)
	}
	var lacking []string
	for i := range list.Items {
		pool := &list.Items[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !v1alpha1.IsOurs(ref) || ref.Name != nodeClass.Name || !pool.DeletionTimestamp.IsZero() {
			continue
		}
		if pool.Spec.Replicas == nil {
			return result{}, false, nil
		}
		claims := &karpv1.NodeClaimList{}
		if err := c.kubeClient.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name},
			client.UnsafeDisableDeepCopy); err != nil {
			return result{}, false, fmt.Errorf("listing NodeClaims: %w", err)
		}
		nodes := lo.CountBy(claims.Items, func(claim karpv1.NodeClaim) bool {
			return claim.Status.ProviderID != "" && claim.DeletionTimestamp.IsZero()
		})
		wanted := *pool.Spec.Replicas
		if limit, limited := pool.Spec.Limits[resources.Node]; limited {
			wanted = min(wanted, limit.Value())
		}
		if int64(nodes) >= wanted {
			continue
		}
		if flavor.CanLaunch(ctx, pool, types) {
			return result{}, false, nil
		}
		lacking = append(lacking, pool.Name)
	}
	if len(lacking) == 0 {
		return result{}, false, nil
	}
	waits := missing(reasonNothingLaunchable, fmt.Sprintf(
		"static NodePools %v lack nodes, and nothing that they allow can be launched at the moment "+
			"(see events of their NodeClaims); they wait until an offering is available again. Allow more flavors or zones",
		lookup.Shorten(lacking)))
	waits.retryAfter = retryStatic
	return waits, true, nil
}

// unlaunched passes NodeClaims of static NodePools that end without a server.
func unlaunched() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.(*karpv1.NodeClaim).Status.ProviderID == "" },
	}
}

// ofStaticPool maps a NodeClaim of a static NodePool to its NodeClass.
func (c *Controller) ofStaticPool(ctx context.Context, object client.Object) []reconcile.Request {
	pool := &karpv1.NodePool{}
	name := object.GetLabels()[karpv1.NodePoolLabelKey]
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil || pool.Spec.Replicas == nil {
		return nil
	}
	return controllers.NodeClassOf(ctx, object)
}
