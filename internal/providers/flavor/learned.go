/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package flavor

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxLearned bounds what is remembered of flavors times profiles.
	maxLearned = 16384
	// maxWitnesses is how many nodes of a flavor and profile count: those that reported last. Others are forgotten, so that
	// an outdated value disappears as new nodes report.
	maxWitnesses = 8
	// maxRecordedProfiles is how many profiles a NodeClass remembers: the current one, and those that a roll-back returns to.
	maxRecordedProfiles = 3
	// maxRecordedFlavors bounds what is recorded of one profile, so that an annotation never outgrows its object.
	maxRecordedFlavors = 256
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

// Report is what a node has and what pods may use of it, by the indices below; 0 is not known.
type Report [6]int64

const (
	capacityMemory     = iota // KiB, which is how kernels count
	capacityStorage           // KiB
	pods                      // a count
	allocatableCPU            // thousandths of a CPU
	allocatableMemory         // KiB
	allocatableStorage        // KiB
)

// reportOf reads the resources of a node, or those that a NodeClaim was promised.
func reportOf(capacity, allocatable corev1.ResourceList) Report {
	return Report{
		capacity.Memory().Value() / kib, capacity.StorageEphemeral().Value() / kib, allocatable.Pods().Value(),
		allocatable.Cpu().MilliValue(), allocatable.Memory().Value() / kib, allocatable.StorageEphemeral().Value() / kib,
	}
}

// less reports whether a node offers noticeably less of anything than is promised.
func (r Report) less(promised Report) bool {
	return lo.SomeBy(lo.Range(len(r)), func(i int) bool {
		return r[i] > 0 && r[i] < promised[i] && !within(r[i], promised[i], agreement)
	})
}

// raised returns the report with at least the floor of everything that is known.
func (r Report) raised(floor Report) Report {
	for i := range r {
		if r[i] > 0 {
			r[i] = max(r[i], floor[i])
		}
	}
	return r
}

func within(a, b int64, share float64) bool {
	return float64(max(a, b)-min(a, b)) <= share*float64(max(a, b))
}

// learnedKey is what decides the size of a node: its flavor, and the image and settings that it was launched with.
type learnedKey struct{ profile, flavor string }

type witness struct {
	node   string
	report Report
}

// knowledge is what is known of one key. It is immutable.
type knowledge struct {
	witnesses []witness // the one that reported last is the last
	believed  Report
}

// with returns the knowledge with one more report, of a node that was promised so much.
func (k knowledge) with(node string, report, promised Report) knowledge {
	witnesses := append(lo.Reject(k.witnesses, func(w witness, _ int) bool { return w.node == node }), witness{node, report})
	next := knowledge{witnesses: witnesses[max(0, len(witnesses)-maxWitnesses):]}
	for i := range next.believed {
		values := lo.FilterMap(next.witnesses, func(w witness, _ int) (int64, bool) { return w.report[i], w.report[i] > 0 })
		was, is := k.believed[i], believe(values, promised[i])
		if is == 0 || is > was && within(is, was, agreement) {
			// A few KiB more are noise, and would rebuild instance types and the record with each node.
			is = was
		}
		next.believed[i] = is
	}
	return next
}

// believe returns the least value that two nodes agree on, so that one broken or lying node never decides. A lone node
// is believed when it is near what was promised. 0 is nothing to be believed.
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

// learned is all that is known. It is immutable.
type learned struct {
	seq   uint64
	byKey map[learnedKey]knowledge
}

// learn replaces what is known of some keys. The sequence number rises when instance types change by it.
func (p *DefaultProvider) learn(change func(known map[learnedKey]knowledge) map[learnedKey]knowledge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.learned.Load()
	next := &learned{seq: known.seq, byKey: maps.Clone(known.byKey)}
	for key, k := range change(known.byKey) {
		old, exists := known.byKey[key]
		if !exists && len(next.byKey) >= maxLearned {
			continue
		}
		if old.believed != k.believed {
			next.seq = known.seq + 1
		}
		next.byKey[key] = k
	}
	p.learned.Store(next)
}

