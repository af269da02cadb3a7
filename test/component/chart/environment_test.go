// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// readVariables are the environment variables that the options of a package read: names in its calls of what reads them.
func readVariables(dir string) sets.Set[string] {
	GinkgoHelper()
	reads := regexp.MustCompile(`^(withDefault\w+|WithDefault\w+|BoolVarWithEnv|Getenv|LookupEnv)$`)
	name := regexp.MustCompile(`^"[A-Z][A-Z0-9_]+"$`)
	files := lo.Must(filepath.Glob(filepath.Join(dir, "*.go")))
	variables := sets.New[string]()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := lo.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0))
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			function := ""
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				function = f.Sel.Name
			case *ast.Ident:
				function = f.Name
			}
			for _, arg := range call.Args {
				if literal, ok := arg.(*ast.BasicLit); ok && reads.MatchString(function) && name.MatchString(literal.Value) {
					value := lo.Must(strconv.Unquote(literal.Value))
					variables.Insert(value)
				}
			}
			return true
		})
	}
	Expect(variables).ToNot(BeEmpty(), dir)
	return variables
}

// environment are the variables of the Deployment. What comes from elsewhere is what a kubelet would give.
func environment(ctx context.Context, values string, args ...string) map[string]string {
	GinkgoHelper()
	deployment := as[appsv1.Deployment](rendered(ctx, values, args...)["Deployment/"+chartName])
	variables := map[string]string{}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		variables[variable.Name] = variable.Value
		switch from := variable.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			variables[variable.Name] = "secret"
		case from.FieldRef != nil:
			Expect(from.FieldRef.FieldPath).To(Equal("metadata.namespace"))
			variables[variable.Name] = namespace
		case from.ResourceFieldRef != nil:
			variables[variable.Name] = "1000"
		}
	}
	return variables
}

// flags are the defaults of all flags in the environment that is set.
func flags() map[string]string {
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
	for _, injectable := range coreoptions.Injectables {
		injectable.AddFlags(fs)
	}
	defaults := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { defaults[f.Name] = f.DefValue + f.Usage }) // ours have it in the text
	return defaults
}

var _ = Describe("the environment", func() {
	BeforeEach(func() {
		// The variables of the process are restored afterwards.
		for _, variable := range os.Environ() {
			name, _, _ := strings.Cut(variable, "=")
			GinkgoT().Setenv(name, os.Getenv(name))
		}
	})
	It("should have every variable that the controller reads, and no other", func(ctx context.Context) {
		core, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter/pkg/operator/options").Output()
		Expect(err).ToNot(HaveOccurred())
		// What can change while the controller runs is a key of tuning.data instead.
		ours := lo.FilterMap(options.Table(), func(s *options.Setting, _ int) (string, bool) { return s.Variable, s.Variable != "" && s.Key == "" })
		read := sets.New(ours...).
			Union(readVariables(strings.TrimSpace(string(core)))).
			// Named after the Service of webhooks that core has no longer.
			Delete("KARPENTER_SERVICE").
			// Two controllers would launch servers for the same pods while an upgrade replaces one by the other.
			Delete("DISABLE_LEADER_ELECTION")
		set := sets.New[string]()
		for _, values := range []string{defaultValues, fullValues} {
			set = set.Union(sets.KeySet(environment(ctx, values)))
		}
		set = set.Delete("GOMEMLIMIT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") // Go's own
		Expect(sets.List(read.Difference(set))).To(BeEmpty(), "no value of the chart sets these")
		Expect(sets.List(set.Difference(read))).To(BeEmpty(), "nothing reads these")
	})
	DescribeTable("should be one that the controller accepts", func(ctx context.Context, values string, args ...string) {
		for name, value := range environment(ctx, values, args...) {
			GinkgoT().Setenv(name, value)
		}
		Expect(options.Preflight(nil)).To(Succeed())
	},
		Entry("with the least that must be given", defaultValues),
		Entry("with everything", fullValues),
		Entry("with gates that are no longer in the values", defaultValues, "--set", "settings.featureGates=null"),
		Entry("with a gate that has no value", defaultValues, "--set", "settings.featureGates.nodeRepair=null"),
	)
	It("should have whole numbers in digits", func(ctx context.Context) {
		variables := environment(ctx, fullValues, "--set-json", "settings.kubeClientQPS=1000000", "--set-json", "settings.maxVNDPerHour=5000000")
		Expect(variables).To(And(HaveKeyWithValue("KUBE_CLIENT_QPS", "1000000"), HaveKeyWithValue("MAX_VND_PER_HOUR", "5000000")))
	})
	It("should leave the controller's defaults as they are", func(ctx context.Context) {
		before := flags()
		for name, value := range environment(ctx, defaultValues) {
			GinkgoT().Setenv(name, value)
		}
		after := flags()
		// What must be given, what a pod is told about itself, the ProviderConfig, which the chart installs itself, and the Lease,
		// which must not be that of another Karpenter.
		for _, given := range []string{"cluster-name", "bizfly-region", "system-namespace", "leader-election-namespace", "memory-limit", "cpu-requests",
			"create-provider-config", "leader-election-name"} {
			Expect(before).To(HaveKey(given))
			delete(before, given)
			delete(after, given)
		}
		Expect(after).To(Equal(before))
	})
	It("should name the Secret and the ConfigMap that the Role grants", func(ctx context.Context) {
		variables := environment(ctx, fullValues)
		Expect(variables).To(HaveKeyWithValue("CREDENTIALS_SECRET_NAME", chartName))
		Expect(variables).To(HaveKeyWithValue("TUNING_CONFIGMAP_NAME", chartName+"-tuning"))
		objects := rendered(ctx, fullValues)
		Expect(objects).To(HaveKey("Secret/" + chartName))
		Expect(objects).To(HaveKey("ConfigMap/" + chartName + "-tuning"))
		Expect(as[corev1.ConfigMap](objects["ConfigMap/"+chartName+"-tuning"]).Data).To(Equal(map[string]string{
			"unavailableOfferingTTL":  "10m",
			"vmMemoryOverheadPercent": "0.08",
			"hiddenFlavors":           "p2.8c_16g",
			"prices":                  "gpus:\n  a30: 20000",
		}))
	})
	It("should start pods anew when the chart's own Secret changes", func(ctx context.Context) {
		template := func(args ...string) corev1.PodTemplateSpec {
			return as[appsv1.Deployment](rendered(ctx, fullValues, args...)["Deployment/"+chartName]).Spec.Template
		}
		Expect(template()).To(Equal(template()))
		Expect(template("--set", "bke.clusterToken=other")).ToNot(Equal(template()))
		Expect(template("--set", "credentials.password=other")).To(Equal(template()), "the ProviderConfig has it read again")
		without := []string{"--set", "providerConfig.create=false,cloud.caBundle=,cloud.rateLimits=null"}
		Expect(template(append(without, "--set", "credentials.password=other")...)).To(Equal(template(without...)),
			"a hash would tell the password: each revision starts them anew instead")
		Expect(template(append(without, "--set", "bke.clusterToken=other")...)).ToNot(Equal(template(without...)))
	})
})
