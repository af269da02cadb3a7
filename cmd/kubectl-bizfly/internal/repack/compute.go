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
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	corescheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
)

// attempts is how many packings are tried at most, the one that saves most first.
const attempts = 6

// searches is how many packings are searched for, each with another seed: a single one may miss a packing that fits exactly.
const searches = 4

// computation is one proposal in the making.
type computation struct {
	session *session.Session
	cloud   *session.Cloud
	objects memory.Objects
	pool    *karpv1.NodePool
	options Options

	template *scheduling.NodeClaimTemplate
	types    map[string]*corecloudprovider.InstanceType
	// nodes are those of all NodePools that have pods, and own those of the NodePool.
	nodes, own []*plan.Managed
	// daemons is what DaemonSets request on a node at most.
	daemons corev1.ResourceList
}

// exchange is some nodes by some others.
type exchange struct {
	replaced []*plan.Managed
	added    []addition
	// onto are the pods that come to nodes which stay.
	onto map[*plan.Managed][]*corev1.Pod
	// saves is in VND per hour.
	saves float64
}

// addition is a new node with the pods that come there.
type addition struct {
	bin  packing.Bin
	pods []*corev1.Pod
}

// moving are the pods that move.
func (e exchange) moving() []*corev1.Pod {
	return lo.FlatMap(e.replaced, func(m *plan.Managed, _ int) []*corev1.Pod { return m.Pods })
}

// certain reports whether it is certain to which node each pod comes that has an identity: replicas are all for one node, or each of them for another
// one because they share none.
func (e exchange) certain() bool {
	nodes, pods, apart := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, planned := range append(lo.Map(e.added, func(a addition, _ int) []*corev1.Pod { return a.pods }), lo.Values(e.onto)...) {
		for name, replicas := range lo.GroupBy(planned, nameOf) {
			nodes[name], pods[name] = nodes[name]+1, pods[name]+len(replicas)
			apart[name] = lo.EveryBy(constraintsOf(replicas[0]), func(c constraint) bool { return c.most <= 1 }) && len(constraintsOf(replicas[0])) > 0
		}
	}
	return lo.EveryBy(lo.Keys(nodes), func(name string) bool {
		return name == "" || nodes[name] == 1 || apart[name] && nodes[name] == pods[name]
	})
}

// key names an exchange.
func (e exchange) key() string {
	return fmt.Sprint(lo.Map(e.replaced, func(m *plan.Managed, _ int) string { return m.Node.Name }),
		lo.Map(e.added, func(a addition, _ int) string { return fmt.Sprint(a.bin.Name, a.bin.Zone, names(a.pods)) }))
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
	c.nodes = lo.Filter(c.nodes, func(m *plan.Managed, _ int) bool { return len(m.Pods) > 0 })
	c.own = lo.Filter(c.nodes, func(m *plan.Managed, _ int) bool { return m.Claim.Labels[karpv1.NodePoolLabelKey] == c.pool.Name })
	if len(c.own) == 0 {
		p.Reason = "the NodePool has no nodes with pods that could move"
		return nil
	}
	for _, m := range c.own {
		p.VNDPerHour += m.VNDPerHour
		c.daemons = resources.MaxResources(c.daemons, m.Daemons)
	}
	p.Nodes, p.NodesAfter, p.VNDPerHourAfter, p.Notes = len(c.own), len(c.own), p.VNDPerHour, current.Notes
	if err := c.readTypes(ctx, current); err != nil {
		return err
	}
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
	enough := lo.Filter(c.exchanges(ctx), func(e exchange, _ int) bool { return all-e.saves <= target })
	for _, found := range lo.Slice(enough, 0, attempts) {
		after, err := c.confirm(ctx, found)
		if err != nil {
			return err
		}
		if after <= target {
			c.fill(p, found, all-after)
			return nil
		}
	}
	p.Reason = fmt.Sprintf("no packing was found that saves %.0f %% of the NodePool's bill and that Karpenter's scheduler confirms", 100*MinSaving)
	return nil
}

// readTypes reads the flavors of the NodePool.
func (c *computation) readTypes(ctx context.Context, t *plan.Simulation) error {
	pool := &karpv1.NodePool{}
	if err := t.Objects.Get(ctx, client.ObjectKey{Name: c.pool.Name}, pool); err != nil {
		return err
	}
	instanceTypes, err := t.Provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return err
	}
	c.template = scheduling.NewNodeClaimTemplate(c.pool)
	c.types = lo.KeyBy(lo.Filter(instanceTypes, func(it *corecloudprovider.InstanceType, _ int) bool {
		return it.Requirements.Intersects(c.template.Requirements) == nil
	}), func(it *corecloudprovider.InstanceType) string { return it.Name })
	return nil
}

// exchanges are those of several packings, the one that saves most first; of those that save the same, the one that moves fewest pods.
func (c *computation) exchanges(ctx context.Context) []exchange {
	var all []exchange
	for seed := range uint64(searches) {
		each := c.exchange(ctx, seed, nil)
		all = append(all, each, c.exchange(ctx, seed, func(m *plan.Managed) bool { return lo.Contains(each.replaced, m) }),
			c.exchange(ctx, seed, func(*plan.Managed) bool { return true }))
	}
	all = lo.UniqBy(lo.Filter(all, func(e exchange, _ int) bool { return len(e.added) > 0 && e.certain() }), exchange.key)
	slices.SortStableFunc(all, func(a, b exchange) int {
		return cmp.Or(cmp.Compare(b.saves, a.saves), cmp.Compare(len(a.moving()), len(b.moving())))
	})
	return all
}