// ProfileSizes is what is believed of the nodes of one profile, by flavor.
type ProfileSizes struct {
	// Profile is the image, and a hash of what else decides the size of a node.
	Profile string `json:"profile"`
	// Flavors are memory and storage in KiB, pods, and allocatable CPU in thousandths, memory and storage in KiB.
	Flavors map[string]Report `json:"flavors"`
}

// LearnedSizes is what is believed of the nodes of a NodeClass, the profile that was learned last first. It is kept in an
// annotation of the NodeClass, so that it outlives both the controller and the last node of a flavor.
type LearnedSizes []ProfileSizes

// ParseLearnedSizes reads the record of a NodeClass. Its error is one of a record that is not ours any more.
func ParseLearnedSizes(nodeClass *v1alpha1.BizflyNodeClass) (LearnedSizes, error) {
	text := nodeClass.Annotations[v1alpha1.AnnotationLearnedSizes]
	if text == "" {
		return nil, nil
	}
	var sizes LearnedSizes
	if err := json.Unmarshal([]byte(text), &sizes); err != nil {
		return nil, fmt.Errorf("the annotation %s is not what was written there: %w", v1alpha1.AnnotationLearnedSizes, err)
	}
	return sizes, nil
}

// With returns the record with what is believed of a flavor, and whether that changes it.
func (s LearnedSizes) With(profile, flavor string, believed Report) (LearnedSizes, bool) {
	of := ProfileSizes{Profile: profile, Flavors: map[string]Report{}}
	var others LearnedSizes
	for _, recorded := range s {
		if recorded.Profile != profile {
			others = append(others, recorded)
			continue
		}
		if old, known := recorded.Flavors[flavor]; known && old == believed || !known && len(recorded.Flavors) >= maxRecordedFlavors {
			return s, false
		}
		maps.Copy(of.Flavors, recorded.Flavors)
	}
	of.Flavors[flavor] = believed
	return append(LearnedSizes{of}, others[:min(len(others), maxRecordedProfiles-1)]...), true
}

// String is the record as it is kept.
func (s LearnedSizes) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// Observation is what became of a node's report.
type Observation struct {
	// Profile is the profile that it counts for.
	Profile string
	// Believed is what instance types promise from now on; 0 is what they still estimate.
	Believed Report
	// Short reports that the node, which was not observed like this before, offers noticeably less than instance types
	// promise: a second node must confirm it, and below leastShare none can.
	Short bool
}

// Observe takes over the size of a registered node that the claim was launched for with the present spec and image of
// the NodeClass.
func (p *DefaultProvider) Observe(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim *karpv1.NodeClaim, node *corev1.Node) Observation {
	key := learnedKey{profileOf(nodeClass), claim.Labels[corev1.LabelInstanceTypeStable]}
	report, promised := reportOf(node.Status.Capacity, node.Status.Allocatable), reportOf(claim.Status.Capacity, claim.Status.Allocatable)
	believable := report.raised(p.floor(ctx, nodeClass, key.flavor))
	var was, is Report
	var repeated bool
	p.learn(func(known map[learnedKey]knowledge) map[learnedKey]knowledge {
		repeated = slices.Contains(known[key].witnesses, witness{node.Name, believable})
		next := known[key].with(node.Name, believable, promised)
		was, is = known[key].believed, next.believed
		return map[learnedKey]knowledge{key: next}
	})
	if was != is {
		log.FromContext(ctx).WithValues("flavor", key.flavor, "profile", key.profile, "before", was, "now", is).
			Info("learned the size of nodes of a flavor")
	}
	for i := range promised {
		promised[i] = lo.CoalesceOrEmpty(is[i], promised[i])
	}
	return Observation{Profile: key.profile, Believed: is, Short: !repeated && report.less(promised)}
}

