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
	It("should keep lists for the active TTL, and drop those that were stored with a longer one", func() {
		inner, ttl := cache.New(cache.NoExpiration, 0), time.Hour
		lists := lookup.NewLists(inner, func() time.Duration { return ttl })
		lists.SetDefault("key", []string{"a"})
		_, until, _ := inner.GetWithExpiration("key")
		Expect(time.Until(until)).To(BeNumerically("~", time.Hour, time.Minute))
		_, ok := lists.Get("key")
		Expect(ok).To(BeTrue())
		ttl = time.Minute
		_, ok = lists.Get("key")
		Expect(ok).To(BeFalse())
	})
})
