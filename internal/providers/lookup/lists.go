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
	"sync/atomic"
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
	ttl   atomic.Int64
}

var _ Cache = (*Lists)(nil)

// NewLists keeps lists in the cache for its default expiration.
func NewLists(c *cache.Cache) *Lists {
	l := &Lists{cache: c}
	l.ttl.Store(int64(cache.DefaultExpiration))
	return l
}

// Get implements Cache.
func (l *Lists) Get(key string) (any, bool) { return l.cache.Get(key) }

// SetDefault implements Cache.
func (l *Lists) SetDefault(key string, items any) {
	l.cache.Set(key, items, time.Duration(l.ttl.Load()))
}

// SetTTL keeps lists for another time from now on; what is kept is dropped, since it was promised the old one. 0 means
// the default expiration of the cache.
func (l *Lists) SetTTL(ttl time.Duration) {
	if l.ttl.Swap(int64(ttl)) != int64(ttl) {
		l.cache.Flush()
	}
}
