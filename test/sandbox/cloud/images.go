// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"
)

func (c *Cloud) deleteCustomImage(q *call) reply {
	return c.withdraw(q, "Image %s could not be found.", reply{status: http.StatusNoContent}, func(id string) bool {
		return without(&c.opts.Catalog.CustomImages, q.region, func(i CustomImage) bool { return i.ID == id })
	})
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/images", (*Cloud).listImages, "os_images"),
	on(http.MethodGet, "/user/images", (*Cloud).listCustomImages),
	on(http.MethodGet, "/user/image/{id}", (*Cloud).getCustomImage),
	on(http.MethodDelete, "/user/image/{id}", (*Cloud).deleteCustomImage),
)

func (c *Cloud) listImages(q *call) reply {
	if !strings.EqualFold(q.query.Get("os_images"), "true") {
		return *bad("os_images=True is required")
	}
	return ok(map[string]any{"os_images": append([]OSImage{}, c.opts.Catalog.Images[q.region]...)})
}

func (c *Cloud) customImages(q *call) []CustomImage {
	images := []CustomImage{}
	if q.project != c.opts.Project {
		return images
	}
	for _, image := range c.opts.Catalog.CustomImages[q.region] {
		image.Owner = q.project
		images = append(images, image)
	}
	return images
}

func (c *Cloud) listCustomImages(q *call) reply {
	return ok(map[string]any{"images": c.customImages(q)})
}

func (c *Cloud) getCustomImage(q *call) reply {
	for _, image := range c.customImages(q) {
		if image.ID == q.vars[0] {
			// The list has paths; one image has a URL that the client downloads from as it is.
			image.File = q.base + image.File
			return ok(map[string]any{"image": image, "token": StableID("download", image.ID)})
		}
	}
	return problem(http.StatusNotFound, "Image "+q.vars[0]+" could not be found.")
}
