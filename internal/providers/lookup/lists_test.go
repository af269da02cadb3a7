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

package lookup_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
)

var _ = Describe("Lists", func() {
	// kept says until when a list is kept that is stored now; never is the zero time.
	kept := func(lists *lookup.Lists, inner *cache.Cache) time.Duration {
		lists.SetDefault("key", []string{"a"})
		_, until, ok := inner.GetWithExpiration("key")
		Expect(ok).To(BeTrue())
		return time.Until(until).Round(time.Minute)
	}

	It("should keep lists for the time of the cache, then for the one that is set, then for that of the cache again", func() {
		inner := cache.New(time.Hour, 0)
		lists := lookup.NewLists(inner)
		Expect(kept(lists, inner)).To(Equal(time.Hour))
		lists.SetTTL(5 * time.Minute)
		Expect(kept(lists, inner)).To(Equal(5 * time.Minute))
		lists.SetTTL(0)
		Expect(kept(lists, inner)).To(Equal(time.Hour))
	})
	It("should drop what was promised another time, and nothing when the time is the same", func() {
		lists := lookup.NewLists(cache.New(time.Hour, 0))
		lists.SetTTL(time.Minute)
		lists.SetDefault("key", []string{"a"})
		lists.SetTTL(time.Minute)
		_, ok := lists.Get("key")
		Expect(ok).To(BeTrue())
		lists.SetTTL(2 * time.Minute)
		_, ok = lists.Get("key")
		Expect(ok).To(BeFalse())
	})
})
