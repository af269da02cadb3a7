// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"reflect"
	"strings"

	"github.com/samber/lo"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// settings are rows of a table, of the settings that have one.
func settings(head []string, cells func(*options.Setting) []string) (string, error) {
	table := row(head...) + row(lo.RepeatBy(len(head), func(int) string { return "---" })...)
	for _, s := range options.Table() {
		if c := cells(s); c != nil {
			table += row(c...)
		}
	}
	return table, nil
}

// optionTable has what is set when the controller starts, and not by a key of the tuning ConfigMap.
func optionTable() (string, error) {
	return settings([]string{"variable", "default", ""}, func(s *options.Setting) []string {
		if s.Secret || s.Variable == "" || s.Key != "" {
			return nil
		}
		name := code(s.Variable)
		if s.Flag != flagOf(strings.Replace(s.Variable, "BIZFLY_CLOUD", "BIZFLY", 1)) {
			name += ", " + code("--"+s.Flag)
		}
		return []string{name, lo.Ternary(s.Default == "", "-", code(s.Default)), s.Doc}
	})
}

func secretTable() (string, error) {
	return settings([]string{"variable", ""}, func(s *options.Setting) []string {
		return lo.Ternary(s.Secret, []string{code(s.Variable), s.Doc}, nil)
	})
}

func tuningTable() (string, error) {
	return settings([]string{"key and option", "default", "bounds", ""}, func(s *options.Setting) []string {
		if s.Key == "" {
			return nil
		}
		return []string{code(s.Key) + lo.Ternary(s.Variable == "", "", ", "+code(s.Variable)),
			lo.CoalesceOrEmpty(s.Default, lo.Ternary(s.Key == "prices", "the built-in table", "none")),
			lo.Ternary(s.Unit == "duration", "", s.Unit+": ") + s.Bounds, s.Doc}
	})
}

func flagOf(variable string) string { return strings.ReplaceAll(strings.ToLower(variable), "_", "-") }

// coreOptionList has the variables of Karpenter core with their defaults. Core names each flag like its variable; that is what tells the
// variable, and the field of its options that holds the default.
func coreOptionList() (string, error) {
	core, flags := &coreoptions.Options{}, flag.NewFlagSet("", flag.ContinueOnError)
	core.AddFlags(&coreoptions.FlagSet{FlagSet: flags})
	list := ""
	flags.VisitAll(func(f *flag.Flag) {
		value, field := f.DefValue, reflect.ValueOf(core).Elem().FieldByNameFunc(func(name string) bool {
			return strings.EqualFold(name, strings.ReplaceAll(f.Name, "-", ""))
		})
		if value == "" && field.IsValid() && field.Kind() == reflect.Bool {
			value = fmt.Sprint(field.Bool()) // a flag of core's own kind, which registers no default
		}
		list += fmt.Sprintf("- `%s=%s`\n", strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), value)
	})
	return list, nil
}
