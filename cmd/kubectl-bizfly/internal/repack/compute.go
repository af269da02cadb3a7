// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// trials is how many random orders of evictions a packing must survive.
const trials = 3

// headrooms are the parts of new nodes that a packing leaves free, and counts what each new node counts beside its price, in parts of the mean price of
// a node. The kube-scheduler fills nodes in an order of its own: a packing without a gap, or of many small nodes, may have none for the last pod.
var (
	headrooms = []float64{0, 0.03, 0.08}
	counts    = []float64{0, 0.03, 0.1}
)

// rounds is how many times what a trial comes to is tried itself.
const rounds = 3

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
	added    []packing.Node
	saves    float64
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
	best, after := exchange{}, min(all, alone)-MinSaving*p.VNDPerHour
	for _, found := range c.exchanges(ctx) {
		for range rounds {
			if all-found.saves > after || len(found.added) == 0 {
				break
			}
			result, err := c.confirm(ctx, found)
			if err != nil {
				return err
			}
			if result.worst <= after {
				best, after = found, result.worst
				break
			}
			// Where the trial has come to other nodes than were added, these may be reached at once.
			if found = result.instead; len(found.replaced) == 0 {
				break
			}
		}
	}
	if len(best.replaced) == 0 {
		p.Reason = fmt.Sprintf("no packing was found that saves %.0f %% of the NodePool's bill and that Karpenter's scheduler confirms", 100*MinSaving)
		return nil
	}
	c.fill(p, best, all-after)
	return nil
}

