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

package lookup

import (
	"time"

	"github.com/patrickmn/go-cache"
)

// Cache keeps lists; *cache.Cache of go-cache and *Lists are ones.
type Cache interface {
	// Get returns what is kept and still good.
	Get(key string) (any, bool)
	// SetDefault keeps a list for as long as the cache keeps lists.
	SetDefault(key string, items any)
}

// Lists is a Cache whose time can be changed while it is used.
type Lists struct {
	cache *cache.Cache
	ttl   func() time.Duration
}

var _ Cache = (*Lists)(nil)

// NewLists keeps lists in the cache for the active TTL.
func NewLists(c *cache.Cache, ttl func() time.Duration) *Lists { return &Lists{cache: c, ttl: ttl} }

// Get implements Cache. A list that would be kept for longer than the TTL was stored with a longer one and has expired.
func (l *Lists) Get(key string) (any, bool) {
	items, until, ok := l.cache.GetWithExpiration(key)
	return items, ok && time.Until(until) <= l.ttl()
}

// SetDefault implements Cache.
func (l *Lists) SetDefault(key string, items any) { l.cache.Set(key, items, l.ttl()) }
