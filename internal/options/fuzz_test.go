// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"reflect"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// FuzzSettings sets each setting to any text: what is invalid is an error and changes nothing; what is valid can be set again with the same
// result.
func FuzzSettings(f *testing.F) {
	for _, seed := range []string{
		"5m", "-1s", "true", "0.3", "1e309", "NaN", "a,b,,c", "disks: {SSD: 4}", "p2.2c_4g, nix.2c_4g",
		"[{pattern: '(', class: Quota}]", "[{pattern: x, class: Quota}]",
		"https://10.0.0.1:6443/", "*.bizflycloud.vn", "",
	} {
		for i := range options.Table() {
			f.Add(i, seed)
		}
	}
	f.Fuzz(func(t *testing.T, index int, text string) {
		table := options.Table()
		if len(text) > 4096 || index < 0 || index >= len(table) {
			t.Skip("no setting")
		}
		setting, before, after := table[index], options.Defaults(), options.Defaults()
		if err := setting.Apply(after, text); err != nil {
			for _, other := range table {
				if !reflect.DeepEqual(other.Pointer(before), other.Pointer(after)) {
					t.Errorf("%s%s=%q changes %s%s: %v", setting.Variable, setting.Key, text, other.Variable, other.Key, err)
				}
			}
			return
		}
		again := options.Defaults()
		if err := setting.Apply(again, text); err != nil {
			t.Errorf("%s%s=%q is valid only once: %v", setting.Variable, setting.Key, text, err)
		}
		if setting.Key != "prices" && !reflect.DeepEqual(again, after) { // each table has a number of its own
			t.Errorf("%s%s=%q has two values", setting.Variable, setting.Key, text)
		}
	})
}
