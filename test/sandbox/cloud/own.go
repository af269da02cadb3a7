// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// What users make and delete themselves beside servers: snapshots, images, networks, firewalls and keys. The catalog is
// where they are; each change makes a list anew, since answers under way may still refer to the one before.

func (c *Cloud) mayChange(q *call) *reply {
	if q.project == c.opts.Project {
		return nil
	}
	rejection := problem(http.StatusForbidden, "Project "+q.project+" is not yours")
	return &rejection
}

// decodeChange decodes a request that adds to what the project owns, or changes it.
func decodeChange[T any](c *Cloud, q *call) (T, *reply) {
	request, rejection := decode[T](q)
	if rejection == nil {
		rejection = c.mayChange(q)
	}
	return request, rejection
}

// find returns the resource of an id if the call may see it.
func find[T interface{ owned(*call) bool }](q *call, resources map[string]T, kind, id string) (T, *reply) {
	found, exists := resources[id]
	if !exists || !found.owned(q) {
		return found, notFound(kind, id)
	}
	return found, nil
}

func notFound(kind, id string) *reply {
	rejection := problem(http.StatusNotFound, kind+" "+id+" could not be found.")
	return &rejection
}

// withdraw answers a deletion: done where take has found the thing.
func (c *Cloud) withdraw(q *call, missing string, done reply, take func(id string) bool) reply {
	if q.project != c.opts.Project || !take(q.vars[0]) {
		return problem(http.StatusNotFound, fmt.Sprintf(missing, q.vars[0]))
	}
	return done
}

// with returns the lists with one thing more in a region.
func with[E any](lists map[string][]E, region string, made E) map[string][]E {
	return inRegion(lists, region, append(slices.Clone(lists[region]), made))
}

// inRegion returns the lists with another one in a region.
func inRegion[E any](lists map[string][]E, region string, list []E) map[string][]E {
	changed := maps.Clone(lists)
	changed[region] = list
	return changed
}

// replaced returns the lists with something in the place of what matches.
func replaced[E any](lists map[string][]E, region string, by E, matches func(E) bool) map[string][]E {
	list := slices.Clone(lists[region])
	for i := range list {
		if matches(list[i]) {
			list[i] = by
		}
	}
	return inRegion(lists, region, list)
}

// without takes what matches out of a region and reports whether there was such a thing.
func without[E any](lists *map[string][]E, region string, matches func(E) bool) bool {
	list := slices.DeleteFunc(slices.Clone((*lists)[region]), matches)
	found := len(list) < len((*lists)[region])
	*lists = inRegion(*lists, region, list)
	return found
}
