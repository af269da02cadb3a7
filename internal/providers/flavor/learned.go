// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor

import (
	"context"
	"maps"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxLearned bounds of how many flavors and profiles something is known; the next one forgets all.
	maxLearned = 16384
	// maxSeen is how many nodes of a flavor and profile count: those that reported last. Others are forgotten, so that an outdated
	// value disappears as new nodes report.
	maxSeen = 8
	// loneTolerance is how far the only node of a flavor may be from what was promised and still be believed: a share.
	loneTolerance = 0.2
	// agreement is how far two nodes may be from each other and still report the same: a share.
	agreement = 0.02
	// leastShare is the share of what is estimated of a flavor below which no node is believed: kubelets report their size
	// themselves, and two of them must not make a flavor useless for everyone.
	leastShare = 0.6
	// leastOffered is that share of what pods may use of it: how much a worker image keeps is its maker's choice.
	leastOffered = 1.0 / 3
)

// report is what a node has and what pods may use of it, by the indices below; 0 is not known.
type report [6]int64

const (
	capacityMemory     = iota // KiB, which is how kernels count
	capacityStorage           // KiB
	pods                      // a count
	allocatableCPU            // thousandths of a CPU
	allocatableMemory         // KiB
	allocatableStorage        // KiB
)

// reportOf reads the resources of a node, or those that a NodeClaim was promised.
func reportOf(capacity, allocatable corev1.ResourceList) report {
	return report{
		capacity.Memory().Value() / kib, capacity.StorageEphemeral().Value() / kib, allocatable.Pods().Value(),
		allocatable.Cpu().MilliValue(), allocatable.Memory().Value() / kib, allocatable.StorageEphemeral().Value() / kib,
	}
}

func within(a, b int64, share float64) bool {
	return float64(max(a, b)-min(a, b)) <= share*float64(max(a, b))
}

// learnedKey is what decides the size of a node: its flavor, and the image and spec that it was launched with.
type learnedKey struct{ profile, flavor string }

func profileOf(nodeClass *v1alpha1.BizflyNodeClass) string {
	return nodeClass.Status.ImageID() + "/" + nodeClass.Hash()
}

// learned is what nodes have reported by flavor and profile. It is immutable; seq counts the changes of what is believed.
type learned struct {
	seq   uint64
	byKey map[learnedKey]knowledge
}

type seenNode struct {
	name   string
	report report
}

// knowledge is what the last nodes have reported, and what instance types promise by it; 0 is what they still estimate. It is immutable.
type knowledge struct {
	seen     []seenNode // the one that reported last is the last
	believed report
}

// with returns the knowledge with one more node, which was promised so much.
func (k knowledge) with(node seenNode, promised report) knowledge {
	seen := append(lo.Reject(k.seen, func(s seenNode, _ int) bool { return s.name == node.name }), node)
	next := knowledge{seen: seen[max(0, len(seen)-maxSeen):]}
	for i := range next.believed {
		values := lo.FilterMap(next.seen, func(s seenNode, _ int) (int64, bool) { return s.report[i], s.report[i] > 0 })
		was, is := k.believed[i], believe(values, promised[i])
		if is == 0 || is > was && within(is, was, agreement) {
			// A few KiB more are noise, and would rebuild instance types with each node.
			is = was
		}
		next.believed[i] = is
	}
	return next
}

// believe returns the least value on which two nodes agree, or that of the only node when it is near what was promised; 0 is none.
// Where no two agree, it is the second least: one broken node changes nothing.
func believe(values []int64, promised int64) int64 {
	slices.Sort(values)
	switch {
	case len(values) == 0 || len(values) == 1 && !within(values[0], promised, loneTolerance):
		return 0
	case len(values) == 1:
		return values[0]
	}
	for i := range len(values) - 1 {
		if within(values[i], values[i+1], agreement) {
			return values[i]
		}
	}
	return values[1]
}

