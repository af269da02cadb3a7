// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// schema is the part of a JSON schema that names values.
type schema struct {
	Ref                  string            `json:"$ref"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	PropertyNames        struct {
		Enum []string `json:"enum"`
	} `json:"propertyNames"`
	Definitions map[string]schema `json:"definitions"`

	// Additional is additionalProperties where it is a schema.
	Additional *schema `json:"-"`
}

func readSchema() schema {
	GinkgoHelper()
	text := lo.Must(os.ReadFile(chartFile("values.schema.json")))
	root := schema{}
	Expect(json.Unmarshal(text, &root)).To(Succeed())
	// What a chart gets that is a dependency of another.
	delete(root.Properties, "enabled")
	delete(root.Properties, "global")
	return root
}

// keys are the keys of a group with these values; true is a value, or a group that is empty by default.
func (s schema) keys(root schema, values map[string]any) map[string]any {
	known := map[string]any{}
	for key, property := range s.Properties {
		inner, _ := values[key].(map[string]any)
		property = property.resolved(root)
		if known[key] = true; len(property.Properties) > 0 && len(inner) > 0 {
			known[key] = property.keys(root, inner)
		}
	}
	return known
}

// resolved follows a reference to a definition.
func (s schema) resolved(root schema) schema {
	if name, isReference := strings.CutPrefix(s.Ref, "#/definitions/"); isReference {
		s = root.Definitions[name]
	}
	s.Additional = &schema{}
	if json.Unmarshal(s.AdditionalProperties, s.Additional) != nil {
		s.Additional = nil // a boolean, or nothing
	}
	return s
}

func readValues() map[string]any {
	GinkgoHelper()
	text := lo.Must(os.ReadFile(chartFile("values.yaml")))
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
		root := readSchema()
		expectSame("", root.keys(root, readValues()), readValues())
	})
	It("should name the fields of BizflyNodeClasses and NodePools that there are", func() {
		root := readSchema()
		for value, file := range map[string]string{
			"nodeClasses": "karpenter.bizflycloud.vn_bizflynodeclasses.yaml", "nodePools": "karpenter.sh_nodepools.yaml",
		} {
			text := lo.Must(os.ReadFile(chartFile("..", "..", "config", "crd", file)))
			definition := apiextensionsv1.CustomResourceDefinition{}
			Expect(yaml.UnmarshalStrict(text, &definition)).To(Succeed())
			fields := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
			named := root.Properties[value].resolved(root)
			Expect(lo.Keys(named.Additional.Properties)).To(ConsistOf(lo.Keys(fields)), value)
		}
	})
	It("should be rejected in every group that has not free keys", func() {
		root := readSchema()
		var expectClosed func(path string, s schema)
		expectClosed = func(path string, s schema) {
			s = s.resolved(root)
			if len(s.Properties) > 0 {
				Expect(string(s.AdditionalProperties)).To(Equal("false"), path)
			}
			for key, property := range s.Properties {
				expectClosed(path+"."+key, property)
			}
		}
		expectClosed("", root)
	})
	It("should allow the keys of tuning that there are", func() {
		root := readSchema()
		keys := lo.FilterMap(options.Table(), func(s *options.Setting, _ int) (string, bool) { return s.Key, s.Key != "" })
		Expect(keys).ToNot(BeEmpty())
		Expect(root.Properties["tuning"].Properties["data"].PropertyNames.Enum).To(ConsistOf(keys))
	})

	It("should all be described in the README", func() {
		root := readSchema()
		readme := lo.Must(os.ReadFile(chartFile("README.md")))
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
		expectRows("", root.keys(root, readValues()))
	})

	DescribeTable("should be rendered", func(ctx context.Context, template string, expected OmegaMatcher, values ...string) {
		rendered, err := render(ctx, defaultValues, append(settings(values...), "--show-only", "templates/"+template)...)
		Expect(err).ToNot(HaveOccurred())
		Expect(rendered).To(expected)
	},
		Entry("zones as the list that the controller reads", "tuning.yaml", ContainSubstring(`closedZones: "HN1,HN2"`), "tuning.data.closedZones={HN1,HN2}"),
		Entry("a variable of the user's once, since a server-side apply rejects a name that stands twice", "deployment.yaml",
			And(ContainSubstring("value: 4m"), WithTransform(func(s string) int { return strings.Count(s, "name: LAUNCH_TIMEOUT") }, Equal(1))),
			"settings.launchTimeout=3m", "controller.env[0].name=LAUNCH_TIMEOUT", "controller.env[0].value=4m"),
		Entry("the limit of join tokens with RBAC of the user's own", "admissionpolicy.yaml", ContainSubstring("-join-tokens"),
			"rbac.create=false", "joinTokens.enabled=true"),
		Entry("the test without an affinity", "tests/preflight.yaml", Not(ContainSubstring("affinity:")), "affinity=null"),
		Entry("no requests and limits", "deployment.yaml", Not(ContainSubstring("CPU_REQUESTS")), "controller.resources=null"),
		Entry("another strategy without the default's settings", "deployment.yaml", And(ContainSubstring("type: Recreate"), Not(ContainSubstring("rollingUpdate"))),
			"strategy.type=Recreate"),
		Entry("the default's settings without a type", "deployment.yaml", ContainSubstring("maxUnavailable: 1"), "strategy.type=null"),
		Entry("no NodePool and no BizflyNodeClass that a later values file takes out", "nodes.yaml",
			And(ContainSubstring("name: kept"), Not(ContainSubstring("name: gone"))),
			"nodePools.gone=null", "nodeClasses.gone=null", "nodePools.kept.limits.cpu=1"),
		Entry("no key of tuning that one takes out", "tuning.yaml",
			And(ContainSubstring("catalogInterval"), Not(ContainSubstring("hiddenFlavors"))),
			"tuning.data.hiddenFlavors=null", "tuning.data.catalogInterval=1m"),
		Entry("no annotations", "providerconfig.yaml", ContainSubstring("helm.sh/resource-policy: keep"), "providerConfig.annotations=null"),
	)
	DescribeTable("should be rejected with what to do instead", func(ctx context.Context, message string, values ...string) {
		Expect(render(ctx, defaultValues, settings(values...)...)).Error().To(MatchError(ContainSubstring(message)))
	},
		Entry("no name of the cluster", "settings.clusterName is empty: set it", "settings.clusterName="),
		Entry("the image in the AWS provider's values file", "remove controller.image from the values",
			"controller.image.repository=public.ecr.aws/karpenter/controller"),
		Entry("no region", "cloud.region is empty: set it to HN, HCM or VC-HaNoi", "cloud.region="),
		Entry("a region that does not exist", "/cloud/region': value must be one of", "cloud.region=Hanoi"),
		Entry("no credentials", "credentials.applicationCredentialID or credentials.applicationCredentialSecret is empty: set both", "credentials.existingSecret="),
		Entry("no password", "credentials.email or credentials.password is empty: set both", "credentials.existingSecret=", "credentials.method=password",
			"credentials.email=a@b.c"),
		Entry("credentials twice", "credentials.existingSecret is set, and so is a credential", "credentials.password=x"),
		Entry("BKE without its token", "bke.clusterToken is empty although bke.clusterID is set: set bke.discoverFromPool=true", "credentials.existingSecret=",
			"credentials.applicationCredentialID=a", "credentials.applicationCredentialSecret=b", "bke.clusterID=c"),
		Entry("the cloud's credentials as user data", "keep user data in a Secret of its own", "userDataSecrets={karpenter-provider-bizflycloud}"),
		Entry("rate limits without the ProviderConfig that has them", "write spec.caBundle and spec.rateLimits in yours", "providerConfig.create=false",
			"cloud.rateLimits.read.qps=1"),
		Entry("a certificate without it", "write spec.caBundle and spec.rateLimits in yours", "providerConfig.create=false",
			"cloud.caBundle=-----BEGIN CERTIFICATE-----"),
		Entry("tuning twice", "tuning.existingConfigMap and tuning.data are both set: remove one", "tuning.existingConfigMap=a", "tuning.data.catalogInterval=1m"),
		Entry("a key of tuning that does not exist", "invalid propertyName 'acountPause'", "tuning.data.acountPause=1m"),
		Entry("profiles for everyone", "set networkPolicy.enabled=true and networkPolicy.metricsFrom", "settings.enableProfiling=true"),
		Entry("profiles for every pod", "set networkPolicy.enabled=true and networkPolicy.metricsFrom", "settings.enableProfiling=true",
			"networkPolicy.enabled=true"),
		Entry("a NetworkPolicy without an effect", "hostNetwork and networkPolicy.enabled are both true", "hostNetwork=true", "networkPolicy.enabled=true"),
		Entry("a group that is none of tokens", "/joinTokens/groups/0", "joinTokens.groups={system:masters}"),
		Entry("no group, where the controller would use its own and the admission policy reject them", "at '/joinTokens': missing property 'groups'",
			"joinTokens.enabled=true", "joinTokens.groups=null"),
		Entry("no name of the Lease, without which the Role would grant all",
			"at '/settings': missing property 'leaderElectionName'", "settings.leaderElectionName=null"),
		Entry("a group whose keys are all commented out", "at '': missing property 'tuning'", "tuning=null"),
		Entry("a group of the controller without a key", "at '/controller': missing property 'image'", "controller.image=null"),
		Entry("the ServiceAccount of all other pods", "serviceAccount.name is empty", "serviceAccount.create=false"),
		Entry("a value that does not exist", "at '/settings': additional properties 'launchTimout' not allowed", "settings.launchTimout=3m"),
		Entry("a name of letters that are two bytes each", "settings.clusterName has 500 bytes", "settings.clusterName="+strings.Repeat("é", 250)),
		Entry("a launch timeout that the controller would not start with", "settings.launchTimeout is 15m: use 10s to 10m", "settings.launchTimeout=15m"),
		Entry("one that is too short", "settings.launchTimeout is 1.5s: use 10s to 10m", "settings.launchTimeout=1.5s"),
		Entry("a grace within the launch timeout", "use more than settings.launchTimeout, which is 3m", "settings.garbageCollectionGrace=1m"),
		Entry("a grace that is too long", "settings.garbageCollectionGrace is 24h1m: use", "settings.garbageCollectionGrace=24h1m"),
		Entry("a duration without a unit", "/settings/launchTimeout", "settings.launchTimeout=180"),
		Entry("a log level that core would panic over", "/logLevel': value must be one of", "logLevel=warn"),
		Entry("a gate that is neither on nor off", "/settings/featureGates/nodeRepair': got string, want boolean", "settings.featureGates.nodeRepair=maybe"),
		Entry("an overhead where AWS has it", "set tuning.data.vmMemoryOverheadPercent", "settings.vmMemoryOverheadPercent=0.05"),
		Entry("a gate that does not exist", "at '/settings/featureGates': additional properties 'drift' not allowed", "settings.featureGates.drift=true"),
		Entry("two monitors", "serviceMonitor.enabled and podMonitor.enabled are both true", "serviceMonitor.enabled=true", "podMonitor.enabled=true"),
		Entry("an address that is no range", "/networkPolicy/egressCIDRs/0", "networkPolicy.egressCIDRs={manage.bizflycloud.vn}"),
		Entry("a value outside its group", "additional properties 'launchTimeout' not allowed", "launchTimeout=3m"),
		Entry("a field that no BizflyNodeClass has", "additional properties 'flavor' not allowed", "nodeClasses.default.flavor=p2.2c_4g"),
		Entry("a field that no NodePool has", "additional properties 'limit' not allowed", "nodePools.default.limit.cpu=1"),
		Entry("a field that no disk of a BizflyNodeClass has", "at '/nodeClasses/default/rootDisk': additional properties 'gigabytes' not allowed",
			"nodeClasses.default.rootDisk.gigabytes=40"),
		Entry("a plan that does not exist", "at '/nodeClasses/default/billingPlan': value must be one of", "nodeClasses.default.billingPlan=Free"),
		Entry("an operator that does not exist", "at '/nodePools/default/template/spec/requirements/0/operator': value must be one of",
			"nodePools.default.template.spec.requirements[0].key=a", "nodePools.default.template.spec.requirements[0].operator=Is"),
		Entry("a requirement without a key", "at '/nodePools/default/template/spec/requirements/0': missing property 'key'",
			"nodePools.default.template.spec.requirements[0].operator=Exists"),
		Entry("a policy that does not exist", "at '/nodePools/default/disruption/consolidationPolicy': value must be one of",
			"nodePools.default.disruption.consolidationPolicy=Never"),
		Entry("a rate that does not exist", "'qpm' not allowed", "cloud.rateLimits.read.qpm=1"),
		Entry("several at once", "at '/service': additional properties 'port' not allowed", "settings.launchTimout=3m", "service.port=80"),
		Entry("a policy that both denies and warns", "/admissionPolicies/actions", "admissionPolicies.actions={Deny,Warn}"),
		Entry("a digest that is none", "/controller/image/digest", "controller.image.digest=latest"),
	)
})
