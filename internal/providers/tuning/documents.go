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

package tuning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
)

const (
	// maxGPUs bounds a count that somebody mistyped.
	maxGPUs = 64
	// maxPatterns bounds what every failed request is compared with.
	maxPatterns = 100
)

// parseOverrides ignores a flavor whose entry is wrong and no other: a typo in one must not show what another hides.
func parseOverrides(v *Values, raw string) []Problem {
	entries := map[string]json.RawMessage{}
	if err := yaml.UnmarshalStrict([]byte(raw), &entries); err != nil {
		return []Problem{problem("flavorOverrides", raw, "use YAML that gives for each flavor hidden, category, generation, cpuVendor, gpuName or gpuCount: "+err.Error())}
	}
	overrides := map[string]flavor.Override{}
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		override := flavor.Override{}
		err := strictly(entries[name], &override)
		if err == nil {
			err = checkOverride(&override)
		}
		if err != nil {
			problems = append(problems, problem(fmt.Sprintf("flavorOverrides[%s]", name), string(entries[name]), err.Error()))
			continue
		}
		overrides[name] = override
	}
	v.FlavorOverrides = overrides
	return problems
}

func checkOverride(override *flavor.Override) error {
	override.Category = strings.ToLower(strings.TrimSpace(override.Category))
	override.Generation = strings.ToLower(strings.TrimSpace(override.Generation))
	override.CPUVendor = strings.ToLower(strings.TrimSpace(override.CPUVendor))
	override.GPUName = strings.TrimSpace(override.GPUName)
	switch {
	case len(validation.IsValidLabelValue(override.Category)) > 0:
		return fmt.Errorf("category %q is no label value, use for example basic, premium, enterprise or dedicated", override.Category)
	case len(validation.IsValidLabelValue(override.Generation)) > 0:
		return fmt.Errorf("generation %q is no label value, use for example 2 or 4a", override.Generation)
	case len(validation.IsValidLabelValue(override.CPUVendor)) > 0:
		return fmt.Errorf("cpuVendor %q is no label value, use for example intel or amd", override.CPUVendor)
	case len(override.GPUName) > validation.LabelValueMaxLength:
		return fmt.Errorf("gpuName has %d characters, use at most %d", len(override.GPUName), validation.LabelValueMaxLength)
	case override.GPUCount != nil && (*override.GPUCount < 0 || *override.GPUCount > maxGPUs):
		return fmt.Errorf("gpuCount is %d, use 0 to %d", *override.GPUCount, maxGPUs)
	}
	return nil
}

// parsePatterns ignores a pattern that is wrong and no other.
func parsePatterns(v *Values, raw string) []Problem {
	var entries []json.RawMessage
	if err := yaml.UnmarshalStrict([]byte(raw), &entries); err != nil {
		return []Problem{problem("errorPatterns", raw, "use a YAML list whose entries have pattern and class: "+err.Error())}
	}
	if len(entries) > maxPatterns {
		return []Problem{problem("errorPatterns", fmt.Sprintf("%d entries", len(entries)), fmt.Sprintf("use at most %d", maxPatterns))}
	}
	var patterns []bizfly.ErrorPattern
	var problems []Problem
	for i, entry := range entries {
		given := struct {
			Pattern string       `json:"pattern"`
			Class   bizfly.Class `json:"class"`
		}{}
		err := strictly(entry, &given)
		pattern := bizfly.ErrorPattern{Pattern: given.Pattern, Class: given.Class}
		if err == nil {
			err = pattern.Validate()
		}
		if err != nil {
			problems = append(problems, problem(fmt.Sprintf("errorPatterns[%d]", i), string(entry), err.Error()))
			continue
		}
		patterns = append(patterns, pattern)
	}
	v.ErrorPatterns = patterns
	return problems
}

// strictly refuses fields that do not exist, since a mistyped one would be silent.
func strictly(raw json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
