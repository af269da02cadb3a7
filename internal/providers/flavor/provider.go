// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flavor turns the cloud's flavors into Karpenter's instance types: requirements, capacity, overhead, and one
// priced offering per zone.
package flavor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/samber/lo"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxEntries bounds how many NodeClasses are remembered; a cluster that has more builds some of them more often.
const maxEntries = 256

// DefaultProvider builds instance types from the catalog and keeps them per NodeClass.
type DefaultProvider struct {
	catalog   catalog.Provider
	marks     *capacity.DefaultProvider
	bootstrap *bootstrap.DefaultProvider
	reader    client.Reader
	options   *options.Store
	logged    sync.Map
	builds    singleflight.Group

	index atomic.Pointer[index]
	// entries (by the name of the NodeClass) and learned are replaced completely: a warm List is one atomic load and one
	// map read, without lock or allocation.
	entries atomic.Pointer[map[string]*entry]
	// uses counts the NodeClaims that were found to run on what was not listed.
	uses    atomic.Uint64
	learned atomic.Pointer[learned]
	mu      sync.Mutex // held to replace them
}

// entry is the answer for one NodeClass. It is immutable.
type entry struct {
	version version
	zones   []string
	types   []*cloudprovider.InstanceType
}

// version is what an answer was built from, beside the resolved zones.
type version struct {
	uid        types.UID
	generation int64
	image      string
	catalog    uint64
	settings   *options.Options
	marks      uint64
	learned    uint64
	uses       uint64
}

// NewDefaultProvider returns a provider. The reader lists NodeClaims and is the manager's cached client.
func NewDefaultProvider(catalog catalog.Provider, marks *capacity.DefaultProvider,
	bootstrap *bootstrap.DefaultProvider, reader client.Reader, settings *options.Store) *DefaultProvider {
	p := &DefaultProvider{
		catalog: catalog, marks: marks, bootstrap: bootstrap, reader: reader, options: settings,
	}
	p.learned.Store(&learned{byKey: map[learnedKey]knowledge{}})
	p.Flush()
	observed.Store(p)
	return p
}

// List returns the instance types of a NodeClass: every flavor that it can use, with an offering for each of its
// zones in which the flavor's generation exists, and every flavor and offering that a live NodeClaim of it runs on,
// whatever has become of them. What cannot be launched now is there with Available=false and its real price.
//
// A flavor that the NodeClass cannot use (not selected by its flavorSelectorTerms, not available with its billing plan
// or in any of its zones, no volume type of a name that it asks for) and that no NodeClaim runs on is left out: it
// would only be weighed in vain. It comes back with the catalog or the NodeClass that allows it. One that a NodeClaim
// runs on stays even when the cloud has delisted it, because core replaces nodes whose type or offering has vanished;
// it is then built from the NodeClaim's labels.
//
// The slice and all in it are shared and immutable; it is built anew when the NodeClass (UID, generation, resolved
// zones and image), the catalog, the settings or the marks of the capacity provider have changed. Errors are
// catalog.ErrNotReady and those of listing the NodeClaims.
func (p *DefaultProvider) List(ctx context.Context,
	nodeClass *v1alpha1.BizflyNodeClass) ([]*cloudprovider.InstanceType, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	// The numbers are read before anything is built from what they count: what changes meanwhile is built again.
	v := version{
		uid: nodeClass.UID, generation: nodeClass.Generation, image: nodeClass.Status.ImageID(), catalog: snapshot.Seq,
		settings: p.options.Load(), marks: p.marks.SeqNum(), learned: p.learned.Load().seq, uses: p.uses.Load(),
	}
	if e := (*p.entries.Load())[nodeClass.Name]; e != nil && e.version == v &&
		slices.Equal(e.zones, nodeClass.Status.Zones) {
		return e.types, nil
	}
	// Hundreds of launches ask at once after each change, and one of them builds.
	answer, err, _ := p.builds.Do(fmt.Sprintf("%s %+v %q", nodeClass.Name, v, nodeClass.Status.Zones),
		func() (any, error) {
			// The first of the callers must not take the others down with its deadline; there is no request in here.
			return p.rebuild(context.WithoutCancel(ctx), nodeClass, snapshot, v)
		})
	if err != nil {
		return nil, err
	}
	return answer.(*entry).types, nil
}

