// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
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

// attempts is how many exchanges are tried at most, the one that saves most first.
const attempts = 6

// computation is one proposal in the making.
type computation struct {
	session *connect.Session
	cloud   *connect.Cloud
	objects memory.Objects
	pool    *karpv1.NodePool
	options Options

	types map[string]*corecloudprovider.InstanceType
	// nodes are those of all NodePools that have pods, and own those of the NodePool.
	nodes, own []*sim.Managed
	// daemons is what DaemonSets request on a node at most.
	daemons corev1.ResourceList
}

// exchange is some nodes by some others.
type exchange struct {
	replaced []*sim.Managed
	added    []addition
	// onto are the pods that come to nodes which stay, by the node's name.
	onto map[string][]*corev1.Pod
	// saves is in VND per hour.
	saves float64
}

// addition is a new node with the pods that come there.
type addition struct {
	flavor, zone string
	vndPerHour   float64
	pods         []*corev1.Pod
}

// moving are the pods that move.
func (e exchange) moving() []*corev1.Pod {
	return lo.FlatMap(e.replaced, func(m *sim.Managed, _ int) []*corev1.Pod { return m.Pods })
}

// certain reports whether it is certain to which node each pod comes that has an identity: replicas are all for one node, or each of them for another
// one because they share none.
func (e exchange) certain() bool {
	nodes, pods, apart := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, planned := range append(lo.Map(e.added, func(a addition, _ int) []*corev1.Pod { return a.pods }), lo.Values(e.onto)...) {
		for name, replicas := range lo.GroupBy(planned, nameOf) {
			nodes[name], pods[name] = nodes[name]+1, pods[name]+len(replicas)
			apart[name] = keepsApart(replicas[0])
		}
	}
	return lo.EveryBy(lo.Keys(nodes), func(name string) bool {
		return name == "" || nodes[name] == 1 || apart[name] && nodes[name] == pods[name]
	})
}

// propose fills a proposal.
func (c *computation) propose(ctx context.Context, p *Proposal) error {
	current, err := c.trial(ctx, 0)
	if err != nil {
		return err
	}
	if c.nodes, err = current.Managed(ctx); err != nil {
		return err
	}
	c.nodes = lo.Filter(c.nodes, func(m *sim.Managed, _ int) bool { return len(m.Pods) > 0 })
	c.own = lo.Filter(c.nodes, func(m *sim.Managed, _ int) bool { return m.Claim.Labels[karpv1.NodePoolLabelKey] == c.pool.Name })
	if len(c.own) == 0 {
		p.Reason = "the NodePool has no nodes with pods that could move"
		return nil
	}
	for _, m := range c.own {
		p.VNDPerHour += m.VNDPerHour
		c.daemons = resources.MaxResources(c.daemons, m.Daemons)
	}
	p.Nodes, p.NodesAfter, p.VNDPerHourAfter, p.Notes = len(c.own), len(c.own), p.VNDPerHour, current.Notes
	flavors, err := current.FlavorsOf(ctx, c.pool)
	if err != nil {
		return err
	}
	c.types = lo.KeyBy(flavors, func(it *corecloudprovider.InstanceType) string { return it.Name })
	_, all, err := current.Nodes(ctx)
	if err != nil {
		return err
	}
	// What core comes to alone needs no repack.
	if err := current.Rest(ctx); err != nil {
		return fmt.Errorf("trying what Karpenter does alone: %w", err)
	}
	_, alone, err := current.Nodes(ctx)
	if err != nil {
		return err
	}
	target := min(all, alone) - MinSaving*p.VNDPerHour
	found, err := c.exchanges(ctx, all-target)
	if err != nil {
		return err
	}
	for _, e := range lo.Slice(found, 0, attempts) {
		after, err := c.confirm(ctx, e)
		if err != nil {
			return err
		}
		if after <= target {
			c.fill(p, e, all-after)
			return nil
		}
	}
	p.Reason = fmt.Sprintf("no exchange of nodes was found that saves %.0f %% of the NodePool's bill and that Karpenter's scheduler confirms", 100*MinSaving)
	return nil
}