// readTypes reads the flavors of the NodePool.
func (c *computation) readTypes(ctx context.Context, t *plan.Trial) error {
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

// exchanges are those of several packings, the one that saves most first.
func (c *computation) exchanges(ctx context.Context) []exchange {
	var all []exchange
	mean := lo.SumBy(c.own, func(m *plan.Managed) float64 { return m.VNDPerHour }) / float64(max(len(c.own), 1))
	for _, headroom := range headrooms {
		for _, each := range counts {
			all = append(all, c.exchange(ctx, headroom, each*mean)...)
		}
	}
	all = lo.UniqBy(lo.Filter(all, func(e exchange, _ int) bool { return len(e.replaced) > 0 }), func(e exchange) string {
		return fmt.Sprint(lo.Map(e.replaced, func(m *plan.Managed, _ int) string { return m.Node.Name }),
			lo.Map(e.added, func(n packing.Node, _ int) string { return n.Bin.Name + n.Bin.Zone }))
	})
	slices.SortStableFunc(all, func(a, b exchange) int { return cmp.Compare(b.saves, a.saves) })
	return all
}

// exchange searches the best packing, and returns what of it pays and keeps the limits of the NodePool: all of it, and its parts.
func (c *computation) exchange(ctx context.Context, headroom, each float64) []exchange {
	bins := c.bins(headroom)
	items, existing := c.items(bins, headroom)
	best := packing.Best(ctx, items, bins, packing.Options{
		Seed: c.options.Seed, Iterations: c.options.Iterations, Time: c.options.Time, Existing: existing, NodeVNDPerHour: each,
		// Of packings that cost the same, the one that moves fewer pods.
		ReplaceVNDPerHour: 0.001 * c.own[0].VNDPerHour,
	})
	kept := map[int]bool{}
	home := map[int]*plan.Managed{}
	for _, node := range best.Nodes {
		kept[node.Existing] = true
	}
	for e := range existing {
		for _, i := range existing[e].Items {
			home[i] = c.own[e]
		}
	}
	// Nodes that share pods are replaced together.
	groups := map[*plan.Managed]*exchange{}
	for e, m := range c.own {
		if !kept[e] {
			groups[m] = &exchange{replaced: []*plan.Managed{m}, saves: m.VNDPerHour}
		}
	}
	for _, node := range best.Nodes {
		if node.Existing >= 0 {
			continue
		}
		into := groups[home[node.Items[0]]]
		for _, i := range node.Items {
			if from := groups[home[i]]; from != into {
				into.replaced = append(into.replaced, from.replaced...)
				into.added, into.saves = append(into.added, from.added...), into.saves+from.saves
				for _, m := range from.replaced {
					groups[m] = into
				}
			}
		}
		into.added, into.saves = append(into.added, node), into.saves-node.Bin.VNDPerHour
	}
	parts := lo.Uniq(lo.Values(groups))
	slices.SortFunc(parts, func(a, b *exchange) int {
		return cmp.Or(cmp.Compare(b.saves, a.saves), cmp.Compare(a.replaced[0].Node.Name, b.replaced[0].Node.Name))
	})
	claims := memory.Of[*karpv1.NodeClaim](c.objects)
	var sum exchange
	var chosen []exchange
	for _, part := range parts {
		with := append(slices.Clip(sum.added), part.added...)
		if part.saves <= 0 || exceeds(c.pool, claims, c.capacity(with)) != nil {
			continue
		}
		chosen = append(chosen, *part)
		sum.replaced, sum.added, sum.saves = append(sum.replaced, part.replaced...), with, sum.saves+part.saves
	}
	slices.SortFunc(sum.replaced, func(a, b *plan.Managed) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return append(chosen, sum)
}

// capacity is what nodes count for in limits.
func (c *computation) capacity(nodes []packing.Node) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, node := range nodes {
		total = resources.Merge(total, c.types[node.Bin.Name].Capacity, corev1.ResourceList{resources.Node: resource.MustParse("1")})
	}
	return total
}

// bins are what the NodePool can launch now.
func (c *computation) bins(headroom float64) []packing.Bin {
	var bins []packing.Bin
	for _, name := range slices.Sorted(maps.Keys(c.types)) {
		it := c.types[name]
		for _, offering := range it.Offerings.Available().Compatible(c.template.Requirements) {
			bins = append(bins, packing.Bin{
				Name: name, Zone: offering.Zone(), VNDPerHour: offering.Price, Allocatable: c.free(it.Allocatable(), c.daemons, headroom),
			})
		}
	}
	return bins
}

// free is what is left of allocatable for pods: without DaemonSets, the pod that holds the node, and the headroom.
func (c *computation) free(allocatable, daemons corev1.ResourceList, headroom float64) corev1.ResourceList {
	left := resources.Subtract(allocatable, daemons)
	left[corev1.ResourcePods] = *resource.NewQuantity(allocatable.Pods().Value()-daemons.Pods().Value()-1, resource.DecimalSI)
	left[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(float64(left.Cpu().MilliValue())*(1-headroom)), resource.DecimalSI)
	left[corev1.ResourceMemory] = *resource.NewQuantity(int64(float64(left.Memory().Value())*(1-headroom)), resource.BinarySI)
	return left
}

// items are the pods of the NodePool's nodes, and where they are. Pods that core may not evict, or that must run beside others, stay.
func (c *computation) items(bins []packing.Bin, headroom float64) (items []packing.Item, existing []packing.Existing) {
	all := lo.FlatMap(c.own, func(m *plan.Managed, _ int) []*corev1.Pod { return m.Pods })
	groups := newGroups(all)
	kinds := map[[2]string]corescheduling.Requirements{}
	for _, bin := range bins {
		requirements := corescheduling.NewRequirements(c.template.Requirements.Values()...)
		requirements.Add(c.types[bin.Name].Requirements.Values()...)
		requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, bin.Zone))
		kinds[[2]string{bin.Name, bin.Zone}] = requirements
	}
	for _, m := range c.own {
		zone := m.Node.Labels[corev1.LabelTopologyZone]
		e := packing.Existing{Bin: packing.Bin{Name: m.Node.Labels[corev1.LabelInstanceTypeStable], Zone: zone, VNDPerHour: m.VNDPerHour}}
		if m.Disruptable {
			e.Bin.Allocatable = c.free(m.Node.Status.Allocatable, m.Daemons, headroom)
		}
		for _, pod := range m.Pods {
			wanted := corescheduling.NewStrictPodRequirements(pod)
			stays := !m.Disruptable || pod.Spec.Affinity != nil && pod.Spec.Affinity.PodAffinity != nil
			item := groups.item(pod)
			item.Allowed = func(bin packing.Bin) bool {
				kind, known := kinds[[2]string{bin.Name, bin.Zone}]
				return known && !stays && (bin.Zone == zone || !plan.StaysInZone(pod)) && kind.Compatible(wanted, corescheduling.AllowUndefinedWellKnownLabels) == nil
			}
			e.Items = append(e.Items, len(items))
			items = append(items, item)
		}
		existing = append(existing, e)
	}
	return items, existing
}

