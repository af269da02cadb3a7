// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"context"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

func TestOptions(t *testing.T) { suite.Run(t, "Options") }

// environment is all that we read, so that a developer's own environment decides nothing here.
var environment = []string{
	"CLUSTER_NAME", "BIZFLY_CLOUD_AUTH_METHOD", "BIZFLY_CLOUD_EMAIL", "BIZFLY_CLOUD_PASSWORD", "BIZFLY_CLOUD_APP_CRED_ID",
	"BIZFLY_CLOUD_APP_CRED_SECRET", "BIZFLY_CLOUD_REGION", "BIZFLY_CLOUD_PROJECT_ID", "BIZFLY_CLOUD_API_URL",
	"BIZFLY_CLOUD_ALLOW_HTTP", "BIZFLY_CLOUD_REGION_LABEL", "SYSTEM_NAMESPACE", "CREDENTIALS_SECRET_NAME", "TUNING_CONFIGMAP_NAME", "BKE_CLUSTER_ID",
	"BKE_CLUSTER_TOKEN", "BKE_JOIN_ENDPOINT",
	"BKE_LOG_ENDPOINT", "LAUNCH_TIMEOUT",
	"CATALOG_INTERVAL", "GARBAGE_COLLECTION_INTERVAL", "GARBAGE_COLLECTION_GRACE", "UNAVAILABLE_OFFERING_TTL",
	"VM_MEMORY_OVERHEAD_PERCENT", "USER_DATA_SECRET_NAMES", "JOIN_TOKENS", "BKE_DISCOVER_FROM_POOL", "CLUSTER_ENDPOINT",
}

// complete is the least that a controller starts with.
var complete = map[string]string{
	"CLUSTER_NAME":                 "prod",
	"BIZFLY_CLOUD_REGION":          "HN",
	"BIZFLY_CLOUD_APP_CRED_ID":     "id",
	"BIZFLY_CLOUD_APP_CRED_SECRET": "marked-secret",
}

func parse(args ...string) (*options.Options, error) {
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
	opts := &options.Options{}
	opts.AddFlags(fs)
	return opts, opts.Parse(fs, args...)
}

