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
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

func readValues() map[string]any {
	GinkgoHelper()
	text, err := os.ReadFile(w.chart("values.yaml"))
	Expect(err).ToNot(HaveOccurred())
	values := map[string]any{}
	Expect(yaml.UnmarshalStrict(text, &values)).To(Succeed())
	return values
}

// expectSame compares the keys of values with those that the schema knows, all the way down.
func expectSame(path string, known, values map[string]any) {
	GinkgoHelper()
	Expect(slices.Sorted(maps.Keys(values))).To(Equal(slices.Sorted(maps.Keys(known))), "the values of %q and those of its schema", path)
	for key, value := range values {
		if inner, ok := known[key].(map[string]any); ok {
			expectSame(strings.TrimPrefix(path+"."+key, "."), inner, value.(map[string]any))
		}
	}
}

var _ = Describe("values", func() {
	It("should all be in the schema, which knows no others", func() {
		root, err := readSchema(w)
		Expect(err).ToNot(HaveOccurred())
		expectSame("", root.keys(root), readValues())
	})
	It("should all be known to the templates", func() {
		content, err := os.ReadFile(w.chart(keysFile))
		Expect(err).ToNot(HaveOccurred())
		Expect(keys(w)).To(BeEquivalentTo(content), "run `make generate`")
	})
	It("should allow the keys of tuning that there are", func() {
		root, err := readSchema(w)
		Expect(err).ToNot(HaveOccurred())
		keys := lo.FilterMap(options.Table(), func(s *options.Setting, _ int) (string, bool) { return s.Key, s.Key != "" })
		Expect(keys).ToNot(BeEmpty())
		Expect(root.Properties["tuning"].Properties["data"].PropertyNames.Enum).To(ConsistOf(keys))
	})

	It("should all be described in the README", func() {
		root, err := readSchema(w)
		Expect(err).ToNot(HaveOccurred())
		readme, err := os.ReadFile(w.chart("README.md"))
		Expect(err).ToNot(HaveOccurred())
		var expectRows func(prefix string, known map[string]any)
		expectRows = func(prefix string, known map[string]any) {
			for key, inner := range known {
				if group, ok := inner.(map[string]any); ok {
					expectRows(prefix+key+".", group)
				} else {
					Expect(string(readme)).To(MatchRegexp("(?m)^\\| `%s` \\| [^|]+\\. \\| [^|]+ \\|$", regexp.QuoteMeta(prefix+key)), "run `make generate`")
				}
			}
		}
		expectRows("", root.keys(root))
	})

	DescribeTable("should be rejected with what to do instead", func(ctx context.Context, message string, settings ...string) {
		args := []string{}
		for _, setting := range settings {
			args = append(args, "--set", setting)
		}
		_, err := w.render(ctx, defaultValues, args...)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no name of the cluster", "settings.clusterName is empty: set it", "settings.clusterName="),
		Entry("no region", "cloud.region is empty: set it to HN, HCM or VC-HaNoi", "cloud.region="),
		Entry("a region that does not exist", "/cloud/region': value must be one of", "cloud.region=Hanoi"),
		Entry("no credentials", "credentials.applicationCredentialID or credentials.applicationCredentialSecret is empty: set both", "credentials.existingSecret="),
		Entry("no password", "credentials.email or credentials.password is empty: set both", "credentials.existingSecret=", "credentials.method=password",
			"credentials.email=a@b.c"),
		Entry("credentials twice", "credentials.existingSecret is set, and so is a credential", "credentials.password=x"),
		Entry("BKE without its token", "bke.clusterToken is empty although bke.clusterID is set: set bke.discoverFromPool=true", "credentials.existingSecret=",
			"credentials.applicationCredentialID=a", "credentials.applicationCredentialSecret=b", "bke.clusterID=c"),
		Entry("the cloud's credentials as user data", "keep user data in a Secret of its own", "userDataSecrets={karpenter-provider-bizflycloud}"),
		Entry("tuning twice", "tuning.existingConfigMap and tuning.data are both set: remove one", "tuning.existingConfigMap=a", "tuning.data.accountPause=1m"),
		Entry("a key of tuning that does not exist", "invalid propertyName 'acountPause'", "tuning.data.acountPause=1m"),
		Entry("two leaders", "set replicas to 1", "settings.disableLeaderElection=true"),
		Entry("a value that does not exist", "settings.launchTimout is not a value of this chart: did you mean settings.launchTimeout?", "settings.launchTimout=3m"),
		Entry("a duration without a unit", "/settings/launchTimeout", "settings.launchTimeout=180"),
		Entry("a log level that core would panic over", "/logLevel': value must be one of", "logLevel=warn"),
		Entry("a gate that is neither on nor off", "/settings/featureGates/nodeRepair': got string, want boolean", "settings.featureGates.nodeRepair=maybe"),
		Entry("a gate that does not exist", "settings.featureGates.drift has no meaning here: drift is always detected", "settings.featureGates.drift=true"),
		Entry("an overhead in percent", "/settings/vmMemoryOverheadPercent", "settings.vmMemoryOverheadPercent=7.5"),
		Entry("two monitors", "serviceMonitor.enabled and podMonitor.enabled are both true", "serviceMonitor.enabled=true", "podMonitor.enabled=true"),
		Entry("an address that is no range", "/networkPolicy/egressCIDRs/0", "networkPolicy.egressCIDRs={manage.bizflycloud.vn}"),
		Entry("a value outside its group", "launchTimeout is not a value of this chart: did you mean settings.launchTimeout?", "launchTimeout=3m"),
		Entry("a value in the wrong group", "settings.replicas is not a value of this chart: did you mean replicas?", "settings.replicas=3"),
		Entry("another spelling", "imagePullSecret is not a value of this chart: did you mean imagePullSecrets?", "imagePullSecret=a"),
		Entry("a value like no other", "xyz is not a value of this chart\nAll values: https://", "xyz=1"),
		Entry("a rate that does not exist", "'qpm' not allowed", "cloud.rateLimits.read.qpm=1"),
		Entry("several at once", "commonLabels was renamed: set additionalLabels\nimage.tag was renamed: set controller.image.tag", "image.tag=v1",
			"commonLabels.a=b"),
		Entry("a policy that both denies and warns", "/admissionPolicies/actions", "admissionPolicies.actions={Deny,Warn}"),
		Entry("a digest that is none", "/controller/image/digest", "controller.image.digest=latest"),
	)
})

// formerKeys are the renamed and the rejected keys.
func formerKeys() (former struct{ Renamed, Rejected map[string]string }) {
	GinkgoHelper()
	text, err := os.ReadFile(w.chart("files", "former-keys.yaml"))
	Expect(err).ToNot(HaveOccurred())
	Expect(yaml.UnmarshalStrict(text, &former)).To(Succeed())
	return former
}

// valueAt returns the value at a path of the chart's values.
func valueAt(path string) (any, bool) {
	var found any = readValues()
	for key := range strings.SplitSeq(path, ".") {
		group, ok := found.(map[string]any)
		if ok {
			found, ok = group[key]
		}
		if !ok {
			return nil, false
		}
	}
	return found, true
}

var _ = Describe("former keys", func() {
	It("should be rejected, each with the key to use instead or the reason why there is none", func(ctx context.Context) {
		former := formerKeys()
		args := []string{}
		for path := range former.Renamed {
			args = append(args, "--set-string", path+"=x")
		}
		for path := range former.Rejected {
			args = append(args, "--set-string", path+"=x")
		}
		_, err := w.render(ctx, defaultValues, args...)
		for path, instead := range former.Renamed {
			Expect(err).To(MatchError(ContainSubstring(path + " was renamed: set " + instead + "\n")))
		}
		for path, reason := range former.Rejected {
			Expect(err).To(MatchError(ContainSubstring(path + " has no meaning here: " + reason + "\n")))
		}
	})
	It("should name values that exist", func() {
		for path, instead := range formerKeys().Renamed {
			_, exists := valueAt(path)
			Expect(exists).To(BeFalse(), path)
			for name := range strings.SplitSeq(strings.NewReplacer(" (a list)", "", ", ", " ", " and ", " ", ", in", " ").Replace(instead), " ") {
				if strings.HasPrefix(name, "proxy.") {
					break
				}
				_, exists = valueAt(name)
				Expect(exists).To(BeTrue(), "%s, instead of %s", name, path)
			}
		}
	})
})
