// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	corescheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// attempts is how many exchanges are tried at most, the one that saves most first, and trials how many random orders of evictions each must survive.
	attempts, trials = 6, 3
	// maxSets is how many sets of nodes are tried.
	maxSets = 24
	// ours is how many pods of a repack a node has at most.
	ours = 3
)

// search looks for the nodes whose pods need less together.
type search struct {
	cloud   *connect.Cloud
	objects memory.Objects

	types map[string]*corecloudprovider.InstanceType
	// nodes are those of all NodePools that have pods, and own those of the NodePool.
	nodes, own []*sim.Managed
	// daemons is what DaemonSets request on a node at most.
	daemons corev1.ResourceList
}

// propose returns the proposal with the exchange that saves most of those that core confirms.
func (s *search) propose(ctx context.Context, p *Proposal) (*Proposal, error) {
	current, err := s.trial(ctx, 0)
	if err != nil {
		return nil, err
	}
	managed, err := current.Managed(ctx)
	if err != nil {
		return nil, err
	}
	s.nodes = lo.Filter(managed, func(m *sim.Managed, _ int) bool { return len(m.Pods) > 0 })
	s.own = lo.Filter(s.nodes, func(m *sim.Managed, _ int) bool { return m.Claim.Labels[karpv1.NodePoolLabelKey] == p.NodePool })
	if len(s.own) == 0 {
		p.Reason = "the NodePool has no nodes with pods that could move"
		return p, nil
	}
	for _, m := range s.own {
		p.VNDPerHour += m.VNDPerHour
		s.daemons = resources.MaxResources(s.daemons, m.Daemons)
	}
	p.Nodes, p.NodesAfter, p.VNDPerHourAfter, p.Notes = len(s.own), len(s.own), p.VNDPerHour, current.Notes()
	flavors, err := current.FlavorsOf(ctx, p.pool)
	if err != nil {
		return nil, err
	}
	s.types = lo.KeyBy(flavors, func(it *corecloudprovider.InstanceType) string { return it.Name })
	_, all, err := current.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	// What core comes to alone needs no repack.
	if err := current.Rest(ctx); err != nil {
		return nil, fmt.Errorf("trying what Karpenter does alone: %w", err)
	}
	_, alone, err := current.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	target := min(all, alone) - MinSaving*p.VNDPerHour
	found, err := s.exchanges(ctx, p, all-target)
	if err != nil {
		return nil, err
	}
	for _, e := range lo.Slice(found, 0, attempts) {
		after, err := s.confirm(ctx, e)
		if err != nil {
			return nil, err
		}
		if after <= target {
			e.VNDPerHourAfter, e.SavesVNDPerMonth = e.VNDPerHour-(all-after), (all-after)*price.HoursPerMonth
			e.Budgets = budgetsOf(memory.Of[*policyv1.PodDisruptionBudget](s.objects), e.moving())
			return e, nil
		}
	}
	p.Reason = fmt.Sprintf("no exchange of nodes was found that saves %.0f %% of the NodePool's bill and that Karpenter's scheduler confirms", 100*MinSaving)
	return p, nil
}

