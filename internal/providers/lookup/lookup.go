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

// Package lookup is how providers find things by name in the cloud's lists: from a cache as long as that has them, and
// with an answer that says what there is when it does not.
package lookup

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
)

// maxAvailable bounds how many names an error lists, so that a project with hundreds of images stays readable.
const maxAvailable = 10

// Cached lets choose decide from the cached list and, when that list does not satisfy it, from one that is read now:
// what a cached list lacks may have been made since, and only a fresh one can say that something does not exist. The list
// is kept for the cache's default expiration, is shared, and must not be changed.
func Cached[E, R any](
	ctx context.Context, c Cache, key string, read func(context.Context) ([]E, error), choose func([]E) (R, error),
) (R, error) {
	if cached, ok := c.Get(key); ok {
		if result, err := choose(cached.([]E)); err == nil {
			return result, nil
		}
	}
	items, err := read(ctx)
	if err != nil {
		var none R
		return none, fmt.Errorf("listing %s, %w", key, err)
	}
	c.SetDefault(key, items)
	return choose(items)
}

// Shorten sorts names, drops empty and repeated ones, and says how many it left out beyond the first ten.
func Shorten(names []string) []string {
	names = lo.Uniq(lo.Compact(names))
	slices.Sort(names)
	if len(names) <= maxAvailable {
		return names
	}
	return append(names[:maxAvailable:maxAvailable], fmt.Sprintf("and %d more", len(names)-maxAvailable))
}
