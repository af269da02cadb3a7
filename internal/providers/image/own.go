// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const bytesPerGiB = 1 << 30

// template is an image or a snapshot of the project itself, in a form that does not depend on which of the two it is.
type template struct {
	Image  *Image
	status string
	usable bool
	// created is zero, and so before all others, where the cloud does not say.
	created time.Time
}

// choice returns one of the templates, or why it is none of them.
type choice func(all []template) (*Image, error)

func (r *resolution) fromCustomImages(ctx context.Context, choose choice) (*Image, error) {
	return lookup.Cached(ctx, r.provider.cache, r.reads, cacheKeyCustomImages, r.provider.api.ListCustomImages,
		func(images []*gobizfly.CustomImage) (*Image, error) {
			return choose(templates(r, cacheKeyCustomImages, images, customImageTemplate))
		})
}

func (r *resolution) fromSnapshots(ctx context.Context, choose choice) (*Image, error) {
	return lookup.Cached(ctx, r.provider.cache, r.reads, cacheKeySnapshots, r.provider.api.ListSnapshots,
		func(snapshots []*gobizfly.Snapshot) (*Image, error) {
			return choose(templates(r, cacheKeySnapshots, snapshots, snapshotTemplate))
		})
}

// one chooses the usable template of an id. Others that there are, beside the templates, are named where it is missing.
func one(field, id, kind, usable string, others []string) choice {
	return func(all []template) (*Image, error) {
		found, ok := lo.Find(all, func(t template) bool { return t.Image.ID == id })
		if ok && found.usable {
			return found.Image, nil
		}
		miss := &lookup.NotFoundError{Field: field, Value: id, Available: lookup.Shorten(append(others,
			lo.FilterMap(all, func(t template, _ int) (string, bool) {
				return fmt.Sprintf("%s (%s)", t.Image.ID, t.Image.Name), t.usable
			})...))}
		if ok {
			miss.Remedy = fmt.Sprintf("the %s with this id is %s; wait until it is %s", kind, found.status, usable)
		}
		return nil, miss
	}
}

// newest chooses the newest usable template of a name. Of several that were created in the same second the ids decide,
// so that the answer does not depend on their order.
func newest(field, pattern, kind string) choice {
	return func(all []template) (*Image, error) {
		all = lo.Filter(all, func(t template, _ int) bool { return t.usable })
		matching := lo.Filter(all, func(t template, _ int) bool { return lookup.Glob(pattern, t.Image.Name) })
		if len(matching) == 0 {
			return nil, &lookup.NotFoundError{Field: field, Value: pattern, Remedy: "names are those of the project's " + kind,
				Available: lookup.Shorten(lo.Map(all, func(t template, _ int) string { return t.Image.Name }))}
		}
		return slices.MaxFunc(matching, func(a, b template) int {
			return cmp.Or(a.created.Compare(b.created), strings.Compare(a.Image.ID, b.Image.ID))
		}).Image, nil
	}
}

// templates leaves out what is null or has no id, with which no server could be created.
func templates[E any](r *resolution, list string, all []*E, convert func(*E) template) []template {
	r.offered[list] = dates{}
	return lo.FilterMap(all, func(e *E, _ int) (template, bool) {
		if e == nil {
			return template{}, false
		}
		t := convert(e)
		if t.usable {
			r.offered[list][t.Image.ID] = t.created
		}
		return t, t.Image.ID != ""
	})
}

// customImageTemplate states how much disk the image needs: its minimum, and in any case as much as it holds. The size
// of a raw image is what it holds; that of others is compressed, and less.
func customImageTemplate(i *gobizfly.CustomImage) template {
	return template{
		Image: &Image{ID: i.ID, Name: i.Name, Type: v1alpha1.ImageTypeImage,
			MinDiskGiB: max(i.MinDisk, gib(i.Size), gib(i.VirtualSize))},
		status: i.Status, usable: i.Status == customImageActive, created: bizfly.Time(i.CreatedAt),
	}
}

func snapshotTemplate(s *gobizfly.Snapshot) template {
	return template{
		// A volume from a snapshot is at least as large as the volume of which the snapshot was taken.
		Image:  &Image{ID: s.ID, Name: s.Name, Type: v1alpha1.ImageTypeSnapshot, MinDiskGiB: max(s.Size, 0)},
		status: s.Status, usable: s.Status == snapshotAvailable, created: bizfly.Time(s.CreateAt),
	}
}

func gib(bytes int) int { return max((bytes+bytesPerGiB-1)/bytesPerGiB, 0) }