// exchanges are what core's scheduler wants in place of some of the nodes, with flavors up to each size, the one that saves most first; of those
// that save the same, the one that moves fewest pods.
func (s *search) exchanges(ctx context.Context, p *Proposal, least float64) (all []*Proposal, err error) {
	sizes := lo.Uniq(lo.MapToSlice(s.types, func(_ string, it *corecloudprovider.InstanceType) int64 { return it.Capacity.Cpu().Value() }))
	slices.Sort(sizes)
	for _, replaced := range s.sets() {
		if lo.SumBy(replaced, func(m *sim.Managed) float64 { return m.VNDPerHour }) < least {
			continue
		}
		for _, size := range sizes {
			e, err := s.exchange(ctx, p, replaced, size)
			if err != nil {
				return nil, err
			}
			saves := e != nil && len(e.New) > 0 && e.VNDPerHour-e.VNDPerHourAfter >= least
			if saves && e.certain() && e.exceeds(p.pool, memory.Of[*karpv1.NodeClaim](s.objects)) == nil {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *Proposal) int {
		return cmp.Or(cmp.Compare(a.VNDPerHourAfter, b.VNDPerHourAfter), cmp.Compare(len(a.moving()), len(b.moving())))
	})
	return all, nil
}

// sets are the sets of nodes that are tried: those that waste most, more and more of them, and each alone.
func (s *search) sets() (sets [][]*sim.Managed) {
	movable := lo.Filter(s.own, func(m *sim.Managed, _ int) bool {
		return m.Disruptable && !lo.ContainsBy(m.Pods, func(pod *corev1.Pod) bool { return pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil })
	})
	waste := func(m *sim.Managed) float64 {
		return m.VNDPerHour * (1 - (m.Used[corev1.ResourceCPU]+m.Used[corev1.ResourceMemory])/2)
	}
	slices.SortStableFunc(movable, func(a, b *sim.Managed) int { return cmp.Compare(waste(b), waste(a)) })
	for i := range movable {
		if i > 0 {
			sets = append(sets, movable[:i+1])
		}
		sets = append(sets, movable[i:i+1])
	}
	if step := float64(len(sets)) / maxSets; step > 1 {
		sets = lo.Times(maxSets, func(i int) []*sim.Managed { return sets[len(sets)-1-int(float64(i)*step)] })
	}
	return sets
}

// exchange lets core's scheduler place the pods of some nodes as if these did not exist. It is nil where a pod finds no place.
func (s *search) exchange(ctx context.Context, p *Proposal, replaced []*sim.Managed, size int64) (*Proposal, error) {
	pool := p.pool.DeepCopy()
	pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
		Key: v1alpha1.LabelInstanceCPU, Operator: karpv1.NodeSelectorOpLte, Values: []string{fmt.Sprint(size)},
	})
	gone := lo.SliceToMap(replaced, func(m *sim.Managed) (string, bool) { return m.Node.Name, true })
	objects := lo.Reject(s.objects, func(object client.Object, _ int) bool {
		switch o := object.(type) {
		case *karpv1.NodeClaim:
			return gone[o.Status.NodeName]
		case *corev1.Node:
			return gone[o.Name]
		case *corev1.Pod:
			return gone[o.Spec.NodeName]
		}
		return false
	})
	e := *p
	e.run, e.Replaced, e.VNDPerHourAfter = rand.String(6), nil, p.VNDPerHour
	for _, m := range replaced {
		e.Replaced, e.VNDPerHourAfter = append(e.Replaced, newNode(m, m.Pods)), e.VNDPerHourAfter-m.VNDPerHour
	}
	pods, standsFor := waiting(e.Replaced, size)
	simulation, err := sim.New(ctx, s.cloud, append(objects, pods...).With(pool))
	if err != nil {
		return nil, err
	}
	if err := simulation.Observe(ctx); err != nil {
		return nil, err
	}
	planned, err := simulation.Run(ctx)
	if err != nil || len(planned.Unplaced) > 0 {
		return nil, err
	}
	after, err := simulation.Managed(ctx)
	if err != nil {
		return nil, err
	}
	known := lo.KeyBy(s.nodes, func(m *sim.Managed) string { return m.Node.Name })
	for _, m := range after {
		node := newNode(m, lo.FlatMap(m.Pods, func(pod *corev1.Pod, _ int) []*corev1.Pod { return standsFor[pod.UID] }))
		switch {
		case known[node.Name] != nil:
			// What leaves it would take the new nodes from the pods that these are for.
			e.held, e.Held = append(e.held, node), append(e.Held, node.Name)
		case len(node.pods) == 0:
		case int64(len(node.pods))+s.daemons.Pods().Value()+ours > m.Node.Status.Allocatable.Pods().Value():
			return nil, nil
		default:
			node.claim = s.claim(&e, node)
			node.Name, node.NodeClaim = "", ""
			e.New, e.VNDPerHourAfter = append(e.New, node), e.VNDPerHourAfter+node.VNDPerHour
			e.capacity = resources.Merge(e.capacity, s.types[node.Flavor].Capacity, oneNode)
		}
	}
	e.NodesAfter = e.Nodes - len(e.Replaced) + len(e.New)
	return &e, nil
}

