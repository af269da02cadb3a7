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
	"maps"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// schema is the part of a JSON schema that names values.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	PropertyNames        struct {
		Enum []string `json:"enum"`
	} `json:"propertyNames"`
}

func readSchema() schema {
	GinkgoHelper()
	text, err := os.ReadFile(w.chart("values.schema.json"))
	Expect(err).ToNot(HaveOccurred())
	s := schema{}
	Expect(json.Unmarshal(text, &s)).To(Succeed())
	return s
}

func readValues() (string, map[string]any) {
	GinkgoHelper()
	text, err := os.ReadFile(w.chart("values.yaml"))
	Expect(err).ToNot(HaveOccurred())
	values := map[string]any{}
	Expect(yaml.UnmarshalStrict(text, &values)).To(Succeed())
	return string(text), values
}

// expectSame compares the keys of values with those that the schema knows, all the way down.
func expectSame(path string, s schema, values map[string]any) {
	GinkgoHelper()
	Expect(s.AdditionalProperties).To(BeFalse(), "the schema allows any value in %s", path)
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(key string) bool { return path == "" && key == "global" })
	Expect(slices.Sorted(maps.Keys(values))).To(Equal(known), "the values of %q and those of its schema", path)
	for key, value := range values {
		if group, ok := value.(map[string]any); ok && len(group) > 0 && len(s.Properties[key].Properties) > 0 {
			expectSame(strings.TrimPrefix(path+"."+key, "."), s.Properties[key], group)
		}
	}
}

var _ = Describe("values", func() {
	It("should all be in the schema, which knows no others", func() {
		_, values := readValues()
		expectSame("", readSchema(), values)
	})
	It("should allow the keys of tuning that there are", func() {
		keys := lo.FilterMap(options.Table(), func(s *options.Setting, _ int) (string, bool) { return s.Key, s.Key != "" })
		Expect(keys).ToNot(BeEmpty())
		Expect(readSchema().Properties["tuning"].Properties["data"].PropertyNames.Enum).To(ConsistOf(keys))
	})
	It("should all be documented", func() {
		source, values := readValues()
		rows, err := documented(source)
		Expect(err).ToNot(HaveOccurred())
		paths := map[string]bool{}
		for _, row := range rows {
			Expect(row.doc).To(HaveSuffix("."), row.path)
			paths[row.path] = true
		}
		var missing func(string, map[string]any) []string
		missing = func(prefix string, group map[string]any) []string {
			var names []string
			for key, value := range group {
				path := prefix + key
				inner, isGroup := value.(map[string]any)
				switch {
				case paths[path]:
				case isGroup && len(inner) > 0:
					names = append(names, missing(path+".", inner)...)
				default:
					names = append(names, path)
				}
			}
			return names
		}
		Expect(missing("", values)).To(BeEmpty())
	})
	It("should be in the README", func() {
		source, _ := readValues()
		old, err := os.ReadFile(w.chart("README.md"))
		Expect(err).ToNot(HaveOccurred())
		Expect(readme(string(old), source)).To(Equal(string(old)), "run `make generate`")
	})

	DescribeTable("should be refused with what to do instead", func(ctx context.Context, message string, settings ...string) {
		args := []string{}
		for _, setting := range settings {
			args = append(args, "--set", setting)
		}
		_, err := w.render(ctx, defaultValues, args...)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no name of the cluster", "clusterName is empty: set it", "clusterName="),
		Entry("no region", "cloud.region is empty: set it to HN, HCM or VC-HaNoi", "cloud.region="),
		Entry("a region that does not exist", "/cloud/region': value must be one of", "cloud.region=Hanoi"),
		Entry("no credentials", "credentials.applicationCredentialID or credentials.applicationCredentialSecret is empty: set both", "credentials.existingSecret="),
		Entry("no password", "credentials.email or credentials.password is empty: set both", "credentials.existingSecret=", "credentials.method=password", "credentials.email=a@b.c"),
		Entry("credentials twice", "credentials.existingSecret is set, and so is a credential", "credentials.password=x"),
		Entry("BKE without its token", "bke.clusterToken is empty although bke.clusterID is set", "credentials.existingSecret=", "credentials.applicationCredentialID=a", "credentials.applicationCredentialSecret=b", "bke.clusterID=c"),
		Entry("the cloud's credentials as user data", "keep user data in a Secret of its own", "userDataSecrets={karpenter-provider-bizflycloud}"),
		Entry("tuning twice", "tuning.existingConfigMap and tuning.data are both set: remove one", "tuning.existingConfigMap=a", "tuning.data.accountPause=1m"),
		Entry("a key of tuning that does not exist", "invalid propertyName 'acountPause'", "tuning.data.acountPause=1m"),
		Entry("two leaders", "set replicas to 1", "settings.disableLeaderElection=true"),
		Entry("a value that does not exist", "'launchTimout' not allowed", "settings.launchTimout=3m"),
		Entry("a duration without a unit", "/settings/launchTimeout", "settings.launchTimeout=180"),
		Entry("a log level that core would panic over", "/log/level': value must be one of", "log.level=warn"),
		Entry("a gate that is neither on nor off", "/featureGates/nodeRepair': got string, want boolean", "featureGates.nodeRepair=maybe"),
		Entry("a gate that does not exist", "'drift' not allowed", "featureGates.drift=true"),
		Entry("a policy that both denies and warns", "/admissionPolicies/actions", "admissionPolicies.actions={Deny,Warn}"),
		Entry("a digest that is none", "/image/digest", "image.digest=latest"),
	)
})

var _ = Describe("the table of values", func() {
	const source = "# Not a row.\n\n# -- One | two.\na: \"\"\n\ngroup:\n  # -- A long\n  # story.\n  # @default -- nothing\n  b: {}\n  #  c: commented\n  # -- A list.\n  d:\n    - e: 1\n      f: 2\n"

	It("should have a row for each value with a comment", func() {
		Expect(documented(source)).To(Equal([]value{
			{path: "a", doc: "One | two.", def: "`\"\"`"},
			{path: "group.b", doc: "A long story.", def: "nothing"},
			{path: "group.d", doc: "A list.", def: "`[{\"e\":1,\"f\":2}]`"},
		}))
	})
	It("should replace what is between its marks, and escape what would end a cell", func() {
		text, err := readme("before\n"+tableBegin+"\nold\n"+tableEnd+"\nafter\n", source)
		Expect(err).ToNot(HaveOccurred())
		Expect(text).To(HavePrefix("before\n"))
		Expect(text).To(HaveSuffix("\nafter\n"))
		Expect(text).To(ContainSubstring(`| One \| two. |`))
		Expect(text).ToNot(ContainSubstring("old"))
	})
	It("should need its marks", func() {
		_, err := readme("no place", source)
		Expect(err).To(MatchError(ContainSubstring(tableBegin)))
	})
})
