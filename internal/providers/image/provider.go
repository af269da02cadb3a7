// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image finds the image that new servers of a NodeClass boot.
package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// The keys of the cache are also what an error calls the list.
	cacheKeyOSImages     = "OS images"
	cacheKeyCustomImages = "custom images"
	cacheKeySnapshots    = "volume snapshots"
	// keyCatalog is what stands for the catalog's list of BKE's versions.
	keyCatalog = "catalog"

	// customImageActive is Glance's word for an image that can be booted; queued, saving and deactivated ones cannot.
	customImageActive = "active"
	// snapshotAvailable is Cinder's word for a snapshot that a volume can be created from.
	snapshotAvailable = "available"
)

// Image is a resolved image.
type Image struct {
	// ID is the image's id.
	ID string
	// Name is its name, for example "bke v1.35.4 ubuntu".
	Name string
	// KubernetesVersion is the version that a BKE worker image runs, for example v1.35.4; empty for other images.
	KubernetesVersion string
	// Type is Image or Snapshot.
	Type v1alpha1.ImageType
	// MinDiskGiB is the least root disk that it fits on, in GiB; 0 where it is not stated, as for public images and
	// BKE worker images.
	MinDiskGiB int
	// PublicOS reports whether it is a plain operating system image, which has no BKE script.
	PublicOS bool
	// Flatcar reports whether it is a BKE worker image with Flatcar, which takes no other script than BKE's.
	Flatcar bool
}

// DefaultProvider finds BKE worker images in the catalog's snapshot, and the others in lists that it caches for as long
// as its cache keeps an entry by default.
type DefaultProvider struct {
	api     bizfly.CatalogAPI
	catalog catalog.Provider
	cache   *cache.Cache
	doubts  doubts
}

// NewDefaultProvider returns the provider. The cache's default expiration decides how late a newer custom image is
// seen.
func NewDefaultProvider(api bizfly.CatalogAPI, catalogProvider catalog.Provider,
	listCache *cache.Cache) *DefaultProvider {
	return &DefaultProvider{api: api, catalog: catalogProvider, cache: listCache}
}

// Resolve returns the image of the first selector term that matches. A *lookup.NotFoundError says that none does; any
// other error that it could not be found out, which never means that an image is gone. So does one that what the
// NodeClass has resolved to is missing, or replaced by what is not newer, until several reads agree.
func (p *DefaultProvider) Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Image, error) {
	r := &resolution{provider: p, reads: lookup.Reads{}, offered: map[string]dates{}}
	found, err := r.firstTerm(ctx, nodeClass)
	reads := r.reads
	if read, ok := reads[keyCatalog]; ok && nodeClass.Status.KubernetesVersion != "" {
		reads = lookup.Reads{keyCatalog: read} // nothing else lists worker images
	}
	confirmed := p.doubts.confirm(nodeClass, lo.FromPtr(found).ID, found != nil && r.newer(found, &nodeClass.Status),
		reads, err)
	if !errors.Is(confirmed, err) {
		// It is in doubt: the next resolution reads each list anew, or one that lacked something would count again with a
		// new read of another one.
		lookup.Expire(p.cache, reads)
	}
	return found, confirmed
}

// resolution is one search for an image.
type resolution struct {
	provider *DefaultProvider
	reads    lookup.Reads
	// offered are the images that can be booted, by list: what was read last replaces what a cached list had.
	offered map[string]dates
}

// dates are the times of the creation of images by id, zero where the cloud does not say it.
type dates map[string]time.Time

// dateOf returns when an image was created, and whether it is offered.
func (r *resolution) dateOf(id string) (created time.Time, offered bool) {
	for _, list := range r.offered {
		if created, offered = list[id]; offered {
			break
		}
	}
	return created, offered
}

// newer reports whether an image may replace the one that the NodeClass has resolved to: a higher Kubernetes version,
// or another image of no lower one while the old one is offered too, and the dates of both are known or of none.
func (r *resolution) newer(found *Image, status *v1alpha1.BizflyNodeClassStatus) bool {
	order := 0
	if before, _, known := parseVersion(status.KubernetesVersion); known {
		if after, _, known := parseVersion(found.KubernetesVersion); known {
			order = compareVersions(after, before)
		}
	}
	before, offered := r.dateOf(status.ImageID())
	after, _ := r.dateOf(found.ID)
	return order > 0 || order == 0 && offered && before.IsZero() == after.IsZero()
}

func (r *resolution) snapshot() (*catalog.Snapshot, error) {
	snapshot, err := r.provider.catalog.Snapshot()
	if err == nil {
		r.reads[keyCatalog] = snapshot.BKEReadAt
	}
	return snapshot, err
}

// firstTerm returns the image of the first term that matches. A term that cannot be looked up ends the search with its
// error: going on to the next term would make the image change back and forth with each outage, and every node of the
// class with it.
func (r *resolution) firstTerm(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Image, error) {
	if len(nodeClass.Spec.ImageSelectorTerms) == 0 {
		return nil, &lookup.NotFoundError{Field: "spec.imageSelectorTerms",
			Remedy: "add a term, for example alias bke@latest"}
	}
	var misses error
	for i := range nodeClass.Spec.ImageSelectorTerms {
		found, err := r.resolveTerm(ctx, nodeClass, i)
		if err == nil {
			return found, nil
		}
		if !lookup.IsNotFound(err) {
			return nil, err
		}
		misses = errors.Join(misses, err)
	}
	return nil, misses
}

