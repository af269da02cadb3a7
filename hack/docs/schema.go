// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// schema is what a definition says of a field.
type schema = apiextensionsv1.JSONSchemaProps

// writeKind writes what a definition says of a kind: how it is found, its columns and its fields.
func writeKind(page *strings.Builder, crd *apiextensionsv1.CustomResourceDefinition) {
	version := crd.Spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	fmt.Fprintf(page, "## %s\n\n%s\n\n", crd.Spec.Names.Kind, oneLine(root.Description))
	fmt.Fprintf(page, "`apiVersion: %s/%s`, %s; short for it: %s.\n\n", crd.Spec.Group, version.Name,
		lo.Ternary(crd.Spec.Scope == apiextensionsv1.ClusterScoped, "of the cluster, in no namespace", "in a namespace"),
		strings.Join(lo.Map(crd.Spec.Names.ShortNames, func(name string, _ int) string { return "`" + name + "`" }), ", "))
	page.WriteString("| column of `kubectl get` | |\n| --- | --- |\n")
	for _, column := range version.AdditionalPrinterColumns {
		fmt.Fprintf(page, "| %s%s | %s |\n", strings.ToUpper(column.Name), lo.Ternary(column.Priority > 0, " (with `-o wide`)", ""), cell(column.Description))
	}
	page.WriteString("\n")
	for _, part := range []string{"spec", "status"} {
		field := root.Properties[part]
		writeObject(page, crd.Spec.Names.Kind, part, field)
	}
}

// writeObject writes a table of the object's fields, and then those of the objects in it.
func writeObject(page *strings.Builder, kind, path string, object schema) {
	fmt.Fprintf(page, "### %s: %s\n\n", kind, path)
	if text := oneLine(object.Description); text != "" {
		page.WriteString(text + "\n\n")
	}
	for _, rule := range object.XValidations {
		fmt.Fprintf(page, "- Rule: %s.\n", strings.TrimSuffix(rule.Message, "."))
	}
	if len(object.XValidations) > 0 {
		page.WriteString("\n")
	}
	page.WriteString("| field | type | default | |\n| --- | --- | --- | --- |\n")
	names := slices.Sorted(maps.Keys(object.Properties))
	for _, name := range names {
		field := object.Properties[name]
		fmt.Fprintf(page, "| `%s`%s | %s | %s | %s |\n", name, lo.Ternary(slices.Contains(object.Required, name), " (required)", ""),
			cell(typeOf(kind, path+"."+name, field)), defaultOf(field), cell(describe(field)))
	}
	page.WriteString("\n")
	for _, name := range names {
		field, suffix := nested(object.Properties[name])
		if field != nil && len(field.Properties) > 0 {
			writeObject(page, kind, path+"."+name+suffix, *field)
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

// typeOf is the type as people say it, with a link to the table of an object.
func typeOf(kind, path string, field schema) string {
	inner, suffix := nested(field)
	name := plainType(*inner)
	if len(inner.Properties) > 0 {
		heading := kind + ": " + path + suffix
		name = fmt.Sprintf("[object](#%s)", anchor(heading))
	}
	switch suffix {
	case "[]":
		return "list of " + name
	case ".*":
		return "map of " + name
	}
	return name
}

func plainType(field schema) string {
	switch {
	case field.XIntOrString:
		return "quantity"
	case field.Format == "date-time":
		return "time"
	case len(field.Enum) > 0:
		return strings.Join(lo.Map(field.Enum, func(value apiextensionsv1.JSON, _ int) string { return "`" + plain(value) + "`" }), ", ")
	}
	return field.Type
}

// anchor is the link that GitHub makes of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

func defaultOf(field schema) string {
	if field.Default == nil {
		return ""
	}
	return "`" + plain(*field.Default) + "`"
}

// plain is a value without the quotes of a text.
func plain(value apiextensionsv1.JSON) string {
	var text string
	if json.Unmarshal(value.Raw, &text) == nil {
		return text
	}
	compact := &bytes.Buffer{}
	if json.Compact(compact, value.Raw) != nil {
		return string(value.Raw)
	}
	return compact.String()
}

// describe is the description, and the rules.
func describe(field schema) string {
	text := oneLine(field.Description)
	if inner, suffix := nested(field); text == "" && suffix != "" {
		text = oneLine(inner.Description)
	}
	var rules []string
	for _, limits := range []*schema{&field, lo.Ternary(field.Items != nil && field.Items.Schema != nil && len(field.Items.Schema.Properties) == 0, itemOf(field),
		nil)} {
		if limits != nil {
			rules = append(rules, limitsOf(*limits, limits != &field)...)
		}
	}
	for _, rule := range field.XValidations {
		// Those of an object stand above its own table.
		if len(field.Properties) == 0 {
			rules = append(rules, strings.TrimSuffix(rule.Message, "."))
		}
	}
	if len(rules) > 0 {
		text += " Rules: " + strings.Join(rules, "; ") + "."
	}
	return strings.TrimSpace(text)
}

func itemOf(field schema) *schema {
	if field.Items == nil {
		return nil
	}
	return field.Items.Schema
}

func limitsOf(field schema, each bool) []string {
	var rules []string
	of := lo.Ternary(each, "each ", "")
	between := func(least, most *int64, what string) {
		switch {
		case least != nil && most != nil:
			rules = append(rules, fmt.Sprintf("%s%d to %d %s", of, *least, *most, what))
		case least != nil:
			rules = append(rules, fmt.Sprintf("%sat least %d %s", of, *least, what))
		case most != nil:
			rules = append(rules, fmt.Sprintf("%sat most %d %s", of, *most, what))
		}
	}
	between(field.MinLength, field.MaxLength, "characters")
	between(field.MinItems, field.MaxItems, "items")
	between(field.MinProperties, field.MaxProperties, "entries")
	if field.Minimum != nil {
		rules = append(rules, fmt.Sprintf("%sat least %v", of, *field.Minimum))
	}
	if field.Maximum != nil {
		rules = append(rules, fmt.Sprintf("%sat most %v", of, *field.Maximum))
	}
	if field.Pattern != "" && !field.XIntOrString {
		rules = append(rules, fmt.Sprintf("%smatching `%s`", of, field.Pattern))
	}
	return rules
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cell is a text that does not end its cell.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }
