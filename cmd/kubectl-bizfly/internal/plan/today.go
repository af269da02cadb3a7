// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Today is what runs now.
type Today struct {
	// Nodes is how many nodes there are, Karpenter's and those of worker pools, and NodeClaims without a node yet.
	Nodes int `json:"nodes"`
	// VNDPerHour is what those cost whose flavor is known; Unpriced is how many are left out.
	VNDPerHour  float64 `json:"vndPerHour"`
	VNDPerMonth float64 `json:"vndPerMonth"`
	Unpriced    int     `json:"unpriced"`
	// Waiting is how many of the planned pods run on none of them yet, and Added what nodes for these would cost beside them, so that both
	// sums are of the same pods.
	Waiting         int     `json:"waiting,omitempty"`
	AddedNodes      int     `json:"addedNodes,omitempty"`
	AddedVNDPerHour float64 `json:"addedVndPerHour,omitempty"`
}

// StandardNodeClass is the NodeClass of "spec: {}", in every zone of the region: the prices of worker pools are those of its
// flavors.
func StandardNodeClass(zones []string) (*v1alpha1.BizflyNodeClass, error) {
	nodeClass := &v1alpha1.BizflyNodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BizflyNodeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "standard", UID: "standard", Generation: 1},
	}
	if err := manifests.Default(nodeClass); err != nil {
		return nil, fmt.Errorf("making a NodeClass of defaults: %w", err)
	}
	nodeClass.Status.Zones = zones
	return nodeClass, nil
}

// StandardFlavors returns every flavor with its prices for a server of the defaults.
func StandardFlavors(ctx context.Context, cloud *session.Cloud) ([]*corecloudprovider.InstanceType, *v1alpha1.BizflyNodeClass, error) {
	snapshot, err := cloud.Catalog.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	nodeClass, err := StandardNodeClass(lo.Map(snapshot.Zones(), func(z catalog.Zone, _ int) string { return z.Name }))
	if err != nil {
		return nil, nil, err
	}
	instanceTypes, err := wiring.Build(cloud.Over(memory.New(nil))).Flavors.List(ctx, nodeClass)
	return instanceTypes, nodeClass, err
}

// static returns the names of static NodePools: how many nodes they have is decided by no pod, so no plan has any of them.
func (s *Simulation) static(ctx context.Context) (sets.Set[string], error) {
	pools := &karpv1.NodePoolList{}
	if err := s.Objects.List(ctx, pools); err != nil {
		return nil, err
	}
	return sets.New(lo.FilterMap(pools.Items, func(pool karpv1.NodePool, _ int) (string, bool) { return pool.Name, pool.Spec.Replicas != nil })...), nil
}

// Measure prices the nodes of a copy of the cluster: Karpenter's by their NodePool, all others by their flavor with the
// default disk. It leaves out those of static NodePools.
func (s *Simulation) Measure(ctx context.Context, cloud *session.Cloud) (*Today, error) {
	nodes := &corev1.NodeList{}
	if err := s.Objects.List(ctx, nodes); err != nil {
		return nil, err
	}
	standard, _, err := StandardFlavors(ctx, cloud)
	if err != nil {
		return nil, err
	}
	byName := lo.KeyBy(standard, func(it *corecloudprovider.InstanceType) string { return it.Name })
	claims := &karpv1.NodeClaimList{}
	if err := s.Objects.List(ctx, claims); err != nil {
		return nil, err
	}
	for _, claim := range claims.Items {
		if claim.Status.NodeName == "" {
			nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: claim.Labels}})
		}
	}
	static, err := s.static(ctx)
	if err != nil {
		return nil, err
	}
	nodes.Items = lo.Reject(nodes.Items, func(node corev1.Node, _ int) bool { return static.Has(node.Labels[karpv1.NodePoolLabelKey]) })
	today := &Today{Nodes: len(nodes.Items)}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if price, ok := s.priceOf(ctx, node, byName); ok {
			today.VNDPerHour += price
			continue
		}
		today.Unpriced++
	}
	today.VNDPerMonth = today.VNDPerHour * HoursPerMonth
	return today, nil
}

// priceOf prices one node.
func (s *Simulation) priceOf(ctx context.Context, node *corev1.Node, standard map[string]*corecloudprovider.InstanceType) (float64, bool) {
	name, in := node.Labels[corev1.LabelInstanceTypeStable], node.Labels[corev1.LabelTopologyZone]
	if pool := node.Labels[karpv1.NodePoolLabelKey]; pool != "" {
		if price, err := s.Price(ctx, pool, name, in); err == nil {
			return price, true
		}
	}
	it, ok := standard[name]
	if !ok {
		return 0, false
	}
	if price, ok := it.OfferingPrice(in, karpv1.CapacityTypeOnDemand); ok {
		return price, true
	}
	offering, ok := lo.First(it.Offerings)
	if !ok {
		return 0, false
	}
	// Prices do not differ between zones; a label that is missing hides none.
	return offering.Price, true
}
