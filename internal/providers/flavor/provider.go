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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxEntries bounds how many NodeClasses are remembered, those that were deleted included.
const maxEntries = 256

// DefaultProvider makes instance types from the catalog and keeps them per NodeClass.
type DefaultProvider struct {
	catalog   catalog.Provider
	marks     capacity.Provider
	pricing   pricing.Provider
	bootstrap bootstrap.Provider
	reader    client.Reader
	options   *options.Store
	settings  atomic.Pointer[settings]
	settingMu sync.Mutex // held to replace settings
	lessons   lessons

	index atomic.Pointer[index]
	// entries is replaced as a whole: a warm List is one atomic load and one map read, without lock or allocation.
	entries atomic.Pointer[entries]
	mu      sync.Mutex // held to replace entries
	builds  singleflight.Group
	stamp   atomic.Uint64

	loggedMu sync.Mutex
	logged   map[skip]struct{}
}

// entries are the answers by NodeClass. They are immutable.
type entries struct {
	byUID map[types.UID]*entry
	// newest is the entry that was made last. Most clusters have one NodeClass, and to compare its UID takes half the
	// time of hashing it.
	newest *entry
}

func (e *entries) get(uid types.UID) (*entry, bool) {
	if e.newest != nil && e.newest.uid == uid {
		return e.newest, true
	}
	found, ok := e.byUID[uid]
	return found, ok
}

// entry is the answer for one NodeClass. It is immutable.
type entry struct {
	version
	uid types.UID
	// nodeClass is the name of the NodeClass, for the metrics.
	nodeClass string
	zones     []string
	image     string
	built     []*built
	types     []*cloudprovider.InstanceType
	// stamp orders entries by when they were made, to know which is the oldest.
	stamp uint64
}

// version is what an answer was made from, beside the resolved zones and image.
type version struct {
	generation int64
	catalog    uint64
	prices     uint64
	marks      uint64
	settings   uint64
	lessons    uint64
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider makes a provider. The reader lists NodeClaims and is the manager's cached client.
func NewDefaultProvider(catalog catalog.Provider, marks capacity.Provider, pricing pricing.Provider,
	bootstrap bootstrap.Provider, reader client.Reader, settings *options.Store) *DefaultProvider {
	p := &DefaultProvider{
		catalog: catalog, marks: marks, pricing: pricing, bootstrap: bootstrap, reader: reader,
		options: settings, logged: map[skip]struct{}{},
	}
	p.Flush()
	observed.Store(p)
	return p
}

// List returns the instance types of the NodeClass.
func (p *DefaultProvider) List(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]*cloudprovider.InstanceType, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	// The numbers are read before anything is built from what they count: what changes meanwhile is built again.
	v := version{
		generation: nodeClass.Generation, catalog: snapshot.Seq, prices: p.pricing.SeqNum(), marks: p.marks.SeqNum(),
		settings: p.active().seq, lessons: p.lessons.load().seq,
	}
	if e, ok := p.entries.Load().get(nodeClass.UID); ok && e.version == v && e.image == imageOf(nodeClass) && slices.Equal(e.zones, nodeClass.Status.Zones) {
		return e.types, nil
	}
	return p.rebuild(ctx, nodeClass, snapshot, v)
}

// Category returns the category of a flavor that the cloud lists.
func (p *DefaultProvider) Category(flavor string) (string, bool) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return "", false
	}
	f, ok := p.indexOf(snapshot).byName[flavor]
	if !ok {
		return "", false
	}
	return f.category, true
}

// Matching returns the names of the flavors that the term selects.
func (p *DefaultProvider) Matching(term v1alpha1.FlavorSelectorTerm) ([]string, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	return lo.FilterMap(p.indexOf(snapshot).flavors, func(f *facts, _ int) (string, bool) { return f.name, f.matches(term) }), nil
}

// Flush forgets all answers, for tests.
func (p *DefaultProvider) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries.Store(&entries{})
}