func (r *resolution) resolveTerm(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, i int) (found *Image,
	err error) {
	field, value, term := fmt.Sprintf("spec.imageSelectorTerms[%d]", i), "", &nodeClass.Spec.ImageSelectorTerms[i]
	switch {
	case term.Alias != "":
		field, value = field+".alias", term.Alias
		found, err = r.byAlias(field, term)
	case term.ID != "":
		field, value = field+".id", term.ID
		found, err = r.byID(ctx, field, value)
	case term.Name != "":
		field, value = field+".name", term.Name
		found, err = r.fromCustomImages(ctx, newest(field, value, "active custom images"))
	case term.OS != nil:
		field, value = field+".os", term.OS.Distribution+" "+term.OS.Version
		found, err = r.byOS(ctx, field, value, term.OS)
	case term.Snapshot != nil && term.Snapshot.ID != "":
		field, value = field+".snapshot.id", term.Snapshot.ID
		found, err = r.fromSnapshots(ctx, one(field, value, "snapshot", snapshotAvailable, nil))
	case term.Snapshot != nil:
		field, value = field+".snapshot.name", term.Snapshot.Name
		found, err = r.fromSnapshots(ctx, newest(field, value, "available volume snapshots"))
	default:
		err = &lookup.NotFoundError{Field: field, Remedy: "set one of alias, id, name, os and snapshot"}
	}
	if err != nil && !lookup.IsNotFound(err) {
		err = fmt.Errorf("looking up image %q of %s: %w", value, field, err)
	}
	return found, err
}

// byID looks everywhere, because users paste ids from wherever they saw them.
func (r *resolution) byID(ctx context.Context, field, id string) (*Image, error) {
	snapshot, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	workers := r.workerImages(snapshot)
	if worker, ok := lo.Find(workers, func(w workerImage) bool { return w.id == id }); ok {
		return worker.image(), nil
	}
	osImage, osErr := lookup.Cached(ctx, r.provider.cache, r.reads, cacheKeyOSImages,
		lookup.NotEmpty(r.provider.api.ListOSImages),
		func(images []bizfly.OSImage) (*Image, error) {
			r.offer(images)
			if found, ok := lo.Find(images, func(i bizfly.OSImage) bool { return i.ID == id }); ok {
				return osImageOf(found), nil
			}
			return nil, &lookup.NotFoundError{Field: field, Value: id}
		})
	if osErr == nil {
		return osImage, nil
	}
	custom, customErr := r.fromCustomImages(ctx, one(field, id, "custom image", customImageActive,
		lo.Map(workers, func(w workerImage, _ int) string { return fmt.Sprintf("%s (%s)", w.id, w.image().Name) })))
	if customErr == nil {
		return custom, nil
	}
	// "Not found" is certain only when every source has answered.
	if snapshot.ClusterUnknown && len(workers) == 0 {
		return nil, catalog.ErrClusterUnknown
	}
	for _, err := range []error{osErr, customErr} {
		if !lookup.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, customErr
}

func (r *resolution) byOS(ctx context.Context, field, value string,
	selector *v1alpha1.OSImageSelector) (*Image, error) {
	return lookup.Cached(ctx, r.provider.cache, r.reads, cacheKeyOSImages, lookup.NotEmpty(r.provider.api.ListOSImages),
		func(images []bizfly.OSImage) (*Image, error) {
			r.offer(images)
			matching := lo.Filter(images, func(i bizfly.OSImage, _ int) bool {
				return strings.EqualFold(i.Distribution, selector.Distribution) && strings.EqualFold(i.Version, selector.Version)
			})
			if len(matching) == 0 {
				return nil, &lookup.NotFoundError{Field: field, Value: value, Available: lookup.Shorten(osCandidates(images,
					selector.Distribution))}
			}
			// The cloud lists each version once; if it lists two, the answer must not depend on their order.
			first := slices.MinFunc(matching, func(a, b bizfly.OSImage) int { return strings.Compare(a.ID, b.ID) })
			return osImageOf(first), nil
		})
}

func (r *resolution) offer(images []bizfly.OSImage) {
	r.offered[cacheKeyOSImages] = lo.SliceToMap(images, func(i bizfly.OSImage) (string, time.Time) {
		return i.ID, time.Time{}
	})
}

// osCandidates are the versions of the distribution or, where there is no such distribution, everything.
func osCandidates(images []bizfly.OSImage, distribution string) []string {
	same := lo.Filter(images, func(i bizfly.OSImage, _ int) bool {
		return strings.EqualFold(i.Distribution, distribution)
	})
	return lo.Map(lo.Ternary(len(same) > 0, same, images), func(i bizfly.OSImage, _ int) string { return osName(i) })
}

func osName(i bizfly.OSImage) string { return strings.TrimSpace(i.Distribution + " " + i.Version) }

// osImageOf leaves the size of a public image unknown, since the API does not state it.
func osImageOf(i bizfly.OSImage) *Image {
	return &Image{ID: i.ID, Name: osName(i), Type: v1alpha1.ImageTypeImage, PublicOS: true}
}
