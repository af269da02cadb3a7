// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
)

func TestLookup(t *testing.T) { suite.Run(t, "Lookup") }

var _ = Describe("Cached", func() {
	var (
		listCache *cache.Cache
		cloud     []string
		reads     int
		fails     error
	)
	BeforeEach(func() { listCache, cloud, reads, fails = cache.New(cache.NoExpiration, 0), []string{"web"}, 0, nil })
	find := func(name string) (string, error) {
		return lookup.Cached(context.Background(), listCache, lookup.Reads{}, "firewalls",
			func(context.Context) ([]string, error) {
				reads++
				return cloud, fails
			},
			func(all []string) (string, error) {
				if !lo.Contains(all, name) {
					return "", fmt.Errorf("no %s among %v", name, all)
				}
				return name, nil
			})
	}

	It("should read once for any number of hits", func() {
		for range 3 {
			Expect(find("web")).To(Equal("web"))
		}
		Expect(reads).To(Equal(1))
	})
	It("should find what was made after the list was cached", func() {
		Expect(find("web")).To(Equal("web"))
		cloud = append(cloud, "ssh")
		Expect(find("ssh")).To(Equal("ssh"))
		Expect(reads).To(Equal(2))
	})
	It("should report that something does not exist only after a fresh read", func() {
		Expect(find("web")).To(Equal("web"))
		Expect(find("ssh")).Error().To(MatchError("no ssh among [web]"))
		Expect(reads).To(Equal(2))
	})
	It("should not report that something does not exist when the fresh read fails", func() {
		Expect(find("web")).To(Equal("web"))
		fails = errors.New("gateway timeout")
		Expect(find("ssh")).Error().To(MatchError("listing firewalls: gateway timeout"))
		Expect(find("web")).To(Equal("web"), "what was read stays good")
	})
})

var _ = Describe("Shorten", func() {
	It("should sort, and drop what is empty or repeated", func() {
		Expect(lookup.Shorten([]string{"b", "", "a", "b"})).To(Equal([]string{"a", "b"}))
	})
	It("should name ten and count the others", func() {
		names := lo.Times(25, func(i int) string { return fmt.Sprintf("image-%02d", i) })
		Expect(lookup.Shorten(names)).To(And(HaveLen(11), HaveExactElements(append(lo.ToAnySlice(names[:10]), "and 15 more")...)))
	})
})

var _ = Describe("A glob", func() {
	DescribeTable("should match", func(pattern, name string) { Expect(lookup.Glob(pattern, name)).To(BeTrue()) },
		Entry("itself", "nix.2c_4g", "nix.2c_4g"),
		Entry("everything", "*", "anything"),
		Entry("nothing at all", "*", ""),
		Entry("a beginning", "nix.*", "nix.2c_4g"),
		Entry("an end", "*_dedicated", "4c_8g_dedicated"),
		Entry("a middle", "*c_8*", "4c_8g_dedicated"),
		Entry("several parts in their order", "p*.*c*g", "p2.4c_8g"),
		Entry("with nothing between", "a**b*", "ab"),
		Entry("a part that fits twice", "*a*ab", "aaab"),
	)
	DescribeTable("should not match", func(pattern, name string) { Expect(lookup.Glob(pattern, name)).To(BeFalse()) },
		Entry("another name", "nix.2c_4g", "nix.2c_4g_gpu"),
		Entry("another beginning", "nix.*", "p2.nix.2c_4g"),
		Entry("another end", "*_dedicated", "4c_8g_dedicated2"),
		Entry("parts in another order", "*b*a*", "ab"),
		Entry("a beginning that is also the end", "ab*ba", "aba"),
		Entry("another letter case", "NIX.*", "nix.2c_4g"),
		Entry("a name by nothing", "", "x"),
		Entry("a character that stands for itself", "nix.?c", "nix.2c"),
	)
})