// Category returns the category in which servers of the flavor are created, and false for an unknown flavor.
func (p *DefaultProvider) Category(flavor string) (string, bool) {
	f := p.named(flavor)
	return lo.FromPtr(f).category, f != nil
}

// Complete reports whether the cloud describes the flavor completely, by generation, zones and plans. What it does not
// may be a flavor that is listed and can no longer be launched. It is false for an unknown flavor, and for all before
// the catalog is ready.
func (p *DefaultProvider) Complete(flavor string) bool { return lo.FromPtr(p.named(flavor)).complete }

// named returns what is known of the flavor, nil for an unknown one.
func (p *DefaultProvider) named(flavor string) *facts {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil
	}
	return p.indexOf(snapshot).byName[flavor]
}

// Find returns the instance type and the offering that a server is; nil where they are not among the instance types.
func Find(
	types []*cloudprovider.InstanceType, flavor, zone string,
) (*cloudprovider.InstanceType, *cloudprovider.Offering) {
	instanceType, _ := lo.Find(types, func(it *cloudprovider.InstanceType) bool { return it.Name == flavor })
	if instanceType == nil {
		return nil, nil
	}
	offering, _ := lo.Find(instanceType.Offerings, func(o *cloudprovider.Offering) bool { return o.Zone() == zone })
	return instanceType, offering
}

// Item returns what the compute of a server is priced as, by the labels of its Node or NodeClaim and its billing plan;
// false where neither the catalog nor the labels say it. Labels say nothing of disks.
func (p *DefaultProvider) Item(labels map[string]string, plan v1alpha1.BillingPlan) (pricing.Item, bool) {
	f, known := p.named(labels[corev1.LabelInstanceTypeStable]), true
	if f == nil {
		f, known = fromLabels(labels)
	}
	return f.item(plan), known
}

// Launched returns the instance type of a flavor with an offering in the zone, whatever the NodeClass selects by now:
// for a server that exists, or may. There is none for a flavor that the cloud does not list.
func (p *DefaultProvider) Launched(nodeClass *v1alpha1.BizflyNodeClass, flavor,
	zone string) []*cloudprovider.InstanceType {
	c, known, err := p.classOf(nodeClass)
	if err != nil || known.byName[flavor] == nil {
		return nil
	}
	return []*cloudprovider.InstanceType{p.build(c, known.byName[flavor], nil, []string{zone})}
}

// classOf returns the NodeClass with the flavors of the catalog.
func (p *DefaultProvider) classOf(nodeClass *v1alpha1.BizflyNodeClass) (*class, *index, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	return newClass(nodeClass, snapshot, p.options.Load()), p.indexOf(snapshot), nil
}

// SatisfyMinValues returns why the instance types have fewer values of a requirement than its minValues ask for; nil
// where core's MIN_VALUES_POLICY is BestEffort.
func SatisfyMinValues(ctx context.Context, types cloudprovider.InstanceTypes,
	requirements scheduling.Requirements) error {
	_, _, err := types.SatisfiesMinValues(requirements)
	if err != nil && coreoptions.FromContext(ctx).MinValuesPolicy == coreoptions.MinValuesPolicyBestEffort {
		return nil
	}
	return err
}

// RequirementsOf returns what a NodePool requires of its nodes, by its template's requirements and labels.
func RequirementsOf(pool *karpv1.NodePool) scheduling.Requirements {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	return requirements
}

// CanLaunch reports whether a node of the NodePool could be launched now, because an offering that it allows is
// available.
func CanLaunch(ctx context.Context, pool *karpv1.NodePool, types cloudprovider.InstanceTypes) bool {
	requirements := RequirementsOf(pool)
	fitting := lo.Filter(types, func(it *cloudprovider.InstanceType, _ int) bool {
		return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			it.Offerings.Available().HasCompatible(requirements)
	})
	return len(fitting) > 0 && SatisfyMinValues(ctx, fitting, requirements) == nil
}

// Matching returns the names of the flavors that the cloud lists and the term selects, sorted, whatever else would keep
// a NodeClass from using them. Errors are catalog.ErrNotReady.
func (p *DefaultProvider) Matching(term v1alpha1.FlavorSelectorTerm) ([]string, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	return lo.FilterMap(p.indexOf(snapshot).flavors, func(f *facts, _ int) (string, bool) {
		return f.name, f.matches(term)
	}), nil
}

