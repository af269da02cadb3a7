// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package edits generates the edits of a custom resource from the schema of its definition: each field set, changed and unset, with
// values that are valid, at a limit, beyond it, and of nothing that exists.
package edits

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// item is the part of a path that stands for the first element of a list.
const item = "[0]"

// maxGenerated bounds the strings that are made to exceed a limit.
const maxGenerated = 20000

// Edit sets one field of a spec, or unsets it.
type Edit struct {
	// Path leads from the spec to the field; the first element of a list is "[0]".
	Path []string
	// Value is nil where the field is unset.
	Value any
}

// Field is the path, for example rootDisk.size or zones.
func (e Edit) Field() string { return strings.ReplaceAll(strings.Join(e.Path, "."), "."+item, item) }

// Top is the field of the spec that the path begins with.
func (e Edit) Top() string { return e.Path[0] }

// String is the edit as YAML, shortened.
func (e Edit) String() string {
	value, _ := json.Marshal(e.Value)
	if len(value) > 80 {
		value = fmt.Appendf(value[:80], "... (%d bytes)", len(value))
	}
	return e.Field() + ": " + string(value)
}

// Overlaps reports whether one of the edits changes a part of what the other changes.
func (e Edit) Overlaps(other Edit) bool {
	shorter := min(len(e.Path), len(other.Path))
	return slices.Equal(e.Path[:shorter], other.Path[:shorter])
}

// Schema is the schema of a spec with values for those fields for which it does not say which there are.
type Schema struct {
	root  apiextensionsv1.JSONSchemaProps
	known map[string][]any
	edits []Edit
	// required is by the field of an object what must be set in it.
	required map[string]map[string]any
}

// New generates the edits of the spec of a definition. Known are values by field, without "[0]": a string needs some, or a rule or the
// cloud would reject all that can be made up. For a list they are those of its elements.
func New(crd *apiextensionsv1.CustomResourceDefinition, known map[string][]any) (*Schema, error) {
	s := &Schema{root: crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], known: known, required: map[string]map[string]any{}}
	return s, s.object(nil, s.root)
}

// Edits are all of them. Each field is unset by one.
func (s *Schema) Edits() []Edit { return s.edits }

// Fields are the fields of the spec itself, with their descriptions.
func (s *Schema) Fields() map[string]string {
	fields := map[string]string{}
	for name, property := range s.root.Properties {
		fields[name] = property.Description
	}
	return fields
}

func (s *Schema) add(path []string, values ...any) {
	for _, value := range append(values, nil) {
		s.edits = append(s.edits, Edit{Path: slices.Clone(path), Value: value})
	}
}

func (s *Schema) walk(path []string, schema apiextensionsv1.JSONSchemaProps) error {
	switch {
	case schema.Type == "object" && schema.Properties != nil:
		s.add(path, map[string]any{})
		return s.object(path, schema)
	case schema.Type == "array" && schema.Items.Schema.Type == "object":
		return s.objects(path, schema)
	}
	values, err := s.values(path, schema)
	s.add(path, values...)
	return err
}

func (s *Schema) object(path []string, schema apiextensionsv1.JSONSchemaProps) error {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if err := s.walk(append(slices.Clone(path), name), schema.Properties[name]); err != nil {
			return err
		}
	}
	required := map[string]any{}
	for _, name := range schema.Required {
		below := append(slices.Clone(path), name)
		if len(schema.Properties[name].Properties) > 0 {
			required[name] = s.required[Edit{Path: below}.Field()]
			continue
		}
		values, err := s.values(below, schema.Properties[name])
		if err != nil {
			return err
		}
		required[name] = values[0]
	}
	s.required[Edit{Path: path}.Field()] = required
	return nil
}

// objects also makes lists of none, of two, and of too many.
func (s *Schema) objects(path []string, schema apiextensionsv1.JSONSchemaProps) error {
	first := append(slices.Clone(path), item)
	if err := s.walk(first, *schema.Items.Schema); err != nil {
		return err
	}
	var items []any
	for _, edit := range s.edits {
		if edit.Value != nil && len(edit.Path) == len(first)+1 && slices.Equal(edit.Path[:len(first)], first) {
			object := runtime.DeepCopyJSON(s.required[Edit{Path: first}.Field()])
			object[edit.Path[len(first)]] = edit.Value
			items = append(items, object)
		}
	}
	s.add(path, lists(items, schema.MaxItems)...)
	return nil
}