var _ = Describe("Options", func() {
	BeforeEach(func() {
		for _, name := range environment {
			// GinkgoT().Setenv restores what was there; the variable itself must be absent, not empty.
			GinkgoT().Setenv(name, "")
			Expect(os.Unsetenv(name)).To(Succeed())
		}
		for name, value := range complete {
			GinkgoT().Setenv(name, value)
		}
	})
	It("should start with a name, a region and a credential alone", func() {
		opts := lo.Must(parse())
		Expect(opts.AuthMethod).To(Equal("application_credential"))
		Expect(opts.LaunchTimeout).To(Equal(3 * time.Minute))
		Expect(opts.AppCredSecret).To(Equal("marked-secret"))
	})
	It("should let a flag win over the environment", func() {
		GinkgoT().Setenv("LAUNCH_TIMEOUT", "1m")
		opts := lo.Must(parse("--launch-timeout=90s"))
		Expect(opts.LaunchTimeout).To(Equal(90 * time.Second))
	})
	It("should have no flag for a secret", func() {
		fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
		(&options.Options{}).AddFlags(fs)
		fs.VisitAll(func(f *flag.Flag) { Expect(f.DefValue+f.Usage).ToNot(ContainSubstring("marked-secret"), f.Name) })
	})
	It("should read what bootstrapping needs, and allow nothing by default", func() {
		opts := lo.Must(parse())
		Expect(opts.UserDataSecretNames).To(BeEmpty())
		Expect(opts.JoinTokens || opts.BKEDiscoverFromPool).To(BeFalse())
		GinkgoT().Setenv("USER_DATA_SECRET_NAMES", " kubeadm, k3s,,kubeadm")
		GinkgoT().Setenv("USER_DATA_CONFIGMAP_NAMES", "scripts")
		GinkgoT().Setenv("JOIN_TOKENS", "true")
		GinkgoT().Setenv("BKE_DISCOVER_FROM_POOL", "true")
		GinkgoT().Setenv("CLUSTER_ENDPOINT", "https://10.20.0.10:6443/")
		opts = lo.Must(parse())
		Expect(opts.UserDataSecretNames).To(Equal([]string{"kubeadm", "k3s"}))
		Expect(opts.UserDataConfigMapNames).To(Equal([]string{"scripts"}))
		Expect(opts.JoinTokens).To(BeTrue())
		Expect(opts.JoinTokenGroups).To(HaveLen(3))
		opts = lo.Must(parse("--join-token-groups=system:bootstrappers:karpenter"))
		Expect(opts.JoinTokenGroups).To(Equal([]string{"system:bootstrappers:karpenter"}))
		Expect(opts.BKEDiscoverFromPool).To(BeTrue())
		Expect(opts.ClusterEndpoint).To(Equal("10.20.0.10:6443"))
	})
	It("should leave out the line break with which the file of a secret ends", func() {
		GinkgoT().Setenv("BKE_CLUSTER_TOKEN", "token\r\n")
		GinkgoT().Setenv("BIZFLY_CLOUD_PASSWORD", " pass word \n")
		Expect(lo.Must(parse())).To(And(HaveField("BKEClusterToken", "token"), HaveField("Password", " pass word ")))
	})
	It("should take an empty variable for one that is not set, unless empty is a value", func() {
		GinkgoT().Setenv("LAUNCH_TIMEOUT", "")
		GinkgoT().Setenv("CREDENTIALS_SECRET_NAME", "")
		opts := lo.Must(parse())
		Expect(opts.LaunchTimeout).To(Equal(3 * time.Minute))
		Expect(opts.CredentialsSecretName).To(BeEmpty())
	})
	It("should name, bound and document every setting, and give each field to one", func() {
		fields := map[any]string{}
		defaults := options.Defaults()
		for _, s := range options.Table() {
			name := s.Variable + s.Key
			Expect(name).ToNot(BeEmpty())
			Expect(s.Doc).To(HaveSuffix("."), name)
			Expect(s.Key != "" && (s.Unit == "" || s.Bounds == "")).To(BeFalse(), name)
			Expect(s.Secret && s.Flag != "").To(BeFalse(), name)
			Expect(fields[s.Pointer(defaults)]).To(BeEmpty(), "%s has the same field", name)
			fields[s.Pointer(defaults)] = name
		}
		exported := lo.CountBy(reflect.VisibleFields(reflect.TypeFor[options.Options]()), func(f reflect.StructField) bool { return f.IsExported() })
		const constants = 5 // that no setting changes
		Expect(fields).To(HaveLen(exported-constants), "a field without a row cannot be given")
	})
	It("should travel in a context", func() {
		opts := &options.Options{ClusterName: "prod"}
		Expect(options.FromContext(opts.ToContext(context.Background()))).To(BeIdenticalTo(opts))
		Expect(options.FromContext(context.Background())).To(BeNil())
	})
	It("should name every fault at once, and no secret", func() {
		GinkgoT().Setenv("LAUNCH_TIMEOUT", "1s")
		GinkgoT().Setenv("CLUSTER_NAME", "")
		_, err := parse()
		Expect(err).To(MatchError(And(ContainSubstring("LAUNCH_TIMEOUT"), ContainSubstring("CLUSTER_NAME"))))
		Expect(err.Error()).ToNot(ContainSubstring("marked-secret"))
	})
	It("should check core's options and ours before anything starts", func() {
		Expect(options.Preflight(nil)).To(Succeed())
		Expect(options.Preflight([]string{"--log-level=loud"})).To(MatchError(ContainSubstring("loud")))
		GinkgoT().Setenv("CLUSTER_NAME", "")
		Expect(options.Preflight(nil)).To(MatchError(ContainSubstring("CLUSTER_NAME")))
	})
	DescribeTable("should reject, naming the variable and the remedy",
		func(name, value string, says ...string) {
			GinkgoT().Setenv(name, value)
			_, err := parse()
			Expect(err).To(HaveOccurred())
			for _, text := range append(says, name) {
				Expect(err.Error()).To(ContainSubstring(text))
			}
		},
		Entry("no cluster name", "CLUSTER_NAME", "", "name"),
		Entry("too much overhead", "VM_MEMORY_OVERHEAD_PERCENT", "7.5", "7.5", "0 to less than 0.5"),
		Entry("overhead that is no number", "VM_MEMORY_OVERHEAD_PERCENT", "lots", "lots", "0 to less than 0.5"),
		Entry("overhead that is not a number by name", "VM_MEMORY_OVERHEAD_PERCENT", "NaN", "NaN", "0 to less than 0.5"),
		Entry("a time without a unit, which must not become the default", "CATALOG_INTERVAL", "10", `"10"`, "10s to 24h"),
		Entry("a switch that is neither on nor off, which must not become the default", "GARBAGE_COLLECTION_DRY_RUN", "yes", "yes", "true or false"),
		Entry("a region that no node can be labelled with", "BIZFLY_CLOUD_REGION_LABEL", "Ha Noi", "Ha Noi", "label"),
		Entry("a launch timeout of nothing", "LAUNCH_TIMEOUT", "1s", "10s"),
		Entry("a launch timeout after which no node can register in time", "LAUNCH_TIMEOUT", "15m", "10m"),
		Entry("a catalog that is read all the time", "CATALOG_INTERVAL", "1s", "10s"),
		Entry("collection all the time", "GARBAGE_COLLECTION_INTERVAL", "1ms", "1s"),
		Entry("a grace shorter than a launch", "GARBAGE_COLLECTION_GRACE", "2m", "LAUNCH_TIMEOUT"),
		Entry("a mark of nothing", "UNAVAILABLE_OFFERING_TTL", "1ms", "1s"),
		Entry("what is no name of a Secret", "USER_DATA_SECRET_NAMES", "templates,Not_A_Name", "Not_A_Name"),
		Entry("the cloud's credentials as user data", "USER_DATA_SECRET_NAMES", "templates, karpenter-provider-bizflycloud", "credentials of the cloud"),
		Entry("an endpoint with a path", "CLUSTER_ENDPOINT", "https://api.example.com:443/k8s/clusters/c-1", "host:port"),
		Entry("an endpoint without a port", "CLUSTER_ENDPOINT", "api.example.com", "host:port"),
	)
})
