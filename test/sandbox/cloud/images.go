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
			return ok(map[string]any{"image": image, "token": stableID("download", image.ID)})
		}
	}
	return problem(http.StatusNotFound, "Image "+q.vars[0]+" could not be found.")
}