// floor returns the least size that is believed of nodes of the flavor; zero for one that is not listed.
func (p *DefaultProvider) floor(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, flavor string) (floor Report) {
	if _, err := p.List(ctx, nodeClass); err != nil {
		return floor
	}
	b, found := lo.Find((*p.entries.Load())[nodeClass.Name].built, func(b *built) bool { return b.Name == flavor })
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

// recall takes over what earlier processes have recorded on the NodeClass. It was believed, so it counts as two witnesses.
func (p *DefaultProvider) recall(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) {
	sizes, err := ParseLearnedSizes(nodeClass)
	if err != nil {
		log.FromContext(ctx).WithValues("BizflyNodeClass", nodeClass.Name).Error(err, "forgetting the size of nodes")
		return
	}
	p.learn(func(known map[learnedKey]knowledge) map[learnedKey]knowledge {
		recalled := map[learnedKey]knowledge{}
		for _, of := range sizes {
			for flavor, report := range of.Flavors {
				key := learnedKey{of.Profile, flavor}
				if _, exists := known[key]; !exists {
					recalled[key] = knowledge{}.with("recorded/1", report, report).with("recorded/2", report, report)
				}
			}
		}
		return recalled
	})
}

// profileOf names what decides, beside the flavor, the size of a node: the image, the root disk, and in Custom mode what
// the user configures the kubelet with. It is empty until the image is resolved.
func profileOf(nodeClass *v1alpha1.BizflyNodeClass) string {
	image := imageOf(nodeClass)
	if image == "" {
		return ""
	}
	settings := struct {
		RootDiskGiB   int
		BootstrapMode v1alpha1.BootstrapMode
		UserData      *string
		UserDataFrom  *v1alpha1.SecretKeySelector
		JoinToken     *v1alpha1.JoinToken
		Kubelet       *v1alpha1.KubeletConfiguration
	}{
		RootDiskGiB: catalog.Disks(&nodeClass.Spec)[0].GiB, BootstrapMode: nodeClass.Spec.BootstrapMode,
		UserData: nodeClass.Spec.UserData, UserDataFrom: nodeClass.Spec.UserDataFrom, JoinToken: nodeClass.Spec.JoinToken,
	}
	if settings.BootstrapMode == v1alpha1.BootstrapModeCustom {
		settings.Kubelet = nodeClass.Spec.Kubelet
	}
	hash := fnv.New32a()
	_ = json.NewEncoder(hash).Encode(settings) // neither fails
	return fmt.Sprintf("%s/%08x", image, hash.Sum32())
}

// size returns what a node of the estimated capacity has and keeps from pods, by what nodes have reported where anything
// is known, and by the estimates where not. Promising what is not there makes core launch a second node for a pod that
// the first was launched for.
func (p *DefaultProvider) size(b *built) (corev1.ResourceList, *cloudprovider.InstanceTypeOverhead) {
	estimated, report := p.estimated(b), b.report
	capacities := maps.Clone(estimated)
	set := func(name corev1.ResourceName, kibibytes, mostMiB int64) {
		if kibibytes > 0 {
			capacities[name] = *resource.NewQuantity(min(kibibytes/kib, mostMiB)*mib, resource.BinarySI)
		}
	}
	set(corev1.ResourceMemory, report[capacityMemory], int64(b.facts.memoryMiB))
	set(corev1.ResourceEphemeralStorage, report[capacityStorage], int64(b.rootDiskGiB)*(gib/mib))
	// More than the default is what the operator wants to keep in any case.
	if p.options.Load().MemoryOverheadPercent > options.Defaults().MemoryOverheadPercent && estimated.Memory().Cmp(*capacities.Memory()) < 0 {
		capacities[corev1.ResourceMemory] = estimated[corev1.ResourceMemory]
	}
	if count := report[pods]; count > 0 && (!b.reservations.Configured || count < int64(b.reservations.MaxPods)) {
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
	if report[allocatableCPU] > 0 {
		keep(corev1.ResourceCPU, *resource.NewMilliQuantity(max(0, capacities.Cpu().MilliValue()-report[allocatableCPU]), resource.DecimalSI))
	}
	for name, at := range map[corev1.ResourceName][2]int{
		corev1.ResourceMemory:           {capacityMemory, allocatableMemory},
		corev1.ResourceEphemeralStorage: {capacityStorage, allocatableStorage},
	} {
		if has, offers := report[at[0]], report[at[1]]; has > 0 && offers > 0 {
			keep(name, *resource.NewQuantity(max(0, has-offers)*kib, resource.BinarySI))
		}
	}
	return capacities, kept
}