// exchanges are what core's scheduler wants in place of some of the nodes, with flavors up to each size, the one that saves most first; of those
// that save the same, the one that moves fewest pods.
func (c *computation) exchanges(ctx context.Context, least float64) ([]exchange, error) {
	sizes := lo.Uniq(lo.MapToSlice(c.types, func(_ string, it *corecloudprovider.InstanceType) int64 { return it.Capacity.Cpu().Value() }))
	slices.Sort(sizes)
	var all []exchange
	for _, replaced := range c.sets() {
		if lo.SumBy(replaced, func(m *sim.Managed) float64 { return m.VNDPerHour }) < least {
			continue
		}
		for _, size := range sizes {
			e, err := c.exchange(ctx, replaced, size)
			if err != nil {
				return nil, err
			}
			if e != nil && e.saves >= least && len(e.added) > 0 && e.certain() &&
				exceeds(c.pool, memory.Of[*karpv1.NodeClaim](c.objects), c.capacity(e.added)) == nil {
				all = append(all, *e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b exchange) int {
		return cmp.Or(cmp.Compare(b.saves, a.saves), cmp.Compare(len(a.moving()), len(b.moving())))
	})
	return all, nil
}

// sets are the sets of nodes that are tried: those that waste most, more and more of them, and each alone.
func (c *computation) sets() [][]*sim.Managed {
	movable := lo.Filter(c.own, func(m *sim.Managed, _ int) bool {
		return m.Disruptable && !lo.ContainsBy(m.Pods, func(pod *corev1.Pod) bool { return pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil })
	})
	waste := func(m *sim.Managed) float64 {
		requested, used := resources.Merge(m.Daemons, resources.RequestsForPods(m.Pods...)), 0.0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			part, total := requested[name], m.Node.Status.Allocatable[name]
			used += part.AsApproximateFloat64() / max(total.AsApproximateFloat64(), 1) / 2
		}
		return m.VNDPerHour * (1 - used)
	}
	slices.SortStableFunc(movable, func(a, b *sim.Managed) int { return cmp.Compare(waste(b), waste(a)) })
	var sets [][]*sim.Managed
	for i := range movable {
		if i > 0 {
			sets = append(sets, movable[:i+1])
		}
		sets = append(sets, movable[i:i+1])
	}
	if len(sets) > maxSets {
		step := float64(len(sets)) / maxSets
		sets = lo.Times(maxSets, func(i int) []*sim.Managed { return sets[len(sets)-1-int(float64(i)*step)] })
	}
	return sets
}

// maxSets is how many sets of nodes are tried.
const maxSets = 24

// exchange lets core's scheduler place the pods of some nodes as if these did not exist. It is nil where a pod finds no place.
func (c *computation) exchange(ctx context.Context, replaced []*sim.Managed, size int64) (*exchange, error) {
	pool := c.pool.DeepCopy()
	pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
		Key: v1alpha1.LabelInstanceCPU, Operator: karpv1.NodeSelectorOpLte, Values: []string{fmt.Sprint(size)},
	})
	waiting, originals := c.waiting(replaced, size)
	gone := lo.SliceToMap(c.own, func(m *sim.Managed) (string, bool) { return m.Claim.Name, lo.Contains(replaced, m) })
	nodes := lo.SliceToMap(replaced, func(m *sim.Managed) (string, bool) { return m.Node.Name, true })
	rest := lo.Reject(c.objects, func(object client.Object, _ int) bool {
		switch o := object.(type) {
		case *karpv1.NodeClaim:
			return gone[o.Name]
		case *corev1.Node:
			return nodes[o.Name]
		case *corev1.Pod:
			return nodes[o.Spec.NodeName]
		}
		return false
	})
	simulation, err := sim.New(ctx, c.cloud, append(rest, waiting...).With(pool))
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
	e := &exchange{replaced: replaced, onto: map[string][]*corev1.Pod{}, saves: lo.SumBy(replaced, func(m *sim.Managed) float64 { return m.VNDPerHour })}
	for _, m := range after {
		pods := lo.FlatMap(m.Pods, func(pod *corev1.Pod, _ int) []*corev1.Pod { return originals[pod.UID] })
		switch _, existed := gone[m.Claim.Name]; {
		case len(pods) == 0:
		case existed || lo.ContainsBy(c.nodes, func(n *sim.Managed) bool { return n.Claim.Name == m.Claim.Name }):
			e.onto[m.Node.Name] = pods
		default:
			if int64(len(pods))+c.daemons.Pods().Value()+ours > m.Node.Status.Allocatable.Pods().Value() {
				return nil, nil
			}
			e.added = append(e.added, addition{m.Node.Labels[corev1.LabelInstanceTypeStable], m.Node.Labels[corev1.LabelTopologyZone], m.VNDPerHour, pods})
			e.saves -= m.VNDPerHour
		}
	}
	return e, nil
}

// ours is how many pods of a repack a node has at most.
const ours = 3

