// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
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
	// Staying is how many of the nodes run pods that may not run on Karpenter's, such as its controller, and what these cost beside the plan.
	Staying           int     `json:"staying,omitempty"`
	StayingVNDPerHour float64 `json:"stayingVndPerHour,omitempty"`
	// prices are those of the nodes by name.
	prices map[string]float64
}

// keep counts the nodes of pods that a plan does not have.
func (t *Today) keep(elsewhere []sim.Unplaced, pods []*corev1.Pod) {
	others := lo.SliceToMap(elsewhere, func(u sim.Unplaced) (string, bool) { return u.Namespace + "/" + u.Name, true })
	nodes := lo.Uniq(lo.FilterMap(pods, func(pod *corev1.Pod, _ int) (string, bool) {
		return pod.Spec.NodeName, pod.Spec.NodeName != "" && others[pod.Namespace+"/"+pod.Name]
	}))
	t.Staying, t.StayingVNDPerHour = len(nodes), lo.SumBy(nodes, func(name string) float64 { return t.prices[name] })
}

// measureNodes prices the nodes of a copy of the cluster: Karpenter's by their NodePool, all others by their flavor with the
// default disk. It leaves out those of static NodePools.
func measureNodes(ctx context.Context, cloud *connect.Cloud, s *sim.Simulation) (*Today, error) {
	nodes := &corev1.NodeList{}
	if err := s.Objects.List(ctx, nodes); err != nil {
		return nil, err
	}
	standard, _, err := price.StandardFlavors(ctx, cloud)
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
	static, err := s.Static(ctx)
	if err != nil {
		return nil, err
	}
	nodes.Items = lo.Reject(nodes.Items, func(node corev1.Node, _ int) bool { return static.Has(node.Labels[karpv1.NodePoolLabelKey]) })
	today := &Today{Nodes: len(nodes.Items), prices: map[string]float64{}}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if vndPerHour, ok := priceOf(ctx, s, node, byName); ok {
			today.prices[node.Name], today.VNDPerHour = vndPerHour, today.VNDPerHour+vndPerHour
			continue
		}
		today.Unpriced++
	}
	today.VNDPerMonth = today.VNDPerHour * price.HoursPerMonth
	return today, nil
}

// priceOf prices one node.
func priceOf(ctx context.Context, s *sim.Simulation, node *corev1.Node, standard map[string]*corecloudprovider.InstanceType) (float64, bool) {
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
