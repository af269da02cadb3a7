// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"
)

var _ = serverAPI.serve(
	on(http.MethodGet, "/images", (*Cloud).listImages, "os_images"),
	on(http.MethodGet, "/user/images", (*Cloud).listCustomImages),
)

func (c *Cloud) listImages(q *call) reply {
	if !strings.EqualFold(q.query.Get("os_images"), "true") {
		return *bad("os_images=True is required")
	}
	return ok(map[string]any{"os_images": append([]OSImage{}, c.opts.Catalog.Images[q.region]...)})
}

func (c *Cloud) listCustomImages(q *call) reply {
	images := []CustomImage{}
	for _, image := range c.opts.Catalog.CustomImages[q.region] {
		if q.project == c.opts.Project {
			image.Owner = q.project
			images = append(images, image)
		}
	}
	return ok(map[string]any{"images": images})
}
