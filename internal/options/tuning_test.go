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
		{"serverPollInterval", func(v *options.Options) time.Duration { return v.ServerPollInterval }, 2 * time.Second, 500 * time.Millisecond, 30 * time.Second},
		{"serverListMaxAge", func(v *options.Options) time.Duration { return v.ServerListMaxAge }, 5 * time.Second, 100 * time.Millisecond, time.Minute},
		{"unavailableOfferingTTL", func(v *options.Options) time.Duration { return v.UnavailableOfferingTTL }, 3 * time.Minute, time.Second, 24 * time.Hour},
		{"accountPause", func(v *options.Options) time.Duration { return v.AccountPause }, time.Minute, time.Second, time.Hour},
		{"serverIDWait", func(v *options.Options) time.Duration { return v.ServerIDWait }, 30 * time.Second, time.Second, 30 * time.Second},
		{"visibilityWindow", func(v *options.Options) time.Duration { return v.VisibilityWindow }, 2 * time.Minute, 5 * time.Second, time.Hour},
		{"garbageCollectionGrace", func(v *options.Options) time.Duration { return v.GarbageCollectionGrace }, 5 * time.Minute, 3*time.Minute + time.Nanosecond,
			24 * time.Hour},
	} {
		Context(row.key, func() {
			It("should have its default", func() { Expect(row.get(options.Defaults())).To(Equal(row.def)) })
			for _, value := range []time.Duration{row.least, row.most} {
				It(fmt.Sprintf("should take %s", value), func() {
					values, err := apply(row.key, value.String())
					Expect(err).ToNot(HaveOccurred())
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

	It("should not let a grace collect servers that are being launched", func() {
		values, err := apply("garbageCollectionGrace", "2m")
		Expect(values.GarbageCollectionGrace).To(Equal(5 * time.Minute))
		Expect(err).To(MatchError(And(ContainSubstring("LAUNCH_TIMEOUT"), ContainSubstring("3m,"))))
	})

	DescribeTable("should take an overhead",
		func(value string, expected float64) {
			values, err := apply("vmMemoryOverheadPercent", value)
			Expect(err).ToNot(HaveOccurred())
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
		values, err := apply("prices", "gpus: {h100: 123456}")
		Expect(err).ToNot(HaveOccurred())
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

	It("should take overrides of flavors", func() {
		values, err := apply("flavorOverrides", `
p2.2c_4g: {hidden: true}
odd: {category: Premium}
old: {generation: 4A, cpuVendor: AMD}
gpu.8c: {gpuName: NVIDIA A30, gpuCount: 2}
next: {generation: 2}
plain: {gpuCount: 0}`)
		Expect(err).ToNot(HaveOccurred())
		Expect(values.FlavorOverrides).To(Equal(map[string]options.FlavorOverride{
			"p2.2c_4g": {Hidden: true}, "odd": {Category: "premium"}, "old": {Generation: "4a", CPUVendor: "amd"},
			"next": {Generation: "2"}, "gpu.8c": {GPUName: "NVIDIA A30", GPUCount: lo.ToPtr(2)}, "plain": {GPUCount: lo.ToPtr(0)},
		}))
	})
	DescribeTable("should ignore the override of one flavor and keep the others",
		func(entry, says string) {
			values, err := apply("flavorOverrides", "good: {hidden: true}\nbad: "+entry)
			Expect(values.FlavorOverrides).To(Equal(map[string]options.FlavorOverride{"good": {Hidden: true}}))
			Expect(err).To(MatchError(And(ContainSubstring("[bad]"), ContainSubstring(says))))
		},
		Entry("a field that does not exist", "{hiden: true}", `unknown field "hiden"`),
		Entry("a word for a number", "{gpuCount: two}", "gpuCount"),
		Entry("too many GPUs", "{gpuCount: 65}", "0 to 64"),
		Entry("fewer than none", "{gpuCount: -1}", "0 to 64"),
		Entry("a category that is no label", "{category: very good}", "label value"),
		Entry("a generation that is no label", "{generation: 4 a}", "label value"),
		Entry("a vendor that is no label", "{cpuVendor: a/b}", "label value"),
		Entry("a name that is too long", "{gpuName: "+strings.Repeat("a", 64)+"}", "at most 63"),
	)
	DescribeTable("should ignore overrides that cannot be read",
		func(text string) {
			values, err := apply("flavorOverrides", text)
			Expect(values.FlavorOverrides).To(BeNil())
			Expect(err).To(MatchError(ContainSubstring("hidden, category")))
		},
		Entry("no YAML", "{"), Entry("a list", "[a, b]"), Entry("a flavor twice", "a: {hidden: true}\na: {hidden: false}"),
	)

})