// exchange is that of the best packing that is found.
func (c *computation) exchange(ctx context.Context, seed uint64, replace func(*plan.Managed) bool) exchange {
	bins := c.bins()
	in := c.problem(bins, replace)
	found := packing.Best(ctx, in.items, bins, packing.Options{
		Seed: c.options.Seed + seed, Iterations: c.options.Iterations, Existing: in.existing,
		// Of packings that cost the same, the one that moves fewer pods.
		ReplaceVNDPerHour: 0.001 * c.own[0].VNDPerHour,
	})
	if len(found.Unplaced) > 0 {
		return exchange{}
	}
	return c.within(c.parts(in, found))
}

// parts are the exchanges that a packing consists of: nodes whose pods share a new node are replaced together.
func (c *computation) parts(in problem, found *packing.Packing) []*exchange {
	kept, home, groups := map[*plan.Managed]bool{}, map[*corev1.Pod]*plan.Managed{}, map[*plan.Managed]*exchange{}
	for _, node := range found.Nodes {
		if node.Existing >= 0 {
			kept[in.nodes[node.Existing]] = true
		}
	}
	for _, m := range c.own {
		for _, pod := range m.Pods {
			home[pod] = m
		}
		if !kept[m] {
			groups[m] = &exchange{replaced: []*plan.Managed{m}, saves: m.VNDPerHour, onto: map[*plan.Managed][]*corev1.Pod{}}
		}
	}
	for _, node := range found.Nodes {
		pods := lo.FlatMap(node.Items, func(i, _ int) []*corev1.Pod { return in.pods[i] })
		if node.Existing >= 0 {
			m := in.nodes[node.Existing]
			for _, pod := range pods {
				if from := groups[home[pod]]; from != nil {
					from.onto[m] = append(from.onto[m], pod)
				}
			}
			continue
		}
		into := groups[home[pods[0]]]
		for _, pod := range pods {
			if from := groups[home[pod]]; from != into {
				into.join(from)
				for _, m := range from.replaced {
					groups[m] = into
				}
			}
		}
		into.added, into.saves = append(into.added, addition{node.Bin, pods}), into.saves-node.Bin.VNDPerHour
	}
	return lo.Uniq(lo.FilterMap(c.own, func(m *plan.Managed, _ int) (*exchange, bool) { return groups[m], groups[m] != nil }))
}

// join adds another exchange.
func (e *exchange) join(other *exchange) {
	e.replaced, e.added, e.saves = append(e.replaced, other.replaced...), append(e.added, other.added...), e.saves+other.saves
	for m, pods := range other.onto {
		e.onto[m] = append(e.onto[m], pods...)
	}
}

// within joins the parts that save something, the one that saves most first, as far as the limits of the NodePool allow it.
func (c *computation) within(parts []*exchange) exchange {
	slices.SortStableFunc(parts, func(a, b *exchange) int { return cmp.Compare(b.saves, a.saves) })
	claims := memory.Of[*karpv1.NodeClaim](c.objects)
	sum := exchange{onto: map[*plan.Managed][]*corev1.Pod{}}
	for _, part := range parts {
		if part.saves > 0 && exceeds(c.pool, claims, c.capacity(append(slices.Clip(sum.added), part.added...))) == nil {
			sum.join(part)
		}
	}
	slices.SortFunc(sum.replaced, func(a, b *plan.Managed) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return sum
}

// capacity is what nodes count for in limits.
func (c *computation) capacity(nodes []addition) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, node := range nodes {
		total = resources.Merge(total, c.types[node.bin.Name].Capacity, corev1.ResourceList{resources.Node: resource.MustParse("1")})
	}
	return total
}

// held are the nodes that stay, of all NodePools: what leaves them would take the new nodes from the pods that these are for.
func (c *computation) held(found exchange) []*plan.Managed {
	return lo.Reject(c.nodes, func(m *plan.Managed, _ int) bool { return lo.Contains(found.replaced, m) })
}

// claim is the NodeClaim that core's provisioner would create, narrowed to one flavor in one zone.
func (c *computation) claim(node addition) *karpv1.NodeClaim {
	template := scheduling.NewNodeClaimTemplate(c.pool)
	template.InstanceTypeOptions = corecloudprovider.InstanceTypes{c.types[node.bin.Name]}
	template.Requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, node.bin.Zone))
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
		p.New = append(p.New, Node{Flavor: node.bin.Name, Zone: node.bin.Zone, VNDPerHour: node.bin.VNDPerHour, Pods: names(node.pods)})
	}
	for _, m := range c.held(found) {
		p.held, p.Held = append(p.held, kept{m.Node, rejected(moving, found.onto[m])}), append(p.Held, m.Node.Name)
	}
	p.Budgets = budgetsOf(memory.Of[*policyv1.PodDisruptionBudget](c.objects), moving)
	p.capacity = c.capacity(found.added)
	p.NodesAfter = p.Nodes - len(p.Replaced) + len(p.New)
	p.VNDPerHourAfter = p.VNDPerHour - saves
	p.SavesVNDPerMonth = saves * plan.HoursPerMonth
	p.Disruptions = min(c.pool.MustGetAllowedDisruptions(clock.RealClock{}, len(c.own)+len(p.New), karpv1.DisruptionReasonUnderutilized), len(p.Replaced))
}

func names(pods []*corev1.Pod) []string {
	return lo.Map(pods, func(pod *corev1.Pod, _ int) string { return pod.Namespace + "/" + pod.Name })
}
