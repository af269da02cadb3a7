// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxLearned bounds of how many flavors and profiles something is known; the next one forgets all.
	maxLearned = 16384
	// maxSeen is how many nodes of a flavor and profile count: those that reported last. The least of two is below what a
	// broken node alone says for no longer than two launches.
	maxSeen = 2
	// noticeable is how much less than estimated a first node may offer before that is reported: a share.
	noticeable = 0.2
	// agreement is how far two nodes may be from each other and still report the same: a share.
	agreement = 0.02
	// leastShare is the share of what is estimated of a flavor below which no node is believed: kubelets report their size
	// themselves, and two of them must not make a flavor useless for everyone.
	leastShare = 0.6
	// leastOffered is that share of what pods may use of it: how much a worker image keeps is its maker's choice.
	leastOffered = 1.0 / 3
)

// report is what a node has and what pods may use of it, by the indices below; 0 is not known.
type report [8]int64

const (
	capacityMemory     = iota // KiB, which is how kernels count
	capacityStorage           // KiB
	pods                      // a count
	allocatableCPU            // thousandths of a CPU
	allocatableMemory         // KiB
	allocatableStorage        // KiB
	smallPages                // KiB of huge pages of 2 MiB, and noPages where a node has none
	largePages                // KiB of huge pages of 1 GiB
)

// noPages is what a node without huge pages reports: 0 is not known.
const noPages = 1

// reportOf reads the resources of a node, or those that a NodeClaim was promised. The kubelet, and core, subtract huge
// pages from the memory that pods may use. A NodePool may decide how many a node has, so that memory is learned with
// them.
func reportOf(capacity, allocatable corev1.ResourceList) report {
	memory := allocatable.Memory().Value()
	for name, quantity := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && memory > 0 {
			memory += quantity.Value()
		}
	}
	small, large := capacity[hugePages2Mi], capacity[hugePages1Gi]
	return report{
		capacity.Memory().Value() / kib, capacity.StorageEphemeral().Value() / kib, allocatable.Pods().Value(),
		allocatable.Cpu().MilliValue(), memory / kib, allocatable.StorageEphemeral().Value() / kib, small.Value() / kib,
		large.Value() / kib,
	}
}

// The huge pages of the only architecture.
const (
	hugePages2Mi = corev1.ResourceHugePagesPrefix + "2Mi"
	hugePages1Gi = corev1.ResourceHugePagesPrefix + "1Gi"
)

// ownPages returns the report with the huge pages that image and user data of the NodeClass make. Those that the
// NodeClaim was promised are of a NodePool's overlay, or are known already.
func (r report) ownPages(promised report) report {
	for _, i := range []int{smallPages, largePages} {
		r[i] = lo.Ternary(promised[i] > 0, 0, max(r[i], noPages))
	}
	return r
}

func within(a, b int64, share float64) bool {
	return float64(max(a, b)-min(a, b)) <= share*float64(max(a, b))
}

// learnedKey is what decides the size of a node: its flavor, and the image and spec that it was launched with.
type learnedKey struct{ profile, flavor string }

func profileOf(nodeClass *v1alpha1.BizflyNodeClass) string {
	return nodeClass.Status.ImageID() + "/" + nodeClass.Hash()
}

// learned is what nodes have reported by flavor and profile. It is immutable; seq counts the changes of what is
// believed.
type learned struct {
	seq   uint64
	byKey map[learnedKey]knowledge
}

type seenNode struct {
	name   string
	report report
}

// knowledge is what the last nodes have reported, and what instance types promise by it; 0 is what they still estimate.
// It is immutable.
type knowledge struct {
	seen     []seenNode // the one that reported last is the last
	believed report
}

// with returns the knowledge with one more node: the least of the last that report anything.
func (k knowledge) with(node seenNode) knowledge {
	seen := append(lo.Reject(k.seen, func(s seenNode, _ int) bool { return s.name == node.name }), node)
	next := knowledge{seen: seen[max(0, len(seen)-maxSeen):]}
	for i := range next.believed {
		values := lo.FilterMap(next.seen, func(s seenNode, _ int) (int64, bool) { return s.report[i], s.report[i] > 0 })
		was, is := k.believed[i], lo.Min(values)
		if is == 0 || is > was && within(is, was, agreement) {
			// A few KiB more are noise, and would rebuild instance types with each node.
			is = was
		}
		next.believed[i] = is
	}
	return next
}