// Observe learns the size of a registered node that the NodeClaim was launched for with the present spec and image of the NodeClass. It
// reports whether the node, which has not said so before, offers noticeably less of anything than instance types promise: a second node
// must confirm it, and below leastShare none can.
func (p *DefaultProvider) Observe(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim *karpv1.NodeClaim, node *corev1.Node) (short bool) {
	key := learnedKey{profileOf(nodeClass), claim.Labels[corev1.LabelInstanceTypeStable]}
	said, promised := reportOf(node.Status.Capacity, node.Status.Allocatable), reportOf(claim.Status.Capacity, claim.Status.Allocatable)
	believable, floor := seenNode{node.Name, said}, p.floor(ctx, nodeClass, key.flavor)
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
	is := was.with(believable, promised)
	next := &learned{seq: known.seq, byKey: maps.Clone(known.byKey)}
	if len(next.byKey) >= maxLearned {
		clear(next.byKey)
	}
	next.byKey[key] = is
	if was.believed != is.believed {
		next.seq++
		log.FromContext(ctx).WithValues("flavor", key.flavor, "profile", key.profile, "before", was.believed, "now", is.believed).
			Info("learned the size of nodes of a flavor")
	}
	p.learned.Store(next)
	return lo.SomeBy(lo.Range(len(said)), func(i int) bool {
		planned := lo.CoalesceOrEmpty(is.believed[i], promised[i])
		return said[i] > 0 && said[i] < planned && !within(said[i], planned, agreement)
	})
}

// floor returns the least size that is believed of nodes of the flavor; zero for one that is not listed.
func (p *DefaultProvider) floor(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, flavor string) (floor report) {
	if _, err := p.List(ctx, nodeClass); err != nil {
		return floor
	}
	// Another NodeClass may have replaced the answer where there are more than maxEntries.
	b, found := lo.Find(lo.FromPtr((*p.entries.Load())[nodeClass.Name]).built, func(b *built) bool { return b.Name == flavor })
	if !found {
		return floor
	}
	estimated := p.estimated(b)
	floor = reportOf(estimated, resources.Subtract(estimated, overhead(estimated, b.reservations).Total()))
	for i := range floor {
		floor[i] = int64(float64(floor[i]) * lo.Ternary(i <= capacityStorage, leastShare, leastOffered))
	}
	return floor
}

// size returns what a node of the estimated capacity has and keeps from pods, by what nodes have reported where anything
// is known, and by the estimates where not. Promising what is not there makes core launch a second node for a pod that
// the first was launched for.
func (p *DefaultProvider) size(b *built) (corev1.ResourceList, *cloudprovider.InstanceTypeOverhead) {
	estimated, known := p.estimated(b), b.report
	capacities := maps.Clone(estimated)
	set := func(name corev1.ResourceName, kibibytes, mostMiB int64) {
		if kibibytes > 0 {
			capacities[name] = *resource.NewQuantity(min(kibibytes/kib, mostMiB)*mib, resource.BinarySI)
		}
	}
	set(corev1.ResourceMemory, known[capacityMemory], int64(b.facts.memoryMiB))
	set(corev1.ResourceEphemeralStorage, known[capacityStorage], int64(b.rootDiskGiB)*(gib/mib))
	// More than the default is what the operator wants to keep in any case.
	if p.options.Load().MemoryOverheadPercent > options.Defaults().MemoryOverheadPercent && estimated.Memory().Cmp(*capacities.Memory()) < 0 {
		capacities[corev1.ResourceMemory] = estimated[corev1.ResourceMemory]
	}
	if count := known[pods]; count > 0 && (!b.reservations.Configured || count < int64(b.reservations.MaxPods)) {
		capacities[corev1.ResourcePods] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	kept := overhead(capacities, b.reservations)
	keep := func(name corev1.ResourceName, learned resource.Quantity) {
		configured := kept.Total()[name]
		if b.reservations.Configured && learned.Cmp(configured) < 0 {
			return
		}
		if available := capacities[name]; learned.Cmp(available) > 0 {
			learned = available.DeepCopy()
		}
		delete(kept.SystemReserved, name)
		delete(kept.EvictionThreshold, name)
		kept.KubeReserved[name] = learned
	}
	if known[allocatableCPU] > 0 {
		keep(corev1.ResourceCPU, *resource.NewMilliQuantity(max(0, capacities.Cpu().MilliValue()-known[allocatableCPU]), resource.DecimalSI))
	}
	for name, at := range map[corev1.ResourceName][2]int{
		corev1.ResourceMemory:           {capacityMemory, allocatableMemory},
		corev1.ResourceEphemeralStorage: {capacityStorage, allocatableStorage},
	} {
		if has, offers := known[at[0]], known[at[1]]; has > 0 && offers > 0 {
			keep(name, *resource.NewQuantity(max(0, has-offers)*kib, resource.BinarySI))
		}
	}
	return capacities, kept
}