func newNode(m *sim.Managed, pods []*corev1.Pod) Node {
	return Node{
		Name: m.Node.Name, NodeClaim: m.Claim.Name, Flavor: m.Node.Labels[corev1.LabelInstanceTypeStable], Zone: m.Node.Labels[corev1.LabelTopologyZone],
		VNDPerHour: m.VNDPerHour, Pods: lo.Map(pods, func(pod *corev1.Pod, _ int) string { return pod.Namespace + "/" + pod.Name }), node: m.Node, pods: pods,
	}
}

// claim is the NodeClaim that core's provisioner would create, narrowed to one flavor in one zone.
func (s *search) claim(p *Proposal, node Node) *karpv1.NodeClaim {
	template := scheduling.NewNodeClaimTemplate(p.pool)
	template.InstanceTypeOptions = corecloudprovider.InstanceTypes{s.types[node.Flavor]}
	template.Requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, node.Zone))
	claim := template.ToNodeClaim()
	claim.Spec.Resources.Requests = resources.Merge(s.daemons, resources.RequestsForPods(node.pods...))
	claim.Labels = lo.Assign(claim.Labels, map[string]string{RunLabel: p.run, NodeLabel: fmt.Sprintf("%s-%d", p.run, len(p.New)+1)})
	return claim
}

// waiting are the pods of nodes as if they waited, in their zone where they are bound to it, and which pods each stands for. Replicas are one pod where a
// node of the size holds it: they come to one node, so that nothing depends on how the kube-scheduler divides them among several.
func waiting(nodes []Node, size int64) (pods memory.Objects, standsFor map[types.UID][]*corev1.Pod) {
	type workload struct {
		namespace string
		identity
	}
	workloadOf := func(pod *corev1.Pod) workload { return workload{pod.Namespace, identityOf(pod)} }
	replicas := lo.GroupBy(lo.FlatMap(nodes, func(n Node, _ int) []*corev1.Pod { return n.pods }), workloadOf)
	standsFor = map[types.UID][]*corev1.Pod{}
	for _, node := range nodes {
		for _, original := range node.pods {
			pod, all := original.DeepCopy(), []*corev1.Pod{original}
			input.Unbind(pod)
			alike := replicas[workloadOf(pod)]
			requests := resources.RequestsForPods(alike...)
			switch {
			case sim.StaysInZone(pod):
				pod.Spec.NodeSelector = lo.Assign(pod.Spec.NodeSelector, map[string]string{corev1.LabelTopologyZone: node.Zone})
			case identityOf(pod).known() && len(onNodes(pod)) == 0 && requests.Cpu().Value() <= size:
				if original != alike[0] {
					continue
				}
				all = alike
				pod.Spec.InitContainers, pod.Spec.Overhead, pod.Spec.Resources = nil, nil, nil
				pod.Spec.Containers = []corev1.Container{{Name: "all", Resources: corev1.ResourceRequirements{
					Requests: lo.OmitByKeys(requests, []corev1.ResourceName{corev1.ResourcePods}),
				}}}
			}
			pods, standsFor[pod.UID] = append(pods, pod), all
		}
	}
	return pods, standsFor
}

