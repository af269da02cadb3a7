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
	writeObject(page, crd.Spec.Names.Kind, "spec", root.Properties["spec"])
	writeTable(page, crd.Spec.Names.Kind, "status", root.Properties["status"], true)
}

// writeObject writes a table of the object's fields, and then a table of each object in it that has several.
func writeObject(page *strings.Builder, kind, path string, object schema) {
	writeTable(page, kind, path, object, path != "spec")
	if path != "spec" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		if field, suffix := nested(object.Properties[name]); len(field.Properties) > 1 {
			writeObject(page, kind, path+"."+name+suffix, *field)
		}
	}
}

// writeTable writes a table of the object's fields, and with deep also of the fields of the objects in it.
func writeTable(page *strings.Builder, kind, path string, object schema, deep bool) {
	fmt.Fprintf(page, "### %s: %s\n\n", kind, path)
	for _, rule := range object.XValidations {
		fmt.Fprintf(page, "- Rule: %s.\n", strings.TrimSuffix(rule.Message, "."))
	}
	if len(object.XValidations) > 0 {
		page.WriteString("\n")
	}
	page.WriteString("| field | type | |\n| --- | --- | --- |\n")
	writeRows(page, kind, path, "", object, deep, map[string]string{})
	page.WriteString("\n")
}

// kubernetesTypes are objects of Kubernetes' own: its reference has their fields.
var kubernetesTypes = []string{"status.conditions", "status.images[].requirements"}

// writeRows writes the fields of an object. Of objects that are alike, shown has the path of the first, by their fields.
func writeRows(page *strings.Builder, kind, path, prefix string, object schema, deep bool, shown map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		field := object.Properties[name]
		at := path + "." + prefix + name
		inner, suffix := nested(field)
		// What the controller writes needs no more than the names of the fields.
		status := path == "status" && len(inner.Properties) > 0 && !slices.Contains(kubernetesTypes, at)
		expand := len(inner.Properties) > 0 && !status && !slices.Contains(kubernetesTypes, at) && (deep || len(inner.Properties) == 1)
		text, kindOf := describe(name, field), typeOf(kind, at, field, deep || expand)
		if status {
			kindOf += ": " + strings.Join(lo.Map(slices.Sorted(maps.Keys(inner.Properties)), code), ", ")
		}
		if expand {
			for _, rule := range inner.XValidations {
				text += " Rule: " + strings.TrimSuffix(rule.Message, ".") + "."
			}
			fields := strings.Join(lo.Map(slices.Sorted(maps.Keys(inner.Properties)), func(name string, _ int) string {
				return name + ": " + inner.Properties[name].Description
			}), "\n")
			if first, ok := shown[fields]; ok {
				expand, text = false, text+" Fields: as of `"+first+"`."
			} else {
				shown[fields] = prefix + name + suffix
			}
		}
		fmt.Fprintf(page, "| `%s`%s | %s | %s |\n", prefix+name, lo.Ternary(slices.Contains(object.Required, name), " (required)", ""),
			cell(kindOf), cell(text))
		if expand {
			writeRows(page, kind, path, prefix+name+suffix+".", *inner, deep, shown)
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

// typeOf is the type as people say it, with a link to the table of an object that has one.
func typeOf(kind, path string, field schema, deep bool) string {
	inner, suffix := nested(field)
	name := plainType(*inner)
	if len(inner.Properties) > 0 && !deep {
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

// describe is the description without the field's name, its bounds and its default. The messages of rules for one field, and how long a
// text or a list may be, are left to the API server: they explain themselves.
func describe(name string, field schema) string {
	inner, suffix := nested(field)
	text := withoutName(name, oneLine(field.Description))
	if text == "" && suffix != "" {
		text = oneLine(inner.Description)
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
		text += " Default: `" + plain(*field.Default) + "`."
	}
	return strings.TrimSpace(text)
}

// withoutName is a doc comment without the name of the field, with which Go's begin.
func withoutName(name, text string) string {
	if first, rest, found := strings.Cut(text, " "); found && strings.EqualFold(first, name) {
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
		return capital(rest)
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cell is a text that does not end its cell.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }
