// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	corescheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
)

// Node is one node that would be launched.
type Node struct {
	NodePool string `json:"nodePool"`
	Flavor   string `json:"flavor"`
	Zone     string `json:"zone"`
	// VNDPerHour is the price of the offering.
	VNDPerHour float64 `json:"vndPerHour"`
	// Pods are the names of its pods, without those of DaemonSets.
	Pods []string `json:"pods"`
	// Used is by resource the part of the allocatable amount that is requested, DaemonSets included, from 0 to 1.
	Used map[corev1.ResourceName]float64 `json:"used"`
	// LimitedBy is the resource of which the least is left.
	LimitedBy corev1.ResourceName `json:"limitedBy"`
}

// Unplaced is a pod that fits nowhere.
type Unplaced struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
}

// Result is what the simulated cluster runs.
type Result struct {
	// Pods is how many pods were to be placed; OnExisting how many of them fit on nodes that exist.
	Pods       int        `json:"pods"`
	OnExisting int        `json:"podsOnExistingNodes,omitempty"`
	Nodes      []Node     `json:"nodes"`
	Unplaced   []Unplaced `json:"unplaced"`
	// Elsewhere are pods that must run on none of Karpenter's nodes, as those of the controller. Pods does not count them.
	Elsewhere  []Unplaced `json:"elsewhere,omitempty"`
	VNDPerHour float64    `json:"vndPerHour"`
	// VNDPerMonth is the price of 720 hours.
	VNDPerMonth float64 `json:"vndPerMonth"`
	// Assumptions are what was taken for true that is not.
	Assumptions []Assumption `json:"assumptions,omitempty"`
	Notes       []string     `json:"notes,omitempty"`
}

// Run lets core schedule the pods that wait, and our cloud provider choose an offering for each NodeClaim. The nodes join, and the pods run there.
func (s *Simulation) Run(ctx context.Context) (*Result, error) {
	pods, before := s.Waiting(), s.members()
	result := &Result{Pods: len(pods), Unplaced: []Unplaced{}}
	var failed map[types.UID]error
	left := pods
	// Within one pass core counts a new node in the limits with the largest flavor that it may become; a later pass counts what was launched.
	for waiting := len(left) + 1; 0 < len(left) && len(left) < waiting; {
		waiting = len(left)
		var err error
		if failed, err = s.provision(ctx); err != nil {
			return nil, err
		}
		left = s.Waiting()
	}
	for _, pod := range left {
		reason, list := s.reason(ctx, pod, failed[pod.UID]), &result.Unplaced
		if errors.Is(reason, provisioning.KarpenterManagedLabelDoesNotExistError) {
			list = &result.Elsewhere
		}
		*list = append(*list, Unplaced{pod.Namespace, pod.Name, reason.Error()})
	}
	result.Pods -= len(result.Elsewhere)
	if err := s.fill(ctx, result, before); err != nil {
		return nil, err
	}
	// The others run on nodes of any kind, or on those that are being launched.
	result.OnExisting = len(pods) - len(left) - lo.SumBy(result.Nodes, func(n Node) int { return len(n.Pods) })
	return result, nil
}

// fill writes the nodes into a result, without those that were there before.
func (s *Simulation) fill(ctx context.Context, p *Result, before []*member) error {
	known := lo.SliceToMap(before, func(m *member) (string, bool) { return m.claim.Name, true })
	p.Nodes, p.VNDPerHour = []Node{}, 0
	for _, m := range s.members() {
		if known[m.claim.Name] {
			continue
		}
		node, err := s.describe(ctx, m)
		if err != nil {
			return err
		}
		p.Nodes = append(p.Nodes, *node)
		p.VNDPerHour += node.VNDPerHour
	}
	p.VNDPerMonth, p.Notes, p.Assumptions = p.VNDPerHour*price.HoursPerMonth, s.Notes(), s.Assumptions
	return nil
}

// Waiting returns the pods that core would provision for.
func (s *Simulation) Waiting() []*corev1.Pod {
	waiting := lo.Filter(s.podsOn(""), func(pod *corev1.Pod, _ int) bool { return input.Counts(pod) })
	gated, others := lo.FilterReject(waiting, func(pod *corev1.Pod, _ int) bool { return input.Gated(pod) })
	if len(gated) > 0 {
		s.note("not planned: %s held back by scheduling gates; until these are removed, Karpenter does not look at them",
			output.Plural(len(gated), "pod"))
	}
	return others
}

// reason says why a pod was not placed: core's error, or what kept core from looking at the pod at all.
func (s *Simulation) reason(ctx context.Context, pod *corev1.Pod, err error) error {
	if err == nil {
		err = s.Provisioner.Validate(ctx, pod)
	}
	if err == nil {
		_, err = scheduling.NewVolumeTopology(s.Objects).GetRequirements(ctx, pod)
	}
	if err == nil {
		if lo.NoneBy(memory.All[*karpv1.NodePool](s.Objects), func(pool *karpv1.NodePool) bool {
			return pool.StatusConditions().Root().IsTrue()
		}) {
			err = errors.New("no NodePool is ready")
		}
	}
	if err == nil && !podutils.IsProvisionable(pod) {
		err = errors.New("kube-scheduler has not reported that it fits nowhere, which Karpenter waits for")
	}
	if err == nil {
		err = errors.New("the scheduler did not decide about it within its minute")
	}
	return err
}

// describe returns what runs on a node.
func (s *Simulation) describe(ctx context.Context, m *member) (*Node, error) {
	labels, requests := m.claim.Labels, m.requests()
	node := &Node{
		NodePool: labels[karpv1.NodePoolLabelKey], Flavor: labels[corev1.LabelInstanceTypeStable], Zone: labels[corev1.LabelTopologyZone],
		Pods: lo.Map(m.movable(), func(pod *corev1.Pod, _ int) string { return pod.Namespace + "/" + pod.Name }),
		Used: map[corev1.ResourceName]float64{},
	}
	var err error
	if node.VNDPerHour, err = s.Price(ctx, node.NodePool, node.Flavor, node.Zone); err != nil {
		return nil, err
	}
	slices.Sort(node.Pods)
	for resource, allocatable := range m.claim.Status.Allocatable {
		requested := requests[resource]
		if total := allocatable.AsApproximateFloat64(); total > 0 {
			node.Used[resource] = requested.AsApproximateFloat64() / total
		}
	}
	node.LimitedBy = lo.MaxBy(lo.Keys(node.Used), func(a, b corev1.ResourceName) bool {
		return cmp.Or(cmp.Compare(node.Used[a], node.Used[b]), cmp.Compare(b, a)) > 0
	})
	return node, nil
}

// Price returns what a flavor in a zone costs NodeClaims of the NodePool, in VND per hour.
func (s *Simulation) Price(ctx context.Context, pool, flavor, zone string) (float64, error) {
	nodePool, err := s.pool(ctx, pool)
	if err != nil {
		return 0, err
	}
	instanceTypes, err := s.Provider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return 0, err
	}
	it, ok := lo.Find(instanceTypes, func(it *corecloudprovider.InstanceType) bool { return it.Name == flavor })
	if !ok {
		return 0, fmt.Errorf("there is no flavor %q for NodePool %s", flavor, pool)
	}
	price, ok := it.OfferingPrice(zone, karpv1.CapacityTypeOnDemand)
	if !ok {
		return 0, fmt.Errorf("flavor %s has no price in %s", flavor, zone)
	}
	return price, nil
}

// FlavorsOf are the flavors that NodeClaims of a NodePool can be launched with, sorted by name.
func (s *Simulation) FlavorsOf(ctx context.Context, pool *karpv1.NodePool) ([]*corecloudprovider.InstanceType, error) {
	instanceTypes, err := s.Provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, err
	}
	wanted := RequirementsOf(pool)
	possible := lo.Filter(instanceTypes, func(it *corecloudprovider.InstanceType, _ int) bool {
		return wanted.IsCompatible(it.Requirements, corescheduling.AllowUndefinedWellKnownLabels) && it.Offerings.Available().HasCompatible(wanted)
	})
	slices.SortFunc(possible, func(a, b *corecloudprovider.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return possible, nil
}

// RequirementsOf are what a NodePool asks of its nodes.
func RequirementsOf(pool *karpv1.NodePool) corescheduling.Requirements {
	requirements := corescheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	requirements.Add(corescheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	return requirements
}

// Static returns the names of static NodePools: how many nodes they have is decided by no pod, so no plan has any of them.
func (s *Simulation) Static() sets.Set[string] {
	return sets.New(lo.FilterMap(memory.All[*karpv1.NodePool](s.Objects), func(pool *karpv1.NodePool, _ int) (string, bool) {
		return pool.Name, pool.Spec.Replicas != nil
	})...)
}
