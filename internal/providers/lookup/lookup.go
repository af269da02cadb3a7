// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookup finds things by name in the cloud's lists: from a cache as long as that has them, and with an error
// that lists what there is where nothing matches.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
)

// maxAvailable bounds how many names an error lists, so that a project with hundreds of images stays readable.
const maxAvailable = 10

// NotFoundError says that the cloud answered and has nothing that a field of a NodeClass selects, or several where it
// selects one.
type NotFoundError struct {
	// Field is the path of the field, for example spec.imageSelectorTerms[0].alias.
	Field string
	// Value is what was asked for.
	Value string
	// Available is what there is instead, shortened.
	Available []string
	// Several is what matches where only one may.
	Several []string
	// Remedy is what to do about it where a list of names does not show it; may be empty.
	Remedy string
}

// Error names the field, the value, what is available and the remedy.
func (e *NotFoundError) Error() string {
	message := fmt.Sprintf("%s: nothing matches %q; available: %v", e.Field, e.Value, e.Available)
	if len(e.Several) > 0 {
		message = fmt.Sprintf("%s: %q must match one, and matches several: %v", e.Field, e.Value, e.Several)
	}
	if e.Remedy != "" {
		message += "; " + e.Remedy
	}
	return message
}

// IsNotFound reports whether the error is a NotFoundError. Any other says that it could not be found out.
func IsNotFound(err error) bool {
	var miss *NotFoundError
	return errors.As(err, &miss)
}

// Reads are the times of the reads that one resolution decided by, by what was read.
type Reads map[string]time.Time

// readGap is how far apart two reads of one list are at least that count as two.
const readGap = 15 * time.Second

// list is a list as it is kept, with the time of its read.
type list[E any] struct {
	items []E
	read  time.Time
}

// Cached lets choose decide from the cached list and, when that list does not satisfy it, from one that is read now:
// what a cached list lacks may have been created since, and only a fresh one can say that something does not exist. The
// list is kept for the cache's default expiration, is shared, and must not be changed. Its read is noted in reads.
func Cached[E, R any](
	ctx context.Context, c *cache.Cache, reads Reads, key string, read func(context.Context) ([]E, error),
	choose func([]E) (R, error),
) (R, error) {
	switch kept, _ := c.Get(key); kept := kept.(type) {
	case list[E]:
		reads[key] = kept.read
		if result, err := choose(kept.items); err == nil {
			return result, nil
		}
	case time.Time:
		reads[key] = kept
	}
	items, err := read(ctx)
	if err != nil {
		var none R
		return none, fmt.Errorf("listing %s: %w", key, err)
	}
	// A list that lacks something is read again by each resolution: several at once are one read.
	if now := time.Now(); now.Sub(reads[key]) >= readGap {
		reads[key] = now
	}
	c.SetDefault(key, list[E]{items, reads[key]})
	return choose(items)
}

// Expire makes Cached read these lists anew. Such a read counts as the one before where that was a moment ago.
func Expire(c *cache.Cache, reads Reads) {
	for key, read := range reads {
		c.SetDefault(key, read)
	}
}

// NotEmpty returns the read of a list that cannot be empty. The cloud does answer that, and what is selected would seem
// to be gone.
func NotEmpty[E any](read func(context.Context) ([]E, error)) func(context.Context) ([]E, error) {
	return func(ctx context.Context) ([]E, error) {
		items, err := read(ctx)
		if err == nil && len(items) == 0 {
			err = errors.New("the answer is empty, which cannot be true")
		}
		return items, err
	}
}

// Shorten sorts names, drops empty and repeated ones, and reports how many it left out beyond the first ten.
func Shorten(names []string) []string {
	names = lo.Uniq(lo.Compact(names))
	slices.Sort(names)
	if len(names) <= maxAvailable {
		return names
	}
	return append(names[:maxAvailable:maxAvailable], fmt.Sprintf("and %d more", len(names)-maxAvailable))
}

// Glob reports whether the name matches the pattern, in which * stands for any characters, none included, and
// everything else, letter case too, for itself.
func Glob(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	expression := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(name)
}
