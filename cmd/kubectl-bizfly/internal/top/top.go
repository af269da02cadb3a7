// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top shows the nodes of the cluster as they are now: flavor, zone, age, what is requested of them, and what they
// cost.
package top

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Node is one node.
type Node struct {
	Name     string    `json:"name"`
	NodePool string    `json:"nodePool,omitempty"`
	Flavor   string    `json:"flavor"`
	Zone     string    `json:"zone"`
	Created  time.Time `json:"created"`
	// Status is Ready, NotReady, Stopped, or what is happening to the node.
	Status string `json:"status"`
	// CPU and Memory are the parts of the allocatable amounts that are requested, from 0 to 1.
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	Pods   int     `json:"pods"`
	// VNDPerHour is 0 where the price is not known or the server is deleted, and that of a server that runs.
	VNDPerHour float64 `json:"vndPerHour,omitempty"`
	// What the row is made of, for what explains it: a NodeClaim may have no node yet, and a node no NodeClaim.
	Object  *corev1.Node      `json:"-"`
	Claim   *karpv1.NodeClaim `json:"-"`
	Running []*corev1.Pod     `json:"-"`
}

// Cluster is all nodes, those of Karpenter first.
type Cluster struct {
	Nodes       []Node  `json:"nodes"`
	VNDPerHour  float64 `json:"vndPerHour"`
	VNDPerMonth float64 `json:"vndPerMonth"`
	Pending     int     `json:"pendingPods"`
	// ClaimsErr says why NodeClaims are not known. Flavors are those of BizFly Cloud, where it can be asked.
	ClaimsErr error                             `json:"-"`
	Flavors   []*corecloudprovider.InstanceType `json:"-"`
}

// Read reads the cluster once.
func Read(ctx context.Context, s *connect.Session) (*Cluster, error) {
	nodes, pods, claims := &corev1.NodeList{}, &corev1.PodList{}, &karpv1.NodeClaimList{}
	if err := s.List(ctx, nodes); err != nil {
		return nil, err
	}
	if err := s.List(ctx, pods); err != nil {
		return nil, err
	}
	claimsErr := s.List(ctx, claims)
	if claimsErr != nil {
		s.Note("NodeClaims are not shown: %s", claimsErr)
	}
	var objects memory.Objects
	for _, list := range []client.ObjectList{nodes, pods, claims} {
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			objects = append(objects, object.(client.Object))
			return nil
		})
	}
	flavors := flavors(ctx, s)
	cluster := &Cluster{Nodes: Rows(objects, flavors), ClaimsErr: claimsErr, Flavors: flavors}
	cluster.Pending = lo.CountBy(pods.Items, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName == "" && input.Counts(&pod)
	})
	cluster.VNDPerHour = lo.SumBy(cluster.Nodes, func(n Node) float64 { return n.VNDPerHour })
	cluster.VNDPerMonth = cluster.VNDPerHour * price.HoursPerMonth
	return cluster, nil
}

// Rows are the nodes among objects, and the NodeClaims that have none yet.
func Rows(objects memory.Objects, flavors []*corecloudprovider.InstanceType) []Node {
	prices := price.ByFlavor(flavors)
	claims := memory.Of[*karpv1.NodeClaim](objects)
	byNode := lo.GroupBy(memory.Of[*corev1.Pod](objects), func(pod *corev1.Pod) string { return pod.Spec.NodeName })
	byClaimNode := lo.KeyBy(claims, func(claim *karpv1.NodeClaim) string { return claim.Status.NodeName })
	rows := []Node{}
	for _, node := range memory.Of[*corev1.Node](objects) {
		running := lo.Filter(byNode[node.Name], func(pod *corev1.Pod, _ int) bool {
			return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
		})
		requested := resources.RequestsForPods(running...)
		row := Node{
			Name: node.Name, NodePool: node.Labels[karpv1.NodePoolLabelKey], Flavor: node.Labels[corev1.LabelInstanceTypeStable],
			Zone:    node.Labels[corev1.LabelTopologyZone],
			Created: node.CreationTimestamp.Time, Status: StatusOf(node), Pods: len(running),
			CPU: part(requested, node.Status.Allocatable, corev1.ResourceCPU), Memory: part(requested, node.Status.Allocatable, corev1.ResourceMemory),
			Object: node, Claim: byClaimNode[node.Name], Running: running,
		}
		if row.Status != Deleted {
			row.VNDPerHour = priceOf(lo.Assign(lo.FromPtr(row.Claim).Labels, node.Labels), prices)
		}
		rows = append(rows, row)
	}
	for _, claim := range claims {
		if claim.Status.NodeName == "" {
			rows = append(rows, Node{
				Name: claim.Name, NodePool: claim.Labels[karpv1.NodePoolLabelKey], Flavor: claim.Labels[corev1.LabelInstanceTypeStable],
				Zone:    claim.Labels[corev1.LabelTopologyZone],
				Created: claim.CreationTimestamp.Time, Status: lo.Ternary(claim.Status.ProviderID == "", "Launching", "Joining"), VNDPerHour: priceOf(claim.Labels, prices),
				Claim: claim,
			})
		}
	}
	slices.SortFunc(rows, func(a, b Node) int {
		return cmp.Or(cmp.Compare(lo.Ternary(a.NodePool == "", 1, 0), lo.Ternary(b.NodePool == "", 1, 0)), cmp.Compare(a.NodePool, b.NodePool),
			cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// Priced reports whether it is known what the node costs.
func (n Node) Priced() bool { return n.VNDPerHour > 0 || n.Status == Deleted }

func part(requested, allocatable corev1.ResourceList, name corev1.ResourceName) float64 {
	wanted, has := requested[name], allocatable[name]
	if has.IsZero() {
		return 0
	}
	return wanted.AsApproximateFloat64() / has.AsApproximateFloat64()
}

// Deleted is the status of a node without a server, which costs nothing. Core's own finalizer is gone with the server.
const Deleted = "Deleted"

// StatusOf says what is happening to a node.
func StatusOf(node *corev1.Node) string {
	ready, _ := lo.Find(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case node.DeletionTimestamp != nil:
		kept := node.Labels[karpv1.NodePoolLabelKey] == "" || lo.Contains(node.Finalizers, karpv1.TerminationFinalizer)
		return lo.Ternary(kept, "Draining", Deleted)
	// Core taints a node when it chooses it, and evicts its pods when its replacement is ready and the node is deleted.
	case lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }):
		return "Replacing"
	case ready.Status != corev1.ConditionTrue:
		return "NotReady"
	case node.Spec.Unschedulable:
		return "Cordoned"
	}
	return "Ready"
}

// flavors are all, where the cloud can be asked.
func flavors(ctx context.Context, s *connect.Session) []*corecloudprovider.InstanceType {
	cloud, err := s.Cloud(ctx)
	if err == nil {
		price.NotePeriod(s, cloud)
		var all []*corecloudprovider.InstanceType
		if all, _, err = price.StandardFlavors(ctx, cloud); err == nil {
			return all
		}
	}
	s.Note("prices are those at launch where nodes have them: %s", err)
	return nil
}

// priceOf is the price that the server was launched at, else the flavor's with the default disk.
func priceOf(labels map[string]string, prices map[string]float64) float64 {
	if price, err := strconv.ParseFloat(labels[v1alpha1.LabelLaunchPrice], 64); err == nil {
		return price
	}
	return prices[labels[corev1.LabelInstanceTypeStable]]
}
