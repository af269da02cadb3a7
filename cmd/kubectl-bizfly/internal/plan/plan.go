// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// Plan is what Karpenter would run.
type Plan struct {
	// Name says which alternative it is; empty where there is one.
	Name string `json:"name,omitempty"`
	*sim.Result
	Today *Today `json:"today,omitempty"`
	// Catalog is what was planned with; nil is BizFly Cloud's own.
	Catalog *connect.Catalog `json:"catalog,omitempty"`
	// Assumed names the objects that the manifests do not have, and that are those of the default sample.
	Assumed []string `json:"assumed,omitempty"`
}

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

// Group is nodes of one NodePool, flavor and zone.
type Group struct {
	NodePool, Flavor, Zone string
	Count                  int
	VNDPerHour             float64
	// Used is the mean of its nodes.
	Used map[corev1.ResourceName]float64
	// LimitedBy is what limits most of its nodes.
	LimitedBy corev1.ResourceName
}

// Groups sums the nodes up, the most expensive group first.
func (p *Plan) Groups() []Group {
	groups := lo.MapToSlice(lo.GroupBy(p.Nodes, func(n sim.Node) [3]string { return [3]string{n.NodePool, n.Flavor, n.Zone} }),
		func(key [3]string, nodes []sim.Node) Group {
			group := Group{NodePool: key[0], Flavor: key[1], Zone: key[2], Count: len(nodes), Used: map[corev1.ResourceName]float64{}}
			limits := map[corev1.ResourceName]int{}
			for _, node := range nodes {
				group.VNDPerHour += node.VNDPerHour
				limits[node.LimitedBy]++
				for name, used := range node.Used {
					group.Used[name] += used / float64(len(nodes))
				}
			}
			group.LimitedBy = lo.MaxBy(lo.Keys(limits), func(a, b corev1.ResourceName) bool {
				return cmp.Or(cmp.Compare(limits[a], limits[b]), cmp.Compare(b, a)) > 0
			})
			return group
		})
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.VNDPerHour, a.VNDPerHour), cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.NodePool, b.NodePool))
	})
	return groups
}

// Used is the mean part of a resource that is requested, weighted by nothing: nodes count alike.
func (p *Plan) Used(name corev1.ResourceName) float64 {
	if len(p.Nodes) == 0 {
		return 0
	}
	return lo.SumBy(p.Nodes, func(n sim.Node) float64 { return n.Used[name] }) / float64(len(p.Nodes))
}