// Overcommitted says by flavor of which resource spec.kubelet keeps more than a server has; the others are not in it.
// Errors are catalog.ErrNotReady.
func (p *DefaultProvider) Overcommitted(nodeClass *v1alpha1.BizflyNodeClass) (map[string]string, error) {
	c, known, err := p.classOf(nodeClass)
	if err != nil {
		return nil, err
	}
	return lo.OmitByValues(lo.SliceToMap(known.flavors, func(f *facts) (name, problem string) {
		return f.name, p.overcommitted(c, f)
	}), []string{""}), nil
}

// Flush forgets all answers, for tests.
func (p *DefaultProvider) Flush() { p.entries.Store(&map[string]*entry{}) }

// Use makes List have what the NodeClaim runs on. Its labels come after its launch, and what the launch was chosen from
// may not be listed any more by then; core replaces nodes whose type is in no list.
func (p *DefaultProvider) Use(claim *karpv1.NodeClaim) {
	flavor, zone := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone]
	e, known := (*p.entries.Load())[lo.FromPtr(claim.Spec.NodeClassRef).Name]
	if !known || flavor == "" || zone == "" {
		return
	}
	if _, offering := Find(e.types, flavor, zone); offering == nil {
		p.uses.Add(1)
	}
}

// rebuild builds and remembers the answer.
func (p *DefaultProvider) rebuild(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot,
	v version) (*entry, error) {
	types, err := p.buildAll(ctx, nodeClass, snapshot)
	if err != nil {
		return nil, err
	}
	next := &entry{version: v, zones: slices.Clone(nodeClass.Status.Zones), types: types}
	p.mu.Lock()
	defer p.mu.Unlock()
	entries := maps.Clone(*p.entries.Load())
	if !lo.HasKey(entries, nodeClass.Name) && len(entries) >= maxEntries {
		clear(entries)
	}
	entries[nodeClass.Name] = next
	p.entries.Store(&entries)
	return next, nil
}

// buildAll builds all instance types of the NodeClass, sorted by name.
func (p *DefaultProvider) buildAll(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass,
	snapshot *catalog.Snapshot) ([]*cloudprovider.InstanceType, error) {
	used, err := p.inUse(ctx, nodeClass)
	if err != nil {
		return nil, err
	}
	c, idx := newClass(nodeClass, snapshot, p.options.Load()), p.indexOf(snapshot)
	for name, reason := range idx.skipped {
		if last, known := p.logged.Swap(name, reason); !known || last != reason {
			log.FromContext(ctx).WithValues("flavor", name, "reason", reason).Info("ignoring a flavor")
		}
	}
	var all []*cloudprovider.InstanceType
	for _, f := range idx.flavors {
		usable := c.usableZones(f)
		if p.overcommitted(c, f) != "" {
			usable = nil
		}
		if len(usable) > 0 || len(used[f.name]) > 0 {
			all = append(all, p.build(c, f, usable, zonesOf(used[f.name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		// One NodeClaim whose labels were edited must not take the type from all others.
		known := lo.FilterMap(used[name], func(labels map[string]string, _ int) (*facts, bool) { return fromLabels(labels) })
		if len(known) > 0 && idx.byName[name] == nil {
			all = append(all, p.build(c, known[0], nil, zonesOf(used[name])))
		}
	}
	return all, nil
}

// inUse returns by flavor the labels of the live NodeClaims of the NodeClass. The reader is the manager's cache, so
// this is no request; and it is asked only when a catalog or a NodeClass has changed, or Use has found what is not
// listed.
func (p *DefaultProvider) inUse(ctx context.Context,
	nodeClass *v1alpha1.BizflyNodeClass) (map[string][]map[string]string, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims to keep the instance types that they run on: %w", err)
	}
	used := map[string][]map[string]string{}
	for _, claim := range claims.Items {
		ref, name := claim.Spec.NodeClassRef, claim.Labels[corev1.LabelInstanceTypeStable]
		if v1alpha1.IsOurs(ref) && ref.Name == nodeClass.Name && name != "" && claim.Labels[corev1.LabelTopologyZone] != "" {
			used[name] = append(used[name], claim.Labels)
		}
	}
	return used, nil
}

// zonesOf returns the zones of NodeClaims with these labels, sorted.
func zonesOf(claims []map[string]string) []string {
	zones := lo.Uniq(lo.Map(claims, func(labels map[string]string, _ int) string {
		return labels[corev1.LabelTopologyZone]
	}))
	slices.Sort(zones)
	return zones
}
