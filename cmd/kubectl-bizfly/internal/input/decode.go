// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/samber/lo"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// wrongType is how the decoder says that a value has another type than its field.
var wrongType = regexp.MustCompile(`cannot unmarshal (\w+) into Go struct field \w+\.(\S+) of type (\S+)`)

// embedded are the parts of a path that are no fields, but types of Go.
var embedded = regexp.MustCompile(`\b[A-Z]\w*\.`)

// decodeStrictly decodes an object. Its errors name the path of the field, as an API server does.
func decodeStrictly(object map[string]any, into runtime.Object) error {
	strict, err := kjson.UnmarshalStrict(lo.Must(json.Marshal(object)), into)
	if err == nil {
		return errors.Join(strict...)
	}
	if path, value := badQuantity(object, ""); path != "" {
		return fmt.Errorf("%s: %q is no quantity, write for example 500m or 2Gi", path, value)
	}
	if found := wrongType.FindStringSubmatch(err.Error()); found != nil {
		hint := ""
		switch {
		case found[3] == "string" && (found[1] == "number" || found[1] == "bool"):
			hint = ": write it in quotes"
		case found[1] == "string":
			hint = ": write it without quotes"
		}
		return fmt.Errorf("%s must be %s, not %s%s", embedded.ReplaceAllString(found[2], ""), found[3], found[1], hint)
	}
	return err
}

// quantities are the fields of a pod that hold quantities by resource.
var quantities = []string{"requests", "limits", "overhead"}

// badQuantity finds a request or a limit that is no quantity.
func badQuantity(value any, path string) (where, text string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(path+"."+key, ".")
			if parent := path[strings.LastIndex(path, ".")+1:]; slices.Contains(quantities, parent) {
				if written := fmt.Sprint(v[key]); v[key] != nil {
					if _, err := resource.ParseQuantity(written); err != nil {
						return below, written
					}
				}
				continue
			}
			if where, text = badQuantity(v[key], below); where != "" {
				return where, text
			}
		}
	case []any:
		for i := range v {
			if where, text = badQuantity(v[i], fmt.Sprintf("%s[%d]", path, i)); where != "" {
				return where, text
			}
		}
	}
	return "", ""
}

// definition is the schema of a custom resource.
type definition struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	// rules compiles those of x-kubernetes-validations: most commands need those of few kinds.
	rules func() *cel.Validator
}

var definitions = parseDefinitions()

func parseDefinitions() map[runtimeschema.GroupVersionKind]definition {
	all := map[runtimeschema.GroupVersionKind]definition{}
	for _, crd := range apis.CRDs {
		for _, version := range crd.Spec.Versions {
			internal := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
				panic(err) // no build that passed its tests has one
			}
			structural, err := schema.NewStructural(internal)
			if err != nil {
				panic(err)
			}
			validator, _, err := validation.NewSchemaValidator(internal)
			if err != nil {
				panic(err)
			}
			gvk := runtimeschema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			all[gvk] = definition{structural, validator, sync.OnceValue(func() *cel.Validator {
				return cel.NewValidator(structural, true, celconfig.PerCallLimit)
			})}
		}
	}
	return all
}

// applyDefinition does with a custom resource what the API server does: it fills in the defaults and validates.
func applyDefinition(gvk runtimeschema.GroupVersionKind, object *unstructured.Unstructured) error {
	known, ok := definitions[gvk]
	if !ok {
		return nil
	}
	defaulting.Default(object.Object, known.structural)
	if errs := validation.ValidateCustomResource(nil, object.Object, known.validator); len(errs) > 0 {
		return errs.ToAggregate()
	}
	errs, _ := known.rules().Validate(context.Background(), nil, known.structural, object.Object, nil, celconfig.RuntimeCELCostBudget)
	return errs.ToAggregate()
}
