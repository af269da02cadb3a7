// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

var _ = Describe("The reference of the API", func() {
	var page string
	BeforeEach(func() {
		var err error
		page, err = referencePage()
		Expect(err).NotTo(HaveOccurred())
	})

	It("should have what a reader looks for", func() {
		for _, text := range []string{
			"### BizflyNodeClass: spec.rootDisk\n",
			"| `size` | quantity | From 20Gi to 16Ti, in steps of 10Gi. It is the node's ephemeral storage. Default: `40Gi`. |",
			"- Rule: set medium or volumeType, not both.",
			"| `billingPlan` | `OnDemand`, `SavingPlan` |",
			"| `snapshot.name` | string |", "| `joinToken.ttl` | string |", "### ProviderConfig: spec.rateLimits\n", "| `create.burst` | integer |",
			"| `delete` | object | For deletions. Fields: as of `create`. |", " Rule: set exactly one of snapshot.id and snapshot.name. |",
			"| `name` (required) | string |", "| `networks` | list of object: `id`, `name` |", "- `CloudUnavailable`: ",
			"| `DisksReady` |", "`RootDiskTooSmall`<br>", "`NothingLaunchable`<br>", "`UserDataInvalid`<br>", "`AwaitingZones`: ",
			"| `karpenter.bizflycloud.vn/instance-gpu-count` | The number of GPUs. |",
			"| `karpenter.bizflycloud.vn/bizflynodeclass-hash` |", "| `bizfly-karpenter-cluster-uid` |",
		} {
			Expect(page).To(ContainSubstring(text))
		}
	})
	It("should have every field, and the message of every rule about several", func() {
		rules := 0
		for _, crd := range apis.CRDs[:2] {
			var fields, messages []string
			var walk func(string, apiextensionsv1.JSONSchemaProps)
			walk = func(path string, s apiextensionsv1.JSONSchemaProps) {
				if slices.Contains(kubernetesTypes, strings.TrimSuffix(path, "[]")) {
					return
				}
				for _, rule := range lo.Ternary(len(s.Properties) > 0, s.XValidations, nil) {
					messages = append(messages, strings.TrimSuffix(oneLine(rule.Message), "."))
				}
				for name, field := range s.Properties {
					fields = append(fields, name)
					inner, suffix := nested(field)
					walk(path+"."+name+suffix, *inner)
				}
			}
			root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
			for _, part := range []string{"spec", "status"} {
				walk(part, root.Properties[part])
			}
			part := &strings.Builder{}
			writeKind(part, crd)
			Expect(fields).NotTo(BeEmpty(), crd.Name)
			for _, field := range fields {
				Expect(part.String()).To(MatchRegexp("(?m)^\\| (`([A-Za-z0-9.\\[\\]]+\\.)?"+field+"`( \\(required\\))? \\||.*object: .*`"+field+"`)"), crd.Name)
			}
			for _, message := range messages {
				Expect(part.String()).To(ContainSubstring(strings.ReplaceAll(message, "|", "\\|")))
			}
			rules += len(messages)
		}
		Expect(rules).To(BeNumerically(">", 10))
	})
	It("should link only to headings that it has", func() {
		anchors := map[string]bool{}
		for _, heading := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(page, -1) {
			anchors[anchor(heading[1])] = true
		}
		links := regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(page, -1)
		Expect(links).NotTo(BeEmpty())
		for _, link := range links {
			Expect(anchors).To(HaveKey(link[1]))
		}
	})
	It("should have complete tables", func() {
		separator := regexp.MustCompile(`\\\|`)
		columns := 0
		for _, line := range strings.Split(page, "\n") {
			if !strings.HasPrefix(line, "|") {
				columns = 0
				continue
			}
			count := strings.Count(separator.ReplaceAllString(line, ""), "|")
			if columns == 0 {
				columns = count
			}
			Expect(count).To(Equal(columns), line)
		}
	})
	It("should complain about a condition or reason that no table has, and about one without a description", func() {
		sources, err := readSources(apiSource, statusSource, usageSource, bootSource, configSource)
		Expect(err).NotTo(HaveOccurred())
		sources[statusSource] = append(sources[statusSource], constant{name: "reasonMystery", value: "Mystery"})
		Expect(complete(sources)).To(MatchError(ContainSubstring("reasonMystery")))
		_, err = conditionRow(sources, condition{constant: "ConditionTypeZonesReady", reasons: map[string][]string{statusSource: {"reasonMystery"}}})
		Expect(err).To(MatchError(ContainSubstring("has no description")))
		_, err = conditionRow(sources, condition{constant: "ConditionTypeMystery"})
		Expect(err).To(MatchError(ContainSubstring("there is no ConditionTypeMystery")))
	})
	DescribeTable("should begin with what a constant is and not with its name", func(doc, expected string) {
		Expect(constant{name: "reasonX", doc: doc}.sentence()).To(Equal(expected))
	},
		Entry("that something is so", "reasonX says that it is\nso.", "It is so."),
		Entry("whether something is so", "reasonX says whether it is so.", "It is so."),
		Entry("a thing", "reasonX is the thing.", "The thing."),
		Entry("a field", "reasonX says that spec.zones is empty.", "spec.zones is empty."),
	)
})
