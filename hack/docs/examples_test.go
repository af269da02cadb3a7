// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// given are the paths of the fields that a value has.
func given(path string, value any, paths map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			paths[path+name] = true
			given(path+name+".", inner, paths)
		}
	case []any:
		for _, inner := range value {
			given(strings.TrimSuffix(path, ".")+"[].", inner, paths)
		}
	}
}

var _ = Describe("The page of the fields", func() {
	It("should have an example of each field of a spec", func() {
		_, rest, found := strings.Cut(text(reference+"fields.md"), "\n## An example of each field\n")
		Expect(found).To(BeTrue())
		block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(rest)
		examples := map[string]map[string]bool{}
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			object := map[string]any{}
			Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
			kind := object["kind"].(string) //nolint:forcetypeassert // the page has it
			if examples[kind] == nil {
				examples[kind] = map[string]bool{}
			}
			given("", object["spec"], examples[kind])
		}
		for _, crd := range ours() {
			var expectExamples func(prefix string, object schema)
			expectExamples = func(prefix string, object schema) {
				for name, field := range object.Properties {
					Expect(examples[crd.Spec.Names.Kind]).To(HaveKey(prefix+name), crd.Spec.Names.Kind)
					inner, suffix := nested(field)
					expectExamples(prefix+name+suffix+".", *inner)
				}
			}
			expectExamples("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
		}
	})
})
