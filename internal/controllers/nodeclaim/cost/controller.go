// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost reports what the nodes that there are cost per hour. A server that is stopped costs less.
package cost

import (
	"context"
	"errors"
	"fmt"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
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
	kubeClient client.Client
	flavors    *flavor.DefaultProvider
	settings   *options.Store
	// reported are the groups of the last time.
	reported map[group]float64
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, flavors *flavor.DefaultProvider, settings *options.Store) *Controller {
	return &Controller{kubeClient: kubeClient, flavors: flavors, settings: settings}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "nodeclaim.cost" }

// Reconcile adds up the cost once. The NodeClaims of a NodeClass without prices are left out.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	claims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return reconciler.Result{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	classes := &v1alpha1.BizflyNodeClassList{}
	if err := c.kubeClient.List(ctx, classes); err != nil {
		return reconciler.Result{}, fmt.Errorf("listing BizflyNodeClasses: %w", err)
	}
	stopped, err := c.stopped(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	byName := lo.SliceToMap(classes.Items, func(n v1alpha1.BizflyNodeClass) (string, *v1alpha1.BizflyNodeClass) { return n.Name, &n })
	types := map[string][]*cloudprovider.InstanceType{}
	sums, without := map[group]float64{}, 0
	var errs []error
	for i := range claims.Items {
		claim := &claims.Items[i]
		if ref := claim.Spec.NodeClassRef; ref == nil || ref.Group != v1alpha1.Group || claim.Status.ProviderID == "" {
			continue
		}
		nodeClass := byName[claim.Spec.NodeClassRef.Name]
		if nodeClass == nil {
			without++
			continue
		}
		if _, listed := types[nodeClass.Name]; !listed {
			types[nodeClass.Name], err = c.flavors.List(ctx, nodeClass)
			errs = append(errs, err)
		}
		zone := claim.Labels[corev1.LabelTopologyZone]
		_, offering := flavor.Find(types[nodeClass.Name], claim.Labels[corev1.LabelInstanceTypeStable], zone)
		price := lo.FromPtr(offering).Price
		if price <= 0 {
			without++
			continue
		}
		if stopped[claim.Status.NodeName] {
			price = c.whileStopped(price, claim, nodeClass)
		}
		sums[group{claim.Labels[karpv1.NodePoolLabelKey], zone, bizfly.PlanWord(nodeClass.EffectiveBillingPlan())}] += price
	}
	c.report(sums)
	unpriced.Set(float64(without), nil)
	if err := errors.Join(errs...); err != nil {
		// An error would put off the cost of all other NodeClaims for up to 17 minutes.
		log.FromContext(ctx).Error(err, "the cost leaves out NodeClaims whose instance types are not known")
	}
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

// whileStopped is the price of a server that is stopped; that of a running one where the NodeClaim does not show its size.
func (c *Controller) whileStopped(price float64, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) float64 {
	item, ok := flavor.ItemOf(claim.Labels, nodeClass.EffectiveBillingPlan())
	return lo.Ternary(ok, c.settings.Load().Prices.Stopped(price, item), price)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
