// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// staticCostLimit is what an API server lets a rule cost at most: StaticEstimatedCostLimit of its validation of definitions.
const staticCostLimit = 10_000_000

// rules compiles every rule of the schema as an API server of the minor version does, and returns how many there are and what
// is wrong with them. The schema occurs up to cardinality times in an object, 0 for as often as fits.
func rules(minor uint, at string, s *schema.Structural, isRoot bool, cardinality uint64) (count int, problems []string) {
	GinkgoHelper()
	if len(s.XValidations) > 0 {
		// So that one can go back to the version before, an API server accepts in new rules only what that one knows.
		env := environment.MustBaseEnvSet(version.MajorMinor(1, minor-1))
		compiled, err := cel.Compile(s, model.SchemaDeclType(s, isRoot), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
		Expect(err).NotTo(HaveOccurred(), at)
		for i, result := range compiled {
			times := cmp.Or(cardinality, result.MaxCardinality)
			switch {
			case result.Error != nil:
				problems = append(problems, fmt.Sprintf("%s: %s: %s", at, s.XValidations[i].Rule, result.Error.Detail))
			case result.MaxCost > staticCostLimit/times:
				problems = append(problems, fmt.Sprintf("%s: %s: costs %d, %d times", at, s.XValidations[i].Rule, result.MaxCost, times))
			}
		}
		count = len(compiled)
	}
	below := func(name string, child *schema.Structural, most *int64) {
		n, more := rules(minor, at+name, child, false, cardinality*uint64(lo.FromPtr(most)))
		count, problems = count+n, append(problems, more...)
	}
	limits := lo.FromPtr(s.ValueValidation)
	for name, property := range s.Properties {
		below("."+name, &property, lo.ToPtr[int64](1))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		below(".*", s.AdditionalProperties.Structural, limits.MaxProperties)
	}
	if s.Items != nil {
		below("[]", s.Items, limits.MaxItems)
	}
	return count, problems
}

// compile returns how many rules a definition has and what is wrong with them for a minor version.
func compile(minor uint, crd *apiextensionsv1.CustomResourceDefinition) (int, []string) {
	GinkgoHelper()
	internal := &apiextensions.JSONSchemaProps{}
	Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil)).To(Succeed())
	structural := lo.Must(schema.NewStructural(internal))
	return rules(minor, crd.Spec.Names.Kind, structural, true, 1)
}

// oldest is the oldest minor version of Kubernetes that the charts install on.
func oldest() uint {
	GinkgoHelper()
	chart := lo.Must(os.ReadFile("../../../charts/karpenter-provider-bizflycloud-crd/Chart.yaml"))
	found := regexp.MustCompile(`(?m)^kubeVersion: ">=1\.(\d+)\.`).FindSubmatch(chart)
	Expect(found).NotTo(BeNil())
	return uint(lo.Must(strconv.ParseUint(string(found[1]), 10, 32)))
}

var _ = Describe("The rules of the custom resource definitions", func() {
	// The newest is the one of the libraries of the tests.
	const newest = 36

	It("should compile within their cost limit on every supported minor of Kubernetes", func() {
		for minor := oldest(); minor <= newest; minor++ {
			for i, crd := range apis.CRDs {
				count, problems := compile(minor, crd)
				Expect(problems).To(BeEmpty(), "%s on Kubernetes 1.%d", crd.Name, minor)
				if i == 0 {
					Expect(count).To(BeNumerically(">=", 40))
				}
			}
		}
	})
	It("should be checked so that a rule which the oldest version does not know is found", func() {
		crd := apis.CRDs[1].DeepCopy()
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: "isIP(self.metadata.name)"}}
		_, problems := compile(oldest(), crd)
		Expect(problems).To(ConsistOf(ContainSubstring("undeclared reference to 'isIP'")))
		_, problems = compile(newest, crd)
		Expect(problems).To(BeEmpty())
	})
	It("should each have a message, and no field a bare pattern", func() {
		for _, crd := range apis.CRDs[:2] {
			var walk func(string, apiextensionsv1.JSONSchemaProps)
			walk = func(at string, s apiextensionsv1.JSONSchemaProps) {
				Expect(s.Pattern).To(BeEmpty(), at)
				for _, rule := range s.XValidations {
					Expect(rule.Message).NotTo(BeEmpty(), at)
					Expect(rule.Message).NotTo(ContainSubstring("^"), at)
				}
				for name, property := range s.Properties {
					walk(at+"."+name, property)
				}
				if s.Items != nil {
					walk(at+"[]", *s.Items.Schema)
				}
				if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
					walk(at+".*", *s.AdditionalProperties.Schema)
				}
			}
			walk(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
		}
	})
})