// lists are lists of items: none, two, the same twice, and too many.
func lists(items []any, most *int64) []any {
	made := []any{[]any{}, []any{items[0], items[min(1, len(items)-1)]}, []any{items[0], items[0]}}
	if most != nil {
		made = append(made, slices.Repeat([]any{items[0]}, int(*most)+1))
	}
	return made
}

func (s *Schema) values(path []string, schema apiextensionsv1.JSONSchemaProps) ([]any, error) {
	name := strings.ReplaceAll(Edit{Path: path}.Field(), item, "")
	known := slices.Clip(s.known[name])
	var made []any
	switch {
	case len(schema.Enum) > 0:
		for _, value := range schema.Enum {
			var word any
			if err := json.Unmarshal(value.Raw, &word); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			made = append(made, word)
		}
		return append(made, "Other"), nil
	case schema.Type == "boolean":
		return []any{true, false}, nil
	case schema.Type == "integer" && schema.Minimum != nil && schema.Maximum != nil:
		least, most := int64(*schema.Minimum), int64(*schema.Maximum)
		return []any{least, most, (least + most) / 2, least - 1, most + 1}, nil
	case len(known) == 0:
		return nil, fmt.Errorf("%s: the schema does not say which values there are: name some", name)
	case schema.Type == "array":
		for _, value := range known {
			made = append(made, []any{value})
		}
		return append(made, lists(known, schema.MaxItems)...), nil
	case schema.Type == "object":
		return append(known, dictionaries(schema.MaxProperties)...), nil
	case schema.Type == "string":
		return append(known, texts(schema.MaxLength)...), nil
	}
	return known, nil
}

// dictionaries are maps without a key, and with too many.
func dictionaries(most *int64) []any {
	made := []any{map[string]any{}}
	if most != nil {
		many := map[string]any{}
		for i := range *most + 1 {
			many[fmt.Sprintf("key-%d", i)] = "1"
		}
		made = append(made, many)
	}
	return made
}

// texts are strings that name nothing: an empty one, one of unusual characters, and one that is too long.
func texts(most *int64) []any {
	made := []any{"", "not known/é {}"}
	if most != nil && *most < maxGenerated {
		made = append(made, strings.Repeat("x", int(*most)+1))
	}
	return made
}

// Apply returns a copy of the spec with the edits. What an object requires is set where an edit creates one.
func (s *Schema) Apply(spec map[string]any, edits ...Edit) map[string]any {
	spec = runtime.DeepCopyJSON(spec)
	for _, edit := range edits {
		s.apply(spec, edit)
	}
	return spec
}

func (s *Schema) apply(spec map[string]any, edit Edit) {
	object := spec
	for i := 0; i < len(edit.Path)-1; i++ {
		name := edit.Path[i]
		if edit.Path[i+1] == item {
			list, _ := object[name].([]any)
			if len(list) == 0 {
				if edit.Value == nil {
					return
				}
				list = []any{runtime.DeepCopyJSON(s.required[Edit{Path: edit.Path[:i+2]}.Field()])}
				object[name] = list
			}
			if i++; i == len(edit.Path)-1 {
				list[0] = runtime.DeepCopyJSONValue(edit.Value)
				if edit.Value == nil {
					delete(object, name)
				}
				return
			}
			object = list[0].(map[string]any)
			continue
		}
		child, _ := object[name].(map[string]any)
		if child == nil {
			if edit.Value == nil {
				return
			}
			child = runtime.DeepCopyJSON(s.required[Edit{Path: edit.Path[:i+1]}.Field()])
			object[name] = child
		}
		object = child
	}
	last := edit.Path[len(edit.Path)-1]
	if edit.Value == nil {
		delete(object, last)
		return
	}
	object[last] = runtime.DeepCopyJSONValue(edit.Value)
}
