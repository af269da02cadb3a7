// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// schema is what a definition says of a field.
type schema = apiextensionsv1.JSONSchemaProps

// ours are the definitions of this provider's own kinds.
func ours() []*apiextensionsv1.CustomResourceDefinition {
	return lo.Filter(apis.CRDs, func(c *apiextensionsv1.CustomResourceDefinition, _ int) bool { return c.Spec.Group == v1alpha1.Group })
}

// fieldTables has each kind of ours with all fields of its spec and status.
func fieldTables() (string, error) {
	page := &strings.Builder{}
	for _, crd := range ours() {
		names, version := crd.Spec.Names, crd.Spec.Versions[0]
		root := version.Schema.OpenAPIV3Schema
		fmt.Fprintf(page, "## %s\n\n%s\n\n", names.Kind, strings.Join(strings.Fields(root.Description), " "))
		fmt.Fprintf(page, "`apiVersion: %s/%s`, %s; short for it: %s.\n\n", crd.Spec.Group, version.Name,
			lo.Ternary(crd.Spec.Scope == apiextensionsv1.ClusterScoped, "of the cluster, in no namespace", "in a namespace"),
			strings.Join(lo.Map(names.ShortNames, func(name string, _ int) string { return code(name) }), ", "))
		for _, part := range []string{"spec", "status"} {
			object := root.Properties[part]
			fmt.Fprintf(page, "### %s: %s\n\n", names.Kind, part)
			for _, rule := range object.XValidations {
				fmt.Fprintf(page, "- Rule: %s.\n", strings.TrimSuffix(rule.Message, "."))
			}
			page.WriteString(lo.Ternary(len(object.XValidations) > 0, "\n", "") + row("field", "type", "") + row("---", "---", "---"))
			writeFields(page, "", object)
			page.WriteString("\n")
		}
	}
	return page.String(), nil
}

// kubernetesTypes are objects of Kubernetes' own, by their fields: its reference has these.
var kubernetesTypes = []string{"conditions[].", "images[].requirements[]."}

// writeFields writes a row for each field of an object, and for those of the objects in it.
func writeFields(page *strings.Builder, prefix string, object schema) {
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		field := object.Properties[name]
		inner, suffix := nested(field)
		page.WriteString(row(code(prefix+name)+lo.Ternary(slices.Contains(object.Required, name), " (required)", ""),
			map[string]string{"": "", "[]": "list of ", ".*": "map of "}[suffix]+typeOf(*inner), describe(name, field)))
		if below := prefix + name + suffix + "."; !slices.Contains(kubernetesTypes, below) {
			writeFields(page, below, *inner)
		}
	}
}

// nested is the object in a field, in a list or a map of objects too, and what its path is written with.
func nested(field schema) (object *schema, suffix string) {
	switch {
	case field.Items != nil && field.Items.Schema != nil:
		return field.Items.Schema, "[]"
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return field.AdditionalProperties.Schema, ".*"
	}
	return &field, ""
}

func typeOf(field schema) string {
	switch {
	case field.XIntOrString:
		return "quantity"
	case field.Format == "date-time":
		return "time"
	case len(field.Enum) > 0:
		return strings.Join(lo.Map(field.Enum, func(value apiextensionsv1.JSON, _ int) string { return code(plain(value)) }), ", ")
	}
	return field.Type
}

// describe is the description without the field's name, with its bounds, its default and the rules about its fields. The messages of rules
// for one value, and how long a text or a list may be, are left to the API server: they explain themselves.
func describe(name string, field schema) string {
	inner, _ := nested(field)
	text := lo.CoalesceOrEmpty(field.Description, inner.Description)
	if first, rest, found := strings.Cut(text, " "); found && strings.EqualFold(first, name) {
		runes := []rune(strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are "))
		text = string(unicode.ToUpper(runes[0])) + string(runes[1:])
	}
	switch {
	case field.Minimum != nil && field.Maximum != nil:
		text += fmt.Sprintf(" From %v to %v.", *field.Minimum, *field.Maximum)
	case field.Minimum != nil:
		text += fmt.Sprintf(" At least %v.", *field.Minimum)
	case field.Maximum != nil:
		text += fmt.Sprintf(" At most %v.", *field.Maximum)
	}
	if field.Default != nil {
		text += " Default: " + code(plain(*field.Default)) + "."
	}
	for _, rule := range lo.Ternary(len(inner.Properties) > 0, inner.XValidations, nil) {
		text += " Rule: " + strings.TrimSuffix(rule.Message, ".") + "."
	}
	return text
}

// plain is a value without the quotes of a text.
func plain(value apiextensionsv1.JSON) string {
	var text string
	if json.Unmarshal(value.Raw, &text) == nil {
		return text
	}
	return string(value.Raw)
}