// trial is a copy of the cluster under core's consolidation.
func (c *computation) trial(ctx context.Context, seed uint64) (*plan.Trial, error) {
	simulation, err := plan.NewSimulation(ctx, c.cloud, c.objects, nil)
	if err != nil {
		return nil, err
	}
	return simulation.Trial(ctx, seed)
}

// confirmation is what trials of an exchange come to.
type confirmation struct {
	// worst is what all nodes cost afterwards in the worst trial, in VND per hour; infinite if a pod was evicted twice or fits nowhere.
	worst float64
	// instead is the exchange that a trial has come to.
	instead exchange
}

// confirm tries an exchange.
func (c *computation) confirm(ctx context.Context, found exchange) (confirmation, error) {
	var result confirmation
	for seed := range uint64(trials) {
		t, err := c.trial(ctx, c.options.Seed+seed)
		if err != nil {
			return result, err
		}
		if err := c.carryOut(ctx, t, found); errors.Is(err, plan.ErrNoPlace) {
			return confirmation{worst: math.Inf(1)}, nil
		} else if err != nil {
			return result, fmt.Errorf("trying a packing: %w", err)
		}
		_, price, err := t.Nodes(ctx)
		if err != nil {
			return result, err
		}
		result.worst = max(result.worst, price)
		if lo.ContainsBy(lo.Values(t.Moved), func(times int) bool { return times > 1 }) {
			instead, err := c.cameTo(ctx, t)
			return confirmation{math.Inf(1), instead}, err
		}
	}
	return result, nil
}

// cameTo is the exchange of the nodes that are gone at the end of a trial by those that are new there.
func (c *computation) cameTo(ctx context.Context, t *plan.Trial) (exchange, error) {
	nodes, err := t.Managed(ctx)
	if err != nil {
		return exchange{}, err
	}
	at := map[types.UID]int{}
	for _, m := range c.own {
		for _, pod := range m.Pods {
			at[pod.UID] = len(at)
		}
	}
	left := lo.KeyBy(nodes, func(m *plan.Managed) string { return m.Claim.Name })
	var sum exchange
	for _, m := range c.own {
		if left[m.Claim.Name] == nil {
			sum.replaced, sum.saves = append(sum.replaced, m), sum.saves+m.VNDPerHour
		}
	}
	known := lo.KeyBy(c.nodes, func(m *plan.Managed) string { return m.Claim.Name })
	for _, m := range nodes {
		flavor := m.Node.Labels[corev1.LabelInstanceTypeStable]
		if known[m.Claim.Name] != nil || len(m.Pods) == 0 {
			continue
		}
		if m.Claim.Labels[karpv1.NodePoolLabelKey] != c.pool.Name || c.types[flavor] == nil {
			return exchange{}, nil
		}
		node := packing.Node{Existing: -1, Bin: packing.Bin{Name: flavor, Zone: m.Node.Labels[corev1.LabelTopologyZone], VNDPerHour: m.VNDPerHour}}
		for _, pod := range m.Pods {
			if i, ours := at[pod.UID]; ours {
				node.Items = append(node.Items, i)
			}
		}
		sum.added, sum.saves = append(sum.added, node), sum.saves-m.VNDPerHour
	}
	if exceeds(c.pool, memory.Of[*karpv1.NodeClaim](c.objects), c.capacity(sum.added)) != nil {
		return exchange{}, nil
	}
	return sum, nil
}

