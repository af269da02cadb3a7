// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
)

var _ = serverAPI.serve(
	on(http.MethodGet, "/flavors", (*Cloud).listFlavors, "new"),
	on(http.MethodGet, "/flavor-generations", (*Cloud).listGenerations, "az", "category"),
	on(http.MethodGet, "/keypairs", (*Cloud).listKeyPairs),
	on(http.MethodGet, "/vpc-networks", (*Cloud).listVPCs),
	on(http.MethodGet, "/images", (*Cloud).listImages, "os_images"),
	on(http.MethodGet, "/user/images", (*Cloud).listCustomImages),
)

// gobizfly asks for generations at the login's URL.
var _ = loginAPI.serve(on(http.MethodGet, "/flavor-generations", (*Cloud).listGenerations, "az", "category"))

func (c *Cloud) listFlavors(q *call) reply {
	flavors := []Flavor{}
	for _, flavor := range c.opts.Catalog.Flavors[q.region] {
		// Without new=true the API shows only flavors from before the generations.
		if q.query.Get("new") == "true" || flavor.Generation == nil {
			flavors = append(flavors, flavor)
		}
	}
	return ok(flavors)
}

func (c *Cloud) listGenerations(q *call) reply {
	generations := []Generation{}
	seen := map[string]bool{}
	for _, flavor := range c.opts.Catalog.Flavors[q.region] {
		g := flavor.Generation
		if g == nil || seen[g.ID] {
			continue
		}
		seen[g.ID] = true
		zone, category := q.query.Get("az"), q.query.Get("category")
		if (zone == "" || slices.Contains(g.AvailabilityZones, zone)) && (category == "" || category == g.Category) {
			generations = append(generations, *g)
		}
	}
	slices.SortFunc(generations, func(a, b Generation) int { return strings.Compare(a.Code, b.Code) })
	return ok(map[string]any{"data": generations})
}

func (c *Cloud) listKeyPairs(*call) reply {
	pairs := []map[string]SSHKey{}
	for _, key := range c.opts.Catalog.SSHKeys {
		pairs = append(pairs, map[string]SSHKey{"keypair": key})
	}
	return ok(pairs)
}

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
