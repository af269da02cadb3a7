// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package catalog keeps the last good answer to "what does the cloud offer": regions, flavors, categories, volume
// types, Kubernetes versions and our own BKE cluster, raw as the API gave them, with a sequence number that changes
// when the content does. Everything above decides from a snapshot and never waits for the cloud.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// ErrNotReady is returned until the catalog was read for the first time.
var ErrNotReady = errors.New("the catalog of the cloud has not been read yet")

// ErrClusterUnknown is why nothing that depends on the BKE cluster can be found out yet: Snapshot.ClusterUnknown.
var ErrClusterUnknown = errors.New("the BKE cluster is not known yet: its id could not be learned " +
	"(BKE_DISCOVER_FROM_POOL), or the Kubernetes Engine has not returned it since the controller started")

// Snapshot is one consistent answer. It is shared and immutable, with everything that it points to.
type Snapshot struct {
	// Seq is raised whenever the content differs from the snapshot before; 1 is the first.
	Seq uint64
	// BKEReadAt is when KubernetesVersions and Cluster were last read, even when nothing changed; zero until then.
	BKEReadAt time.Time
	// Region is the region of the client's configuration with its zones.
	Region gobizfly.Region
	// Flavors are all flavors, also those that are not for us, sorted by name and then by id.
	Flavors []*gobizfly.ServerFlavorResponse
	// VolumeTypes are the volume types with their category and zones.
	VolumeTypes []*gobizfly.VolumeType
	// KubernetesVersions are BKE's versions with their worker images; empty without BKE.
	KubernetesVersions []gobizfly.ControllerVersion
	// Cluster is our own BKE cluster, without its worker pools and statistics, which change all the time; nil without BKE.
	Cluster *gobizfly.FullCluster
	// ClusterUnknown is true while there may be a BKE cluster of ours whose id could not be learned yet, or that could not
	// be read with its versions yet. Then that Cluster is nil and KubernetesVersions empty proves nothing: what would be
	// chosen without BKE must not be chosen.
	ClusterUnknown bool

	regionLabel string
}

// Provider serves the snapshot.
type Provider interface {
	// Snapshot returns the last good snapshot, or ErrNotReady with what the last refresh could not read. It never calls
	// the cloud.
	Snapshot() (*Snapshot, error)
	// Refresh reads everything again. A part that cannot be read keeps its last good content, and the error names it;
	// a part without which there are no instance types, and that was never read, leaves the catalog not ready.
	Refresh(ctx context.Context) error
}

// concurrency bounds how many parts are read at a time, so that a refresh leaves the client's read share to launches.
const concurrency = 3

// Config is what to read.
type Config struct {
	// BKEClusterID is the uid of our own BKE cluster; when it is empty, neither Kubernetes versions nor a cluster are
	// read.
	BKEClusterID string
	// LearnedBKEClusterID learns it, and returns "" where it is not known yet; it is used where BKEClusterID is empty and
	// may be nil.
	LearnedBKEClusterID func(context.Context) string
	// RegionLabel is the value of topology.kubernetes.io/region. The cloud controller manager writes its own
	// BIZFLYCLOUD_REGION verbatim, so where that is set this must be the same; empty means the region's short name, its
	// default, for example HN.
	RegionLabel string
}

// DefaultProvider reads the catalog from the cloud and keeps the last good answer of each part.
type DefaultProvider struct {
	api    bizfly.API
	clock  clock.Clock
	config Config
	parts  []part

	snapshot atomic.Pointer[Snapshot]
	// unread is why there is no snapshot after a refresh.
	unread atomic.Pointer[string]

	// mu makes one Refresh at a time.
	mu      sync.Mutex
	content Snapshot         // Seq is not used here
	known   sets.Set[string] // the parts that were read
	// readAt is when everything was last read without an error, and until then when the controller started.
	readAt time.Time
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns a catalog that is not ready until the first Refresh.
func NewDefaultProvider(api bizfly.API, clk clock.Clock, config Config) *DefaultProvider {
	p := &DefaultProvider{api: api, clock: clk, config: config, readAt: clk.Now(), known: sets.New[string]()}
	p.content.regionLabel = config.RegionLabel
	p.parts = p.newParts()
	return p
}

// Snapshot implements Provider.
func (p *DefaultProvider) Snapshot() (*Snapshot, error) {
	if snapshot := p.snapshot.Load(); snapshot != nil {
		return snapshot, nil
	}
	if unread := p.unread.Load(); unread != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotReady, *unread)
	}
	return nil, ErrNotReady
}

// Refresh implements Provider: it reads all parts at the same time. One that fails does not keep the others from being
// taken over.
func (p *DefaultProvider) Refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ttl.CatalogRefresh)
	defer cancel()

	errs := make([]error, len(p.parts))
	var group errgroup.Group // without a shared context: a failed part must not cancel the others
	group.SetLimit(concurrency)
	for i, part := range p.parts {
		group.Go(func() error {
			if err := part.read(ctx); err != nil {
				errs[i] = fmt.Errorf("reading the %s: %w", part.name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	p.record(errs)
	next, missing := p.completed(ctx, errs)
	if missing == nil {
		p.publish(next)
	} else {
		p.unread.Store(lo.ToPtr(missing.Error()))
	}
	return errors.Join(errs...)
}

// record notes which parts were read.
func (p *DefaultProvider) record(errs []error) {
	now, bkeRead := p.clock.Now(), true
	for i, part := range p.parts {
		if errs[i] == nil {
			p.known.Insert(part.name)
		}
		bkeRead = bkeRead && (errs[i] == nil || !part.bke)
		lastReadFailed.Set(lo.Ternary(errs[i] != nil, 1.0, 0), map[string]string{"part": part.name})
	}
	if bkeRead {
		p.content.BKEReadAt = now
	}
	if errors.Join(errs...) == nil {
		p.readAt = now
	}
	age.Set(now.Sub(p.readAt).Seconds(), nil)
}

// completed returns the content, with a region that is made up where the cloud has never answered for its regions, and
// the error of the first part that is missing without which there are no instance types. An answer that is wrong, for
// example without our region, is not replaced.
func (p *DefaultProvider) completed(ctx context.Context, errs []error) (next Snapshot, missing error) {
	next = p.content
	for i, part := range p.parts {
		switch _, unanswered := errors.AsType[*bizfly.APIError](errs[i]); {
		case p.known.Has(part.name):
		case part.bke:
			next.ClusterUnknown = true
		case part.name == partRegions && unanswered && p.makeRegion(ctx, &next):
		default:
			missing = cmp.Or(missing, errs[i])
		}
	}
	return next, missing
}

// publish makes the next snapshot the one that is served.
func (p *DefaultProvider) publish(next Snapshot) {
	next.Seq = 1
	if previous := p.snapshot.Load(); previous != nil && sameContent(*previous, next) {
		// The old slices are kept, so that a comparison of pointers shows that nothing has changed.
		bkeReadAt := next.BKEReadAt
		next = *previous
		next.BKEReadAt = bkeReadAt
	} else if previous != nil {
		next.Seq = previous.Seq + 1
	}
	p.snapshot.Store(&next)
	sequence.Set(float64(next.Seq), nil)
}

// sameContent compares everything but the stamps.
func sameContent(a, b Snapshot) bool {
	a.Seq, a.BKEReadAt = 0, time.Time{}
	b.Seq, b.BKEReadAt = 0, time.Time{}
	return reflect.DeepEqual(a, b)
}