// waiting are the pods of nodes as if they waited, in their zone where they are bound to it. Replicas are one pod where a node of the size holds it:
// they come to one node, so that nothing depends on how the kube-scheduler divides them among several.
func (c *computation) waiting(replaced []*sim.Managed, size int64) (pods memory.Objects, originals map[types.UID][]*corev1.Pod) {
	originals = map[types.UID][]*corev1.Pod{}
	together := map[string]*corev1.Pod{}
	for _, m := range replaced {
		for _, original := range m.Pods {
			key := ""
			if !sim.StaysInZone(original) && !constrained(original) {
				key = nameOf(original)
			}
			if joined := together[key]; key != "" && joined != nil {
				all := append(slices.Clip(originals[joined.UID]), original)
				if requests := resources.RequestsForPods(all...); requests.Cpu().Value() <= size {
					requests = lo.OmitByKeys(requests, []corev1.ResourceName{corev1.ResourcePods})
					joined.Spec.InitContainers, joined.Spec.Overhead, joined.Spec.Resources = nil, nil, nil
					joined.Spec.Containers = []corev1.Container{{Name: "all", Resources: corev1.ResourceRequirements{Requests: requests}}}
					originals[joined.UID] = all
					continue
				}
			}
			pod := original.DeepCopy()
			input.Unbind(pod)
			if sim.StaysInZone(original) {
				pod.Spec.NodeSelector = lo.Assign(pod.Spec.NodeSelector, map[string]string{corev1.LabelTopologyZone: m.Node.Labels[corev1.LabelTopologyZone]})
			}
			together[key], originals[pod.UID] = pod, []*corev1.Pod{original}
			pods = append(pods, pod)
		}
	}
	return pods, originals
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

func constrained(pod *corev1.Pod) bool { return len(onNodes(pod)) > 0 }

// keepsApart reports whether no two replicas of a pod share a node.
func keepsApart(pod *corev1.Pod) bool {
	return constrained(pod) && lo.EveryBy(onNodes(pod), func(most int) bool { return most <= 1 })
}

// capacity is what nodes count for in limits.
func (c *computation) capacity(nodes []addition) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, node := range nodes {
		total = resources.Merge(total, c.types[node.flavor].Capacity, corev1.ResourceList{resources.Node: resource.MustParse("1")})
	}
	return total
}

// held are the nodes that stay, of all NodePools: what leaves them would take the new nodes from the pods that these are for.
func (c *computation) held(found exchange) []*sim.Managed {
	return lo.Reject(c.nodes, func(m *sim.Managed, _ int) bool { return lo.Contains(found.replaced, m) })
}

// claim is the NodeClaim that core's provisioner would create, narrowed to one flavor in one zone.
func (c *computation) claim(node addition) *karpv1.NodeClaim {
	template := scheduling.NewNodeClaimTemplate(c.pool)
	template.InstanceTypeOptions = corecloudprovider.InstanceTypes{c.types[node.flavor]}
	template.Requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, node.zone))
	claim := template.ToNodeClaim()
	claim.Spec.Resources.Requests = resources.Merge(c.daemons, resources.RequestsForPods(node.pods...))
	return claim
}

// fill writes a confirmed exchange into the proposal.
func (c *computation) fill(p *Proposal, found exchange, saves float64) {
	moving := found.moving()
	p.run, p.namespaces = rand.String(6), namespacesOf(moving)
	for _, m := range found.replaced {
		p.Replaced = append(p.Replaced, Node{
			Name: m.Node.Name, NodeClaim: m.Claim.Name, Flavor: m.Node.Labels[corev1.LabelInstanceTypeStable], Zone: m.Node.Labels[corev1.LabelTopologyZone],
			VNDPerHour: m.VNDPerHour, Pods: names(m.Pods),
		})
		p.leaving = append(p.leaving, m.Node)
	}
	for i, node := range found.added {
		claim := c.claim(node)
		claim.Labels = lo.Assign(claim.Labels, map[string]string{RunLabel: p.run, NodeLabel: fmt.Sprintf("%s-%d", p.run, i+1)})
		p.added = append(p.added, added{claim, rejected(moving, node.pods)})
		p.New = append(p.New, Node{Flavor: node.flavor, Zone: node.zone, VNDPerHour: node.vndPerHour, Pods: names(node.pods)})
	}
	for _, m := range c.held(found) {
		p.held, p.Held = append(p.held, kept{m.Node, rejected(moving, found.onto[m.Node.Name])}), append(p.Held, m.Node.Name)
	}
	p.Budgets = budgetsOf(memory.Of[*policyv1.PodDisruptionBudget](c.objects), moving)
	p.capacity = c.capacity(found.added)
	p.NodesAfter = p.Nodes - len(p.Replaced) + len(p.New)
	p.VNDPerHourAfter = p.VNDPerHour - saves
	p.SavesVNDPerMonth = saves * price.HoursPerMonth
	p.Disruptions = min(c.pool.MustGetAllowedDisruptions(clock.RealClock{}, len(c.own)+len(p.New), karpv1.DisruptionReasonUnderutilized), len(p.Replaced))
}

func names(pods []*corev1.Pod) []string {
	return lo.Map(pods, func(pod *corev1.Pod, _ int) string { return pod.Namespace + "/" + pod.Name })
}