// certain reports whether it is certain to which node each pod comes that has an identity: replicas are all for one node, or each of them for another
// one because they share none.
func (p *Proposal) certain() bool {
	nodes, pods := map[identity]int{}, map[identity][]*corev1.Pod{}
	for _, node := range append(slices.Clip(p.New), p.held...) {
		for id, replicas := range lo.GroupBy(node.pods, identityOf) {
			nodes[id], pods[id] = nodes[id]+1, append(pods[id], replicas...)
		}
	}
	return lo.EveryBy(lo.Keys(nodes), func(id identity) bool {
		most := onNodes(pods[id][0])
		return !id.known() || nodes[id] == 1 || len(most) > 0 && lo.Max(most) <= 1 && nodes[id] == len(pods[id])
	})
}

// onNodes are the limits of a pod for how many of some pods share its node: required anti-affinity, spreading over nodes, and ports of the host.
func onNodes(pod *corev1.Pod) (most []int) {
	if lo.SomeBy(pod.Spec.Containers, func(c corev1.Container) bool {
		return lo.SomeBy(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}) {
		most = append(most, 1)
	}
	for _, term := range sim.AntiAffinity(pod) {
		if term.TopologyKey == corev1.LabelHostname {
			most = append(most, lo.Ternary(sim.Selects(pod.Namespace, term, pod), 1, 0))
		}
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if spread.TopologyKey == corev1.LabelHostname && spread.WhenUnsatisfiable == corev1.DoNotSchedule {
			most = append(most, int(spread.MaxSkew))
		}
	}
	return most
}

// trial is a copy of the cluster under core's consolidation.
func (s *search) trial(ctx context.Context, seed uint64) (*sim.Simulation, error) {
	simulation, err := sim.New(ctx, s.cloud, s.objects)
	if err != nil {
		return nil, err
	}
	return simulation, simulation.Trial(ctx, seed)
}

// confirm tries an exchange, and returns what all nodes cost afterwards in the worst trial, in VND per hour: infinite if a pod was evicted twice or
// fits nowhere.
func (s *search) confirm(ctx context.Context, p *Proposal) (worst float64, err error) {
	for seed := range uint64(trials) {
		t, err := s.trial(ctx, seed)
		if err != nil {
			return 0, err
		}
		switch err := s.try(ctx, t, p); {
		case errors.Is(err, sim.ErrNoPlace), err == nil && lo.ContainsBy(lo.Values(t.Moved), func(times int) bool { return times > 1 }):
			return math.Inf(1), nil
		case err != nil:
			return 0, fmt.Errorf("trying an exchange: %w", err)
		}
		_, after, err := t.Nodes(ctx)
		if err != nil {
			return 0, err
		}
		worst = max(worst, after)
	}
	return worst, nil
}

// try adds the nodes and the pods that hold nodes, and lets core consolidate, with these pods and then without them.
func (s *search) try(ctx context.Context, t *sim.Simulation, p *Proposal) error {
	run := func(node string, pod *corev1.Pod) error {
		pod.Namespace, pod.Name, pod.Labels = metav1.NamespaceDefault, "hold-"+node, map[string]string{HoldLabel: "trial"}
		return t.RunPod(ctx, pod, node)
	}
	hold := func(node string, pods []*corev1.Pod) error {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: p.rejecting(pods)}}
		pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		return run(node, pod)
	}
	for _, node := range p.New {
		claim := node.claim.DeepCopy()
		if err := t.Objects.Create(ctx, claim); err != nil {
			return err
		}
		if err := t.Join(ctx, claim.Name, s.daemons); err != nil {
			return err
		}
		if err := hold(claim.Name, node.pods); err != nil {
			return err
		}
	}
	for _, node := range p.held {
		if err := hold(node.Name, node.pods); err != nil {
			return err
		}
	}
	for _, node := range p.Replaced {
		gate := &corev1.Pod{Spec: corev1.PodSpec{Affinity: p.rejectingAll()}}
		gate.OwnerReferences = []metav1.OwnerReference{ownedBy(node.node)}
		if err := run(node.Name, gate); err != nil {
			return err
		}
	}
	if err := t.Rest(ctx); err != nil {
		return err
	}
	t.EndPods(func(pod *corev1.Pod) bool { return pod.Labels[HoldLabel] != "" })
	return t.Rest(ctx)
}