// Observe learns the size of a registered node that the NodeClaim was launched for with the present spec and image of
// the NodeClass. It reports whether the node, which has not said so before, offers noticeably less of anything than
// instance types promise. Below the floor nothing is believed.
func (p *DefaultProvider) Observe(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim *karpv1.NodeClaim,
	node *corev1.Node) (short bool) {
	key := learnedKey{profileOf(nodeClass), claim.Labels[corev1.LabelInstanceTypeStable]}
	promised := reportOf(claim.Status.Capacity, claim.Status.Allocatable)
	said := reportOf(node.Status.Capacity, node.Status.Allocatable).ownPages(promised)
	believable, floor := seenNode{node.Name, said}, p.floor(nodeClass, key.flavor)
	for i := range said {
		if said[i] > 0 {
			believable.report[i] = max(said[i], floor[i])
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.learned.Load()
	was := known.byKey[key]
	if slices.Contains(was.seen, believable) {
		return false
	}
	is := was.with(believable)
	next := &learned{seq: known.seq, byKey: maps.Clone(known.byKey)}
	if len(next.byKey) >= maxLearned {
		clear(next.byKey)
	}
	next.byKey[key] = is
	if was.believed != is.believed {
		next.seq++
		log.FromContext(ctx).WithValues("flavor", key.flavor, "profile", key.profile, "before", was.believed, "now",
			is.believed).
			Info("learned the size of nodes of a flavor")
	}
	p.learned.Store(next)
	return lo.SomeBy(lo.Range(smallPages), func(i int) bool {
		planned, share := was.believed[i], agreement
		if planned == 0 {
			planned, share = promised[i], noticeable
		}
		return said[i] > 0 && said[i] < planned && !within(said[i], planned, share)
	})
}

// floor returns the least size that is believed of nodes of the flavor; zero for one that the cloud does not list.
func (p *DefaultProvider) floor(nodeClass *v1alpha1.BizflyNodeClass, flavor string) (floor report) {
	c, known, err := p.classOf(nodeClass)
	if err != nil || known.byName[flavor] == nil {
		return floor
	}
	f := known.byName[flavor]
	reservations := p.reservations(c, f)
	estimated := c.estimated(f, reservations)
	floor = reportOf(estimated, resources.Subtract(estimated, keptOf(estimated, reservations.Kept)))
	for i := range smallPages {
		floor[i] = int64(float64(floor[i]) * lo.Ternary(i <= capacityStorage, leastShare, leastOffered))
	}
	return floor
}

// hugePages are those that nodes have reported.
func (r report) hugePages() corev1.ResourceList {
	pages := corev1.ResourceList{}
	for name, kibibytes := range map[corev1.ResourceName]int64{hugePages2Mi: r[smallPages], hugePages1Gi: r[largePages]} {
		if kibibytes > noPages {
			pages[name] = *resource.NewQuantity(kibibytes*kib, resource.BinarySI)
		}
	}
	return pages
}

// size returns what a node of the flavor has and keeps from pods, by what nodes have reported where anything is known,
// and by the estimates where not. Promising what is not there makes core launch a second node for a pod that the first
// was launched for.
func (p *DefaultProvider) size(c *class, f *facts) (capacities, kept corev1.ResourceList) {
	reservations, known := p.reservations(c, f), p.learned.Load().byKey[learnedKey{c.profile, f.name}].believed
	estimated := c.estimated(f, reservations)
	capacities, kept = maps.Clone(estimated), reservations.Kept
	set := func(name corev1.ResourceName, kibibytes, mostMiB int64) {
		if kibibytes > 0 {
			capacities[name] = *resource.NewQuantity(min(kibibytes/kib, mostMiB)*mib, resource.BinarySI)
		}
	}
	set(corev1.ResourceMemory, known[capacityMemory], int64(f.memoryMiB))
	set(corev1.ResourceEphemeralStorage, known[capacityStorage], int64(c.disks[0].GiB)*(gib/mib))
	maps.Copy(capacities, known.hugePages())
	// More than the default is what the operator wants to keep in any case.
	if c.settings.MemoryOverheadPercent > options.Defaults().MemoryOverheadPercent &&
		estimated.Memory().Cmp(*capacities.Memory()) < 0 {
		capacities[corev1.ResourceMemory] = estimated[corev1.ResourceMemory]
	}
	if count := known[pods]; count > 0 && (!reservations.Configured || count < int64(reservations.MaxPods)) {
		capacities[corev1.ResourcePods] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	// What the user decides is kept in any case.
	keep := func(name corev1.ResourceName, learned *resource.Quantity) {
		if !reservations.Configured || learned.Cmp(kept[name]) > 0 {
			kept[name] = *learned
		}
	}
	if offers := known[allocatableCPU]; offers > 0 {
		keep(corev1.ResourceCPU, resource.NewMilliQuantity(max(0, capacities.Cpu().MilliValue()-offers), resource.DecimalSI))
	}
	for name, at := range map[corev1.ResourceName][2]int{
		corev1.ResourceMemory:           {capacityMemory, allocatableMemory},
		corev1.ResourceEphemeralStorage: {capacityStorage, allocatableStorage},
	} {
		if has, offers := known[at[0]], known[at[1]]; has > 0 && offers > 0 {
			keep(name, resource.NewQuantity(max(0, has-offers)*kib, resource.BinarySI))
		}
	}
	return capacities, keptOf(capacities, kept)
}
