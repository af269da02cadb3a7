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
	"errors"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// The table of values stands between these lines of the README.
const (
	tableBegin = "<!-- Written by make generate from values.yaml: begin -->"
	tableEnd   = "<!-- Written by make generate from values.yaml: end -->"
	// longDefault is how long a default may be and still be in the table.
	longDefault = 70
)

// value is one row of the table.
type value struct {
	path, doc, def string
}

// writeReadme writes the table of values into the chart's README.
func writeReadme(_ context.Context, w *workspace) error {
	source, err := os.ReadFile(w.chart("values.yaml"))
	if err != nil {
		return err
	}
	old, err := os.ReadFile(w.chart("README.md"))
	if err != nil {
		return err
	}
	text, err := readme(string(old), string(source))
	if err != nil {
		return err
	}
	return os.WriteFile(w.chart("README.md"), []byte(text), 0o644) //nolint:gosec // sources, for everybody
}

// readme is the README with the table of these values.
func readme(old, source string) (string, error) {
	values, err := documented(source)
	if err != nil {
		return "", err
	}
	before, rest, begun := strings.Cut(old, tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return "", fmt.Errorf("README.md has no place for the values: it needs the lines %s and %s", tableBegin, tableEnd)
	}
	var table strings.Builder
	table.WriteString("\n| Value | What it is | Default |\n|---|---|---|\n")
	for _, v := range values {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", v.path, strings.ReplaceAll(v.doc, "|", `\|`), strings.ReplaceAll(v.def, "|", `\|`))
	}
	return before + tableBegin + "\n" + table.String() + "\n" + tableEnd + after, nil
}

// documented reads the values that a comment beginning with "# --" documents, in their order. A comment's line
// "# @default -- text" replaces the default by a text.
func documented(source string) ([]value, error) {
	defaults := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(source), &defaults); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	var (
		values []value
		path   []string
		note   comment
	)
	for line := range strings.Lines(source) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			note.read(trimmed)
			continue
		}
		key, _, isKey := strings.Cut(trimmed, ":")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if !isKey || depth > len(path) {
			continue // inside of a value that is documented as a whole
		}
		path = append(path[:depth:depth], key)
		if note.doc == nil {
			continue
		}
		found, err := lookup(defaults, path)
		if err != nil {
			return nil, err
		}
		if note.def == "" {
			note.def = shown(found)
		}
		values = append(values, value{path: strings.Join(path, "."), doc: strings.Join(note.doc, " "), def: note.def})
		note = comment{}
	}
	return values, nil
}

// comment is what stands above a value.
type comment struct {
	doc []string
	def string
}

// read takes the next line in.
func (c *comment) read(line string) {
	text, isText := strings.CutPrefix(line, "# ")
	switch {
	case strings.HasPrefix(text, "-- "):
		*c = comment{doc: []string{strings.TrimPrefix(text, "-- ")}}
	case strings.HasPrefix(text, "@default -- "):
		c.def = strings.TrimPrefix(text, "@default -- ")
	case isText && c.doc != nil:
		c.doc = append(c.doc, strings.TrimSpace(text))
	default:
		*c = comment{}
	}
}

// lookup returns the value at a path.
func lookup(values map[string]any, path []string) (any, error) {
	var found any = values
	for _, key := range path {
		group, ok := found.(map[string]any)
		if ok {
			found, ok = group[key]
		}
		if !ok {
			return nil, errors.New("values.yaml: no value " + strings.Join(path, "."))
		}
	}
	return found, nil
}

// shown is a default in the table.
func shown(def any) string {
	text, err := json.Marshal(def)
	switch {
	case err != nil:
		return err.Error()
	case len(text) > longDefault:
		return "see [values.yaml](values.yaml)"
	}
	return "`" + string(text) + "`"
}