// rebuild makes and remembers the answer. Hundreds of launches ask at once after each change, and one of them builds.
func (p *DefaultProvider) rebuild(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot,
	v version) ([]*cloudprovider.InstanceType, error) {
	image := imageOf(nodeClass)
	key := fmt.Sprintf("%s %+v %q %q", nodeClass.UID, v, nodeClass.Status.Zones, image)
	answer, err, _ := p.builds.Do(key, func() (any, error) {
		previous, known := p.entries.Load().get(nodeClass.UID)
		zones := slices.Clone(nodeClass.Status.Zones)
		var all []*built
		if known && slices.Equal(previous.zones, zones) && previous.withNews(v) == v {
			all = make([]*built, len(previous.built))
			profile := profileOf(nodeClass)
			for i, b := range previous.built {
				all[i] = p.resized(p.reassess(b), profile)
			}
		} else {
			var err error
			// The first of the callers must not take the others down with its deadline; there is no request in here.
			if all, err = p.buildAll(context.WithoutCancel(ctx), nodeClass, snapshot); err != nil {
				return nil, err
			}
		}
		made := &entry{version: v, uid: nodeClass.UID, nodeClass: nodeClass.Name, zones: zones, image: image, built: all, stamp: p.stamp.Add(1)}
		made.types = make([]*cloudprovider.InstanceType, len(all))
		for i, b := range all {
			made.types[i] = b.InstanceType
		}
		p.remember(made)
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.(*entry).types, nil
}

// withNews returns the version as if it had been made with what changes all the time and concerns few instance types.
func (v version) withNews(news version) version {
	v.marks, v.lessons = news.marks, news.lessons
	return v
}

// imageOf is the id of the image that the servers of the NodeClass are made from, empty until it is resolved.
func imageOf(nodeClass *v1alpha1.BizflyNodeClass) string {
	if nodeClass.Status.Image() == nil {
		return ""
	}
	return nodeClass.Status.Image().ID
}

// buildAll makes all instance types of the NodeClass, sorted by name.
func (p *DefaultProvider) buildAll(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, snapshot *catalog.Snapshot) ([]*built, error) {
	uses, err := p.inUse(ctx, nodeClass)
	if err != nil {
		return nil, err
	}
	p.recall(ctx, nodeClass)
	c := newClass(nodeClass, snapshot)
	idx := p.indexOf(snapshot)
	p.logSkipped(ctx, idx)
	all := make([]*built, 0, len(idx.flavors))
	for _, f := range idx.flavors {
		var used []string
		if u, ok := uses[f.name]; ok {
			used = u.zones
		}
		if usable := c.usableZones(f); len(usable) > 0 || len(used) > 0 {
			all = append(all, p.build(c, f, usable, used))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if idx.byName[name] != nil {
			continue
		}
		if f, ok := fromLabels(uses[name].labels); ok {
			all = append(all, p.build(c, f, nil, uses[name].zones))
		}
	}
	return all, nil
}

// remember replaces the entry of the NodeClass and drops the oldest when there are too many.
func (p *DefaultProvider) remember(made *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	byUID := maps.Clone(p.entries.Load().byUID)
	if byUID == nil {
		byUID = map[types.UID]*entry{}
	}
	byUID[made.uid] = made
	if len(byUID) > maxEntries {
		oldest := made
		for _, e := range byUID {
			if e.stamp < oldest.stamp {
				oldest = e
			}
		}
		delete(byUID, oldest.uid)
	}
	p.entries.Store(&entries{byUID: byUID, newest: made})
}

// use is what live claims of a NodeClass run on: one flavor in some zones.
type use struct {
	labels map[string]string // of one of the claims
	zones  []string          // sorted
}

// inUse returns by flavor what the live claims of the NodeClass run on. The reader is the manager's cache, so this is no
// request; and it is asked only when a catalog or a NodeClass has changed. A claim that is launched later runs on what
// was listed then, and the change that takes that away asks again.
func (p *DefaultProvider) inUse(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (map[string]*use, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims to keep the instance types that they run on, %w", err)
	}
	uses := map[string]*use{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ref := claim.Spec.NodeClassRef
		name, zone := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone]
		if ref == nil || ref.Group != v1alpha1.Group || ref.Name != nodeClass.Name || name == "" || zone == "" {
			continue
		}
		found, ok := uses[name]
		if !ok {
			found = &use{labels: claim.Labels}
			uses[name] = found
		}
		if at, present := slices.BinarySearch(found.zones, zone); !present {
			found.zones = slices.Insert(found.zones, at, zone)
		}
	}
	return uses, nil
}
