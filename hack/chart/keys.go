/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// keysFile has the keys that the chart's templates know. Helm shows templates neither values.yaml nor the schema.
const keysFile = "files/keys.yaml"

// schema is the part of a JSON schema that names values.
type schema struct {
	Ref                  string            `json:"$ref"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	PropertyNames        struct {
		Enum []string `json:"enum"`
	} `json:"propertyNames"`
	Definitions map[string]schema `json:"definitions"`
}

// writeKeys writes the keys that the schema knows for the templates.
func writeKeys(_ context.Context, w *workspace) error {
	content, err := keys(w)
	if err != nil {
		return err
	}
	return os.WriteFile(w.chart(keysFile), content, 0o644) //nolint:gosec // sources that every user may read
}

func keys(w *workspace) ([]byte, error) {
	root, err := readSchema(w)
	if err != nil {
		return nil, err
	}
	content, err := yaml.Marshal(root.keys(root))
	return append([]byte("# Written by make generate from values.schema.json, for templates/_keys.tpl.\n"), content...), err
}

func readSchema(w *workspace) (schema, error) {
	root := schema{}
	text, err := os.ReadFile(w.chart("values.schema.json"))
	if err != nil {
		return root, err
	}
	if err := json.Unmarshal(text, &root); err != nil {
		return root, fmt.Errorf("values.schema.json: %w", err)
	}
	return root, nil
}

// keys are the keys of a group; true is a value, whose inner keys are either free or checked by the schema itself.
func (s schema) keys(root schema) map[string]any {
	known := map[string]any{}
	for key, property := range s.Properties {
		property = property.resolved(root)
		if known[key] = true; property.AdditionalProperties == nil && len(property.Properties) > 0 {
			known[key] = property.keys(root)
		}
	}
	delete(known, "global")
	return known
}

// resolved follows a reference to a definition.
func (s schema) resolved(root schema) schema {
	const prefix = "#/definitions/"
	if len(s.Ref) > len(prefix) {
		return root.Definitions[s.Ref[len(prefix):]]
	}
	return s
}