// carryOut adds the nodes, holds all but those that are replaced, and lets core consolidate, with the holds and then without them.
func (c *computation) carryOut(ctx context.Context, t *plan.Trial, found exchange) error {
	hold := func(node string) error {
		return t.RunPod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "hold-" + node, Labels: map[string]string{HoldLabel: "trial"},
			Annotations: map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"},
		}}, node)
	}
	for _, node := range found.added {
		claim := c.claim(node)
		if err := t.Objects.Create(ctx, claim); err != nil {
			return err
		}
		if err := t.Join(ctx, claim.Name, c.daemons); err != nil {
			return err
		}
		if err := hold(claim.Name); err != nil {
			return err
		}
	}
	for _, m := range c.held(found) {
		if err := hold(m.Node.Name); err != nil {
			return err
		}
	}
	if err := t.Rest(ctx); err != nil {
		return err
	}
	if err := t.EndPods(ctx, func(pod *corev1.Pod) bool { return pod.Labels[HoldLabel] != "" }); err != nil {
		return err
	}
	return t.Rest(ctx)
}

// held are the nodes that stay, of all NodePools: what leaves them would take the new nodes from the pods that these are for.
func (c *computation) held(found exchange) []*plan.Managed {
	return lo.Reject(c.nodes, func(m *plan.Managed, _ int) bool { return lo.Contains(found.replaced, m) })
}

// claim is the NodeClaim that core's provisioner would create, narrowed to one flavor in one zone.
func (c *computation) claim(node packing.Node) *karpv1.NodeClaim {
	template := scheduling.NewNodeClaimTemplate(c.pool)
	template.InstanceTypeOptions = corecloudprovider.InstanceTypes{c.types[node.Bin.Name]}
	template.Requirements.Add(corescheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, node.Bin.Zone))
	claim := template.ToNodeClaim()
	claim.Spec.Resources.Requests = resources.Merge(c.daemons, resources.RequestsForPods(c.podsOf(node)...))
	return claim
}

// podsOf are the pods of a packed node.
func (c *computation) podsOf(node packing.Node) []*corev1.Pod {
	all := lo.FlatMap(c.own, func(m *plan.Managed, _ int) []*corev1.Pod { return m.Pods })
	return lo.Map(node.Items, func(i int, _ int) *corev1.Pod { return all[i] })
}

// fill writes a confirmed exchange into the proposal.
func (c *computation) fill(p *Proposal, found exchange, saves float64) {
	var moving []*corev1.Pod
	for _, m := range found.replaced {
		moving = append(moving, m.Pods...)
		p.Replaced = append(p.Replaced, Node{
			Name: m.Node.Name, NodeClaim: m.Claim.Name, Flavor: m.Node.Labels[corev1.LabelInstanceTypeStable], Zone: m.Node.Labels[corev1.LabelTopologyZone],
			VNDPerHour: m.VNDPerHour, Pods: names(m.Pods),
		})
	}
	p.run = rand.String(6)
	for i, node := range found.added {
		claim := c.claim(node)
		claim.Labels = lo.Assign(claim.Labels, map[string]string{NodeLabel: fmt.Sprintf("%s-%d", p.run, i+1)})
		p.claims = append(p.claims, claim)
		p.New = append(p.New, Node{Flavor: node.Bin.Name, Zone: node.Bin.Zone, VNDPerHour: node.Bin.VNDPerHour, Pods: names(c.podsOf(node))})
	}
	for _, m := range c.held(found) {
		p.held, p.Held = append(p.held, m.Node), append(p.Held, m.Node.Name)
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
