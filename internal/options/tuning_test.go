// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// apply gives one key of the tuning ConfigMap.
func apply(key, value string) (*options.Options, error) {
	o := options.Defaults()
	setting, _ := lo.Find(options.Table(), func(s *options.Setting) bool { return s.Key == key })
	return o, setting.Apply(o, value)
}

var _ = Describe("Apply", func() {
	type durations struct {
		key         string
		get         func(*options.Options) time.Duration
		def         time.Duration
		least, most time.Duration
	}
	for _, row := range []durations{
		{"catalogInterval", func(v *options.Options) time.Duration { return v.CatalogInterval }, 10 * time.Minute, 10 * time.Second, 24 * time.Hour},
		{"garbageCollectionInterval", func(v *options.Options) time.Duration { return v.GarbageCollectionInterval }, 2 * time.Minute, time.Second, time.Hour},
		{"unavailableOfferingTTL", func(v *options.Options) time.Duration { return v.UnavailableOfferingTTL }, 3 * time.Minute, time.Second, 24 * time.Hour},
	} {
		Context(row.key, func() {
			It("should have its default", func() { Expect(row.get(options.Defaults())).To(Equal(row.def)) })
			for _, value := range []time.Duration{row.least, row.most} {
				It(fmt.Sprintf("should take %s", value), func() {
					values := lo.Must(apply(row.key, value.String()))
					Expect(row.get(values)).To(Equal(value))
				})
			}
			for _, value := range []string{
				(row.least - time.Nanosecond).String(), (row.most + time.Nanosecond).String(), "0s", "-1m", "5", "soon", "",
			} {
				It(fmt.Sprintf("should reject %q, naming the bounds", value), func() {
					values, err := apply(row.key, value)
					Expect(row.get(values)).To(Equal(row.def))
					Expect(err).To(MatchError(HavePrefix("use ")))
				})
			}
		})
	}

	DescribeTable("should take an overhead",
		func(value string, expected float64) {
			values := lo.Must(apply("vmMemoryOverheadPercent", value))
			Expect(values.MemoryOverheadPercent).To(Equal(expected))
		},
		Entry("of nothing", "0", 0.0), Entry("of a part", "0.125", 0.125), Entry("just below the bound", "0.499", 0.499),
	)
	DescribeTable("should ignore an overhead",
		func(value string) {
			values, err := apply("vmMemoryOverheadPercent", value)
			Expect(values.MemoryOverheadPercent).To(Equal(0.075))
			Expect(err).To(MatchError(ContainSubstring("0 to less than 0.5")))
		},
		Entry("below", "-0.1"), Entry("at the bound", "0.5"), Entry("in percent", "7.5"), Entry("with a unit", "7%"), Entry("that is no number", "NaN"),
		Entry("of no bound", "Inf"), Entry("that is empty", ""),
	)
	It("should take a part of a price table", func() {
		values := lo.Must(apply("prices", "gpus: {h100: 123456}"))
		Expect(values.Prices.GPUs).To(HaveKeyWithValue("h100", 123456.0))
		Expect(values.Prices.Categories).To(Equal(options.Defaults().Prices.Categories))
	})
	DescribeTable("should ignore a price table that is wrong, naming the field",
		func(text, says string) {
			values, err := apply("prices", text)
			Expect(values.Prices).To(Equal(options.Defaults().Prices))
			Expect(err).To(MatchError(ContainSubstring(says)))
		},
		Entry("no YAML", "{", "parsing"),
		Entry("a field that does not exist", "cpus: 1", `unknown field "cpus"`),
		Entry("a free GPU", "gpus: {a30: 0}", "gpus.a30 is 0"),
		Entry("nothing", "", "the price table is empty"),
	)
	It("should take names, in any order, with spaces, and once", func() {
		values := lo.Must(apply("hiddenFlavors", " p2.8c_16g, nix.2c_4g,, 2c_4g_basic ,p2.8c_16g"))
		Expect(values.HiddenFlavors).To(Equal([]string{"p2.8c_16g", "nix.2c_4g", "2c_4g_basic"}))
		values = lo.Must(apply("closedZones", "HN2, HN1"))
		Expect(values.ClosedZones).To(Equal([]string{"HN2", "HN1"}))
	})
	DescribeTable("should ignore a list with what can be no name, as a complete list, naming it",
		func(key, text, says string) {
			values, err := apply(key, text)
			Expect(values).To(Equal(options.Defaults()))
			Expect(err).To(MatchError(ContainSubstring(says)))
		},
		Entry("a pattern", "hiddenFlavors", "nix.2c_4g,p2.*", `"p2.*" is no flavor`),
		Entry("flavors between spaces", "hiddenFlavors", "p2.8c_16g nix.2c_4g", `"p2.8c_16g nix.2c_4g" is no flavor`),
		Entry("YAML", "hiddenFlavors", "p2.8c_16g: {hidden: true}", "is no flavor"),
		Entry("a name that is too long", "hiddenFlavors", strings.Repeat("a", 64), "no more than 63"),
		Entry("a zone", "closedZones", "HN1,HN/2", `"HN/2" is no zone`),
	)
})
