// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package catalog refreshes the catalog of the cloud on an interval.
package catalog

import (
	"context"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/wait"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// jitter spreads the replicas, which all start at the same time after an upgrade.
const jitter = 0.2

// Controller refreshes the catalog.
type Controller struct {
	catalog  catalog.Provider
	settings *options.Store
}

// NewController returns the controller. The settings have the time between refreshes that succeed; it is lengthened by
// up to a fifth at random.
func NewController(catalog catalog.Provider, settings *options.Store) *Controller {
	return &Controller{catalog: catalog, settings: settings}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "catalog.refresh" }

// Reconcile refreshes once. A failure is logged and not returned: the backoff of the workqueue begins at milliseconds,
// and the last good content is served meanwhile.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if err := c.catalog.Refresh(ctx); err != nil {
		log.FromContext(ctx).Error(err,
			"refreshing the catalog of the cloud failed at least in part, its last good content is served")
		return reconciler.Result{RequeueAfter: wait.Jitter(ttl.CatalogBackoff, jitter)}, nil
	}
	if snapshot, err := c.catalog.Snapshot(); err == nil && snapshot.ClusterUnknown {
		return reconciler.Result{RequeueAfter: wait.Jitter(ttl.CatalogBackoff, jitter)}, nil
	}
	return reconciler.Result{RequeueAfter: wait.Jitter(c.settings.Load().CatalogInterval, jitter)}, nil
}

// Register adds the controller to the manager. It runs on every replica and not only on the leader: each decides from
// its own catalog, and one that takes over the lease must not begin with an old or empty one.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WithOptions(controller.Options{NeedLeaderElection: lo.ToPtr(false)}).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
