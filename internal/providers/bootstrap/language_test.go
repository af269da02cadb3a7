// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The language of templates", func() {
	DescribeTable("should reject by name and place", func(template, where, what string) {
		invalid := invalidOf(validate(custom("#!/bin/bash\n" + template)))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonInvalidUserData))
		Expect(invalid.Message).To(And(HavePrefix("spec.userData, "+where), ContainSubstring(what)))
		Expect(provider().Render(ctx, input(custom("#!/bin/bash\n"+template)))).Error().To(MatchError(invalid.Message))
	},
		Entry("define", "\n{{ define `x` }}a{{ end }}", "line 3, ", "define is not allowed"),
		Entry("template", "{{ define `x` }}a{{ end }}\n{{ template `x` }}", "line 3, ", "template and block are not allowed"),
		Entry("block", "{{ block `x` . }}a{{ end }}", "line 2, ", "template and block are not allowed"),
		Entry("a variable", "{{ $x := .NodeName }}", "line 2, ", "variables of your own are not allowed"),
		Entry("a variable in a branch", "{{ if .NodeName }}{{ with $x := .NodeName }}{{ end }}{{ end }}", "line 2, ",
			"variables of your own are not allowed"),
		Entry("an assignment", "{{ range $x := .NetworkIDs }}{{ $x = `a` }}{{ end }}", "line 2, ", "variables of your own are not allowed"),
		Entry("print", "{{ print .NodeName }}", "line 2, column 4", "the function print is not allowed"),
		Entry("println", "{{ println .NodeName }}", "line 2, column 4", "the function println is not allowed"),
		Entry("html", "{{ .NodeName | html }}", "line 2, column 16", "the function html is not allowed"),
		Entry("call", "{{ call .NodeName }}", "line 2, column 4", "the function call is not allowed"),
		Entry("slice", "{{ slice .NodeName 1 }}", "line 2, column 4", "the function slice is not allowed"),
		Entry("a range over a number", "{{ range 5 }}{{ end }}", "line 2, ", "range takes a variable that is a list or a map"),
		Entry("a range over a variable that is a number", "{{ range .MaxPods }}{{ end }}", "line 2, ", "range takes a variable"),
		Entry("a range over a variable that is a text", "{{ range .CABundle }}{{ end }}", "line 2, ", "range takes a variable"),
		Entry("a range over the result of a function", "{{ range splitList `` .NodeName }}{{ end }}", "line 2, ", "range takes a variable"),
		Entry("a range over the dot", "{{ with .MaxPods }}{{ range . }}{{ end }}{{ end }}", "line 2, ", "range takes a variable"),
		Entry("a range over what a with names", "{{ with .Labels }}{{ range .x }}{{ end }}{{ end }}", "line 2, ", "range takes a variable"),
		Entry("ranges three levels deep", "{{ range .Values }}{{ range $.Values }}{{ if . }}{{ range $.Values }}{{ end }}{{ end }}{{ end }}{{ end }}",
			"line 2, ", "a range may be in one other range"),
		Entry("break", "{{ range .Values }}{{ break }}{{ end }}", "line 2, ", "break and continue are not allowed"),
		Entry("parentheses", "{{ quote (.NodeName | lower) }}", "line 2, ", "parentheses are not allowed; chain functions with |"),
		Entry("a field of parentheses", "{{ (index .Taints 0).Key }}", "line 2, ", "parentheses are not allowed"),
		Entry("an argument to a variable", "{{ .NodeName 5 }}", "line 2, ", "only a function takes arguments"),
		Entry("a function as an argument", "{{ quote lower }}", "line 2, ", "a function is no argument"),
		Entry("a method of a value", "{{ range .Taints }}{{ .ToString }}{{ end }}", "line 2, ", "cannot be rendered"),
	)
	DescribeTable("should accept", func(template, rendered string) {
		Expect(validate(custom(template))).To(Succeed())
		Expect(render(input(custom(template))).UserData).To(Equal(rendered))
	},
		Entry("branches", `{{ if false }}a{{ else if .NodeName }}b{{ else }}c{{ end }}{{ with .ClusterName }}{{ . }}{{ $.MaxPods }}{{ else }}d{{ end }}`, "bprod110"),
		Entry("a range in another, with variables of both",
			`{{ range $i, $id := .NetworkIDs }}{{ range $name, $value := $.Values }}{{ $i }}{{ $id }}{{ $name }}{{ $value }} {{ end }}{{ end }}`,
			"0network-1teamstorage 1network-2teamstorage "),
		Entry("an empty range", `{{ range .EvictionSoft }}a{{ else }}b{{ end }}`, "b"),
		Entry("a range over what is looked up", `{{ range .CACertHashes }}{{ . }}{{ end }}`, authorityHash),
		Entry("comments", `{{/* why */}}a{{- /* how */ -}} b`, "ab"),
		Entry("a chain of functions", `{{ .NodeName | upper | replace "-" "_" | printf "%s=%s" "NAME" | squote }}`, "'NAME=GENERAL_X7K2P_0A1B2C3D'"),
	)
	It("should count each branch, whatever the inputs decide", func() {
		nodeClass := custom("{{ if hasPrefix `nodepool-` .NodeName | not }}" + strings.Repeat("{{ range .Labels }}{{ range $.Labels }}"+
			strings.Repeat("{{ if toYaml $.Labels | not }}{{ end }}", 100)+"{{ end }}{{ end }}", 3) + "{{ end }}")
		in := input(nodeClass)
		for i := range 100 {
			in.Labels[fmt.Sprint("label-", i)] = "x"
		}
		_, err := provider().Render(ctx, in)
		Expect(invalidOf(err).Message).To(ContainSubstring("more than 4096 actions and functions"))
	})
	It("should look up once what a template uses many times", func() {
		nodeClass := custom(strings.Repeat("{{ .JoinToken }}\n", 20) + "{{ range .Values }}{{ $.JoinToken }}{{ end }}")
		nodeClass.Spec.JoinToken = &v1alpha1.JoinToken{}
		render(input(nodeClass))
		Expect(tokens.requests).To(HaveLen(1))
	})
	DescribeTable("should end within a second and 64 MiB", func(template string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		err := validate(custom("#!/bin/sh\n" + template))
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		Expect(invalidOf(err).Reason).To(Equal(bootstrap.ReasonInvalidUserData))
		Expect(took).To(BeNumerically("<", time.Second))
		Expect((after.TotalAlloc-before.TotalAlloc)>>20).To(BeNumerically("<", 64), "MiB")
	},
		Entry("parts that call themselves with lists of what they got", "{{define `r`}}{{$a := splitList `` .}}{{$b := splitList `` .}}{{$c := splitList `` .}}"+
			"{{template `r` .}}{{end}}{{- $a := `"+strings.Repeat("a", 64)+"` }}{{ $b := print"+strings.Repeat(" $a", 16)+" }}{{- template `r` (print"+
			strings.Repeat(" $b", 16)+") }}"),
		Entry("lists that are written again and again", "{{ $l := splitList `` `"+strings.Repeat("a", 4000)+"` }}{{ $x := `` }}{{ range 4090 }}"+
			strings.Repeat("{{$x = toYaml $l}}", 800)+"{{ end }}"),
		Entry("a variable that doubles", "{{ $x := `xxxxxxxx` }}"+strings.Repeat("{{ $x = printf `%s%s` $x $x }}", 60)),
		Entry("a loop over a number", "{{ range 9000000000000000000 }}{{ end }}"),
	)

	// longest is the longest text that a template can hold, and most the longest list.
	longest, most := strings.Repeat(`'"\n`, 16*1024), slices.Repeat([]string{"\x00"}, 16*1024)
	DescribeTable("should bound memory and result of the function", func(function string, arguments ...any) {
		call := reflect.ValueOf(bootstrap.Functions[function])
		values := make([]reflect.Value, 0, len(arguments))
		for _, argument := range arguments {
			values = append(values, reflect.ValueOf(argument))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		results := call.Call(values)
		runtime.ReadMemStats(&after)
		Expect((after.TotalAlloc-before.TotalAlloc)>>20).To(BeNumerically("<", 8), "MiB")
		if len(results) == 2 && !results[1].IsNil() {
			return
		}
		if kind := results[0].Kind(); kind == reflect.String || kind == reflect.Slice {
			Expect(results[0].Len()).To(BeNumerically("<=", 16*1024))
		}
	}, boundedCalls(map[string][][]any{
		"toYaml": {{longest}, {most}}, "toJson": {{longest}, {most}}, "b64enc": {{longest}}, "indent": {{16 * 1024, "a"}, {16 * 1024, longest}, {1, longest}},
		"nindent": {{16 * 1024, "a"}, {16 * 1024, longest}}, "quote": {{longest}, {most}}, "squote": {{longest}, {most}},
		"join": {{longest, most}, {"", most}, {",", most}}, "splitList": {{"", longest}, {"", longest[:16*1024]}}, "sha256sum": {{longest}},
		"default": {{"", "a"}}, "lower": {{longest}, {strings.Repeat("Ⱥ", 8*1024)}}, "upper": {{longest}, {strings.Repeat("ɐ", 8*1024)}}, "trim": {{longest}},
		"replace": {{"'", longest, longest}, {"", longest, longest}, {"", "", longest}}, "contains": {{"a", longest}}, "hasPrefix": {{"a", longest}},
		"hasSuffix": {{"a", longest}}, "printf": {{"%s", longest}, {strings.Repeat("%s", 3), longest, longest, longest}, {longest}, {"%s", most}},
	}))
})

// boundedCalls are entries for each function and its arguments. A function without any is an entry that fails.
func boundedCalls(arguments map[string][][]any) []TableEntry {
	var entries []TableEntry
	for _, name := range slices.Sorted(maps.Keys(bootstrap.Functions)) {
		if len(arguments[name]) == 0 {
			entries = append(entries, Entry(name+", whose arguments are not in this table", name))
		}
		for i, values := range arguments[name] {
			entries = append(entries, Entry(fmt.Sprintf("%s, case %d", name, i+1), append([]any{name}, values...)...))
		}
	}
	return entries
}
