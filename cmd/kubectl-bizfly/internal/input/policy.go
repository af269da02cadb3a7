// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/awslabs/operatorpkg/object"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/samber/lo"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/config"
)

// policy is a ValidatingAdmissionPolicy. Its variables are computed in their order, whether a validation needs them or
// not.
type policy struct {
	spec admissionregistrationv1.ValidatingAdmissionPolicySpec
	// programs are its expressions, compiled.
	programs map[string]cel.Program
}

// nodePoolPolicy is that with which the chart rejects NodePools that could never get a node.
var nodePoolPolicy = sync.OnceValue(func() *policy {
	spec := object.Unmarshal[admissionregistrationv1.ValidatingAdmissionPolicy](config.NodePoolPolicy).Spec
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	env := lo.Must(base.Extend(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType))))
	p := &policy{spec: spec, programs: map[string]cel.Program{}}
	compile := func(expression string) {
		compiled, issues := env.Compile(expression)
		lo.Must0(issues.Err())
		p.programs[expression] = lo.Must(env.Program(compiled))
	}
	for _, condition := range spec.MatchConditions {
		compile(condition.Expression)
	}
	for _, variable := range spec.Variables {
		compile(variable.Expression)
	}
	for _, validation := range spec.Validations {
		compile(validation.Expression)
		if validation.MessageExpression != "" {
			compile(validation.MessageExpression)
		}
	}
	return p
})

// apply says why the policy rejects a new object, with all of its reasons.
func (p *policy) apply(created map[string]any) error {
	variables := map[string]any{}
	known := map[string]any{"object": created, "oldObject": nil, "request": map[string]any{"operation": "CREATE"}, "variables": variables}
	for _, condition := range p.spec.MatchConditions {
		if matches, err := p.evaluate(condition.Expression, known); err != nil || matches != types.True {
			return err
		}
	}
	for _, variable := range p.spec.Variables {
		value, err := p.evaluate(variable.Expression, known)
		if err != nil {
			return err
		}
		variables[variable.Name] = value
	}
	var reasons []string
	for _, validation := range p.spec.Validations {
		reason, err := p.reasonOf(validation, known)
		if err != nil {
			return err
		}
		reasons = append(reasons, reason)
	}
	if reasons = lo.Compact(reasons); len(reasons) > 0 {
		return errors.New(strings.Join(reasons, "; "))
	}
	return nil
}

// reasonOf is the message of a validation that rejects; empty where it does not.
func (p *policy) reasonOf(validation admissionregistrationv1.Validation, known map[string]any) (string, error) {
	valid, err := p.evaluate(validation.Expression, known)
	if err != nil || valid == types.True {
		return "", err
	}
	if validation.MessageExpression == "" {
		return validation.Message, nil
	}
	message, err := p.evaluate(validation.MessageExpression, known)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(message.Value()), nil
}

func (p *policy) evaluate(expression string, known map[string]any) (ref.Val, error) {
	value, _, err := p.programs[expression].Eval(known)
	return value, err
}
