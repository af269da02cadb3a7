// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// definitions are the custom resource definitions whose spec is the value of each name in a group of values.
var definitions = map[string]string{
	"nodeClasses": "karpenter.bizflycloud.vn_bizflynodeclasses.yaml",
	"nodePools":   "karpenter.sh_nodepools.yaml",
}

// writeSchema writes the part of values.schema.json that checks the specs of NodePools and BizflyNodeClasses, so that
// Helm rejects what the API server would, before anything is installed.
func writeSchema() error {
	const path = chart + "/values.schema.json"
	before, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the schema of the chart's values: %w", err)
	}
	after := before
	for group, file := range definitions {
		spec, err := specSchema(filepath.Join("config", "crd", file))
		if err != nil {
			return err
		}
		if after, err = replaceSpec(after, group, spec); err != nil {
			return err
		}
	}
	if bytes.Equal(before, after) {
		return nil
	}
	return os.WriteFile(path, after, 0o644) //nolint:gosec // a file of the repository
}

// specSchema is the schema of the spec in a file of a definition. The chart has defaults for what is required at its top,
// and an empty spec.
func specSchema(file string) (map[string]any, error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, fmt.Errorf("reading a definition: %w", err)
	}
	definition := apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	converted := convert(&spec, true)
	converted["type"] = []string{"object", "null"}
	return converted, nil
}

// convert returns what JSON Schema (draft 7) can check of a structural schema: no rules in CEL, and no formats, which are
// Kubernetes' own. Fields that are not named are rejected, which the API server would drop silently. Nothing is required on the
// way to nodeClassRef and requirements and in the former, because the chart adds what is missing of these two.
func convert(s *apiextensionsv1.JSONSchemaProps, defaulted bool) map[string]any {
	out := convertValue(s)
	// The API server checks what is required after it has filled in defaults.
	required := lo.Filter(s.Required, func(name string, _ int) bool { return s.Properties[name].Default == nil })
	if len(required) > 0 && !defaulted {
		out["required"] = required
	}
	if len(s.Properties) > 0 {
		properties := map[string]any{}
		for name, property := range s.Properties {
			properties[name] = convert(&property, defaulted && (name == "template" || name == "spec" || name == "nodeClassRef"))
		}
		out["properties"], out["additionalProperties"] = properties, false
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out["additionalProperties"] = convert(s.AdditionalProperties.Schema, false)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out["items"] = convert(s.Items.Schema, false)
	}
	return out
}

// convertValue returns what the schema checks of the value itself, whatever it contains.
func convertValue(s *apiextensionsv1.JSONSchemaProps) map[string]any {
	out := map[string]any{}
	switch {
	case s.XIntOrString:
		out["type"] = []string{"integer", "string"}
	case s.Type != "":
		out["type"] = s.Type
	}
	set(out, "minLength", s.MinLength)
	set(out, "maxLength", s.MaxLength)
	set(out, "minItems", s.MinItems)
	set(out, "maxItems", s.MaxItems)
	set(out, "maxProperties", s.MaxProperties)
	set(out, "minimum", s.Minimum)
	set(out, "maximum", s.Maximum)
	if s.Pattern != "" {
		out["pattern"] = s.Pattern
	}
	if len(s.Enum) > 0 {
		out["enum"] = lo.Map(s.Enum, func(value apiextensionsv1.JSON, _ int) any { return json.RawMessage(value.Raw) })
	}
	return out
}

func set[T int64 | float64](out map[string]any, key string, value *T) {
	if value != nil {
		out[key] = ptr.Deref(value, 0)
	}
}

// replaceSpec puts the schema of a spec in the place of the one that the group has, and leaves every other line as it is.
func replaceSpec(text []byte, group string, spec map[string]any) ([]byte, error) {
	const begin, end = "      \"additionalProperties\": ", "\n    }"
	encoded, err := json.MarshalIndent(spec, "      ", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the schema of %s: %w", group, err)
	}
	at := bytes.Index(text, []byte("\n    \""+group+"\": {\n"))
	if at < 0 {
		return nil, fmt.Errorf("the schema of the chart's values has no definition %s", group)
	}
	from := bytes.Index(text[at:], []byte("\n"+begin))
	to := bytes.Index(text[at:], []byte(end))
	if from < 0 || to < from {
		return nil, errors.New("the definition " + group + " does not end with its additionalProperties")
	}
	out := append([]byte{}, text[:at+from+1+len(begin)]...)
	return append(append(out, encoded...), text[at+to:]...), nil
}
