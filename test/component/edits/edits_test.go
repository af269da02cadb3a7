// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package edits_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/edits"
)

var _ = Describe("The edits of a schema", func() {
	definition := func(spec string) *apiextensionsv1.CustomResourceDefinition {
		GinkgoHelper()
		schema := apiextensionsv1.JSONSchemaProps{}
		Expect(json.Unmarshal([]byte(spec), &schema)).To(Succeed())
		return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": schema}},
			}}},
		}}
	}
	const toy = `{"type": "object", "properties": {
		"size": {"type": "integer", "minimum": 1, "maximum": 9},
		"disks": {"type": "array", "maxItems": 2, "items": {"type": "object", "required": ["name"], "properties": {
			"name": {"type": "string", "maxLength": 3}, "fast": {"type": "boolean"}}}}}}`

	It("should set each field to values within and beyond its limits, and unset it", func() {
		schema, err := edits.New(definition(toy), map[string][]any{"disks.name": {"a"}})
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(schema.Edits(), func(e edits.Edit, _ int) string { return e.String() })).To(ConsistOf(
			"size: 1", "size: 9", "size: 5", "size: 0", "size: 10", "size: null",
			"disks[0]: {}", "disks[0]: null", "disks[0].fast: true", "disks[0].fast: false", "disks[0].fast: null",
			`disks[0].name: "a"`, `disks[0].name: ""`, `disks[0].name: "not known/é {}"`, `disks[0].name: "xxxx"`, "disks[0].name: null",
			"disks: []", `disks: [{"fast":true,"name":"a"},{"fast":false,"name":"a"}]`, `disks: [{"fast":true,"name":"a"},{"fast":true,"name":"a"}]`,
			`disks: [{"fast":true,"name":"a"},{"fast":true,"name":"a"},{"fast":true,"name":"a"}]`, "disks: null",
		))
	})
	It("should set what an object requires where an edit creates it, on a copy of the spec", func() {
		schema, err := edits.New(definition(toy), map[string][]any{"disks.name": {"a"}})
		Expect(err).ToNot(HaveOccurred())
		base := map[string]any{"size": int64(3)}
		fast := edits.Edit{Path: []string{"disks", "[0]", "fast"}, Value: true}
		Expect(schema.Apply(base, fast)).To(Equal(map[string]any{"size": int64(3), "disks": []any{map[string]any{"name": "a", "fast": true}}}))
		Expect(schema.Apply(base, fast, edits.Edit{Path: []string{"size"}})).To(HaveLen(1))
		Expect(base).To(Equal(map[string]any{"size": int64(3)}))
		Expect(schema.Apply(base, edits.Edit{Path: fast.Path})).To(Equal(base), "there is nothing to unset")
	})
	It("should not leave out a field for which no value is known", func() {
		_, err := edits.New(definition(toy), nil)
		Expect(err).To(MatchError("disks.name: the schema does not say which values there are: name some"))
	})
})
