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
	"slices"
	"strings"
)

func (c *Cloud) listFlavors(q *call) reply {
	flavors := []Flavor{}
	for _, flavor := range c.opts.Catalog.Flavors[q.region] {
		// Without new=true the API shows only what it sold before the generations.
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

func (c *Cloud) listServerTypes(*call) reply {
	return ok(map[string]any{"server_types": append([]ServerType{}, c.opts.Catalog.ServerTypes...)})
}

func (c *Cloud) listImages(q *call) reply {
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

func (c *Cloud) snapshots(q *call) []Snapshot {
	snapshots := []Snapshot{}
	if q.project != c.opts.Project {
		return snapshots
	}
	for _, snapshot := range c.opts.Catalog.Snapshots[q.region] {
		snapshot.ProjectID = q.project
		if volume := q.query.Get("volume_id"); volume == "" || volume == snapshot.VolumeID {
			snapshots = append(snapshots, snapshot)
		}
	}
	return snapshots
}

func (c *Cloud) listSnapshots(q *call) reply { return ok(c.snapshots(q)) }

func (c *Cloud) getSnapshot(q *call) reply {
	for _, snapshot := range c.snapshots(q) {
		if snapshot.ID == q.vars[0] {
			return ok(snapshot)
		}
	}
	return problem(http.StatusNotFound, "Snapshot "+q.vars[0]+" could not be found.")
}

func (c *Cloud) listKeyPairs(*call) reply {
	pairs := []map[string]SSHKey{}
	for _, key := range c.opts.Catalog.SSHKeys {
		pairs = append(pairs, map[string]SSHKey{"keypair": key})
	}
	return ok(pairs)
}

func (c *Cloud) getKeyPair(q *call) reply {
	for _, key := range c.opts.Catalog.SSHKeys {
		if key.Name == q.vars[0] {
			return ok(key)
		}
	}
	return problem(http.StatusNotFound, "Keypair "+q.vars[0]+" not found")
}
