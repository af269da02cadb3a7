// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost reports what the nodes that there are cost per hour. A server that is stopped costs less.
package cost

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	labelNodePool    = "nodepool"
	labelZone        = "zone"
	labelBillingPlan = "billing_plan"
)

var (
	costPerHour = metrics.Gauge("karpenter_bizfly_cost_vnd_per_hour",
		"Estimated price of the servers with their disks in VND per hour, less while stopped. By nodepool (empty for NodeClaims of none), zone and billing_plan.",
		metrics.Label(labelNodePool), metrics.Label(labelZone), metrics.Label(labelBillingPlan))
	unpriced = metrics.Gauge("karpenter_bizfly_unpriced_nodeclaims",
		"Launched NodeClaims whose price is not known and that karpenter_bizfly_cost_vnd_per_hour leaves out.")
)

// group is what costs are summed by.
type group struct{ nodePool, zone, billingPlan string }

func (g group) labels() map[string]string {
	return map[string]string{labelNodePool: g.nodePool, labelZone: g.zone, labelBillingPlan: g.billingPlan}
}

// Controller adds up the cost.
type Controller struct {
	kubeClient    client.Client
	cloudProvider *cloudprovider.CloudProvider
	// reported are the groups of the last time.
	reported map[group]float64
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, cloudProvider *cloudprovider.CloudProvider) *Controller {
	return &Controller{kubeClient: kubeClient, cloudProvider: cloudProvider}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "nodeclaim.cost" }

// Reconcile adds up the cost once. NodeClaims without a price are left out, and counted.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	claims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return reconciler.Result{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	stopped, err := c.stopped(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	sums, without := map[group]float64{}, 0
	for i := range claims.Items {
		claim := &claims.Items[i]
		if !cloudprovider.IsManaged(claim) || claim.Status.ProviderID == "" {
			continue
		}
		price, item := c.cloudProvider.Launches.PriceOf(ctx, claim)
		if price <= 0 {
			without++
			continue
		}
		if stopped[claim.Status.NodeName] && item.CPU > 0 {
			price = c.cloudProvider.Launches.StoppedPrice(price, item)
		}
		sums[group{claim.Labels[karpv1.NodePoolLabelKey], claim.Labels[corev1.LabelTopologyZone], bizfly.PlanWord(item.BillingPlan)}] += price
	}
	c.report(sums)
	unpriced.Set(float64(without), nil)
	return reconciler.Result{RequeueAfter: ttl.Cost}, nil
}

// report ends the series of groups that have no NodeClaim any more. Those of the others are never missing.
func (c *Controller) report(sums map[group]float64) {
	for g := range c.reported {
		if _, still := sums[g]; !still {
			costPerHour.Delete(g.labels())
		}
	}
	for g, sum := range sums {
		costPerHour.Set(sum, g.labels())
	}
	c.reported = sums
}

// stopped returns the names of the Nodes whose server is stopped.
func (c *Controller) stopped(ctx context.Context) (map[string]bool, error) {
	nodes := &corev1.NodeList{}
	if err := c.kubeClient.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	return lo.SliceToMap(nodes.Items, func(node corev1.Node) (string, bool) { return node.Name, v1alpha1.ServerStopped(&node) }), nil
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
