// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	_ "sigs.k8s.io/karpenter/pkg/controllers" // registers core's metrics
	nodemetrics "sigs.k8s.io/karpenter/pkg/controllers/metrics/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestDocs(t *testing.T) { suite.Run(t, "Docs") }

const (
	module    = "github.com/bizflycloud/karpenter-provider-bizflycloud/"
	root      = "../../"
	reference = root + "docs/reference/"
)

func text(path string) string {
	GinkgoHelper()
	content := lo.Must(os.ReadFile(path))
	return string(content)
}

// constants are the texts of the constants of a folder, by their names.
func constants(dir string) map[string]string {
	GinkgoHelper()
	files := lo.Must(filepath.Glob(filepath.Join(root, dir, "*.go")))
	found := map[string]string{}
	for _, name := range lo.Reject(files, func(n string, _ int) bool { return strings.HasSuffix(n, "_test.go") }) {
		file := lo.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if value, ok := textOf(spec.Values[0]); ok {
					found[spec.Names[0].Name] = value
				}
			}
			return true
		})
	}
	Expect(found).ToNot(BeEmpty(), "constants in %s", dir)
	return found
}

// textOf is a literal, or the sum of literals and the API's group.
func textOf(expression ast.Expr) (string, bool) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expression.Value)
		return text, expression.Kind == token.STRING && err == nil
	case *ast.Ident:
		return v1alpha1.Group, expression.Name == "Group"
	case *ast.BinaryExpr:
		left, isText := textOf(expression.X)
		right, areTexts := textOf(expression.Y)
		return left + right, isText && areTexts && expression.Op == token.ADD
	}
	return "", false
}

// keys are the first cells of the tables of a part of a page that are code.
func keys(part string) []string {
	return lo.Map(regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(part, -1), func(m []string, _ int) string { return m[1] })
}

// section is the part of a page below a heading, without the parts below it.
func section(page, heading string) string {
	GinkgoHelper()
	_, rest, found := strings.Cut(page, "\n"+heading+"\n")
	Expect(found).To(BeTrue(), heading)
	part, _, _ := strings.Cut(rest, "\n#")
	return part
}

var _ = Describe("The pages", func() {
	DescribeTable("should have their tables as the code has them", func(page string, lines ...string) {
		written := text(root + "docs/" + page + ".md")
		Expect(written).To(ContainSubstring("<!-- make generate writes this: "))
		Expect(output(page)).To(Equal(written), "run `make generate`")
		for _, line := range lines {
			Expect(written).To(ContainSubstring(line))
		}
	},
		Entry(nil, "reference/compatibility", "| Karpenter | v1.", "| Go, to build it | 1."),
		Entry(nil, "reference/fields", "| `rootDisk.size` | quantity | From 20Gi to 16Ti, in steps of 10Gi. It is the node's ephemeral storage. Default: `40Gi`. |",
			" Rule: set exactly one of snapshot.id and snapshot.name. |", "| `rateLimits.create.burst` | integer |", "| `dataDisks[].size` (required) |",
			"| `billingPlan` | `OnDemand`, `SavingPlan` |", "- Rule: joinToken belongs to", "| `networks[].id` (required) | string |"),
		Entry(nil, "reference/flavors", "| `e2.16c_64g`, `e4a.16c_64g` | enterprise | 16, 64 GiB |", "| 8, 32 GiB, 1 x NVIDIA A30 |"),
		Entry(nil, "reference/metrics", "| `karpenter_bizfly_api_request_duration_seconds` | histogram | `route`, `method`, `status`, `outcome` |",
			"| `karpenter_bizfly_api_logins_total` | counter | `outcome` |", "| `karpenter_bizfly_build_info` | gauge | `version`, `commit`, `goversion` |",
			"| `karpenter_cloudprovider_instance_type_offering_price_estimate` | gauge | `nodeclass`, `instance_type`, `zone`, `capacity_type` |"),
		Entry(nil, "reference/options", "| `LAUNCH_TIMEOUT` | `3m` |", "| `BIZFLY_CLOUD_REGION_LABEL`, `--region-label` | - |", "| `BKE_CLUSTER_TOKEN` |",
			"- `BATCH_IDLE_DURATION=1s`\n", "- `DISABLE_LEADER_ELECTION=false`\n"),
		Entry(nil, "contribute/sandbox", "| `any-form` |"),
	)
	It("should be told apart from tables that nothing writes", func() {
		Expect(output("reference/none")).Error().To(MatchError(ContainSubstring("none.md")))
	})
	It("should have the catalog that the kubectl plugin embeds", func() {
		Expect(output("catalog")).To(Equal(text(root+"cmd/kubectl-bizfly/internal/offline/catalog.json")), "run `make generate`")
	})
	It("should have a complete row for every tuning key", func() {
		page := text(reference + "options.md")
		for _, setting := range options.Table() {
			if setting.Key != "" {
				Expect(page).To(MatchRegexp("(?m)^\\| `%s`(, `%s`)? (\\| [^|]+ ){3}\\|$", setting.Key, setting.Variable))
			}
		}
	})
	It("should have every variable and function that a template can use, and no other", func() {
		variables := reflect.TypeFor[*bootstrap.Variables]()
		names := lo.Times(variables.NumMethod(), func(i int) string { return variables.Method(i).Name })
		for _, field := range reflect.VisibleFields(variables.Elem()) {
			if field.IsExported() {
				names = append(names, field.Name)
			}
		}
		page := section(text(reference+"bootstrap.md"), "## What templates can use")
		ofVariables, ofFunctions, _ := strings.Cut(page, "| function |")
		Expect(keys(ofVariables)).To(ConsistOf(lo.Map(names, func(name string, _ int) string { return "." + name })))
		source := text(root + "internal/providers/bootstrap/template.go")
		_, source, _ = strings.Cut(source, "\nvar functions = template.FuncMap{\n")
		source, _, _ = strings.Cut(source, "\n}\n")
		functions := lo.Map(regexp.MustCompile(`(?m)^\t"(\w+)":`).FindAllStringSubmatch(source, -1), func(m []string, _ int) string { return m[1] })
		// These are Go's own, which are only bounded here.
		functions = lo.Without(functions, "print", "println", "html", "js", "urlquery")
		shown := lo.FlatMap(keys(ofFunctions), func(usage string, _ int) []string {
			return lo.Map(strings.Split(usage, ", "), func(one string, _ int) string { return strings.Fields(one)[0] })
		})
		Expect(shown).To(ConsistOf(functions))
	})
})

var _ = Describe("The conditions and keys", func() {
	page := func() string { return text(reference + "fields.md") }
	const statuses, usage, boot, config, api = "internal/controllers/nodeclass/status", "internal/controllers/nodeclass/usage",
		"internal/providers/bootstrap", "internal/controllers/providerconfig", "pkg/apis/v1alpha1"
	withPrefix := func(dir, prefix string) []string {
		return lo.Values(lo.PickBy(constants(dir), func(name, _ string) bool { return strings.HasPrefix(name, prefix) }))
	}

	It("should all be listed with the reasons that they can have", func() {
		var listed []string
		for _, of := range []string{"Of a BizflyNodeClass, with a part in Ready", "Of a BizflyNodeClass, beside Ready",
			"Of a ProviderConfig, with a part in Ready", "Of a ProviderConfig, beside Ready"} {
			listed = append(listed, keys(section(page(), "### "+of))...)
		}
		Expect(listed).To(ConsistOf(withPrefix(api, "ConditionType")))
		for _, dir := range []string{statuses, usage, boot, config, api} {
			for _, reason := range append(withPrefix(dir, "reason"), withPrefix(dir, "Reason")...) {
				Expect(page()).To(ContainSubstring("`"+reason+"`"), dir)
			}
		}
	})
	DescribeTable("should be those of the API", func(heading, prefix string) {
		Expect(keys(section(page(), heading))).To(ConsistOf(withPrefix(api, prefix)))
	},
		Entry(nil, "## Labels", "Label"),
		Entry(nil, "## Annotations", "Annotation"),
		Entry(nil, "## Finalizers", "TerminationFinalizer"),
		Entry(nil, "## Metadata of servers", "Metadata"),
	)
	It("should name the prefixes that tags may not have", func() {
		for _, reserved := range v1alpha1.ReservedMetadataPrefixes {
			Expect(section(page(), "## Metadata of servers")).To(ContainSubstring("`" + reserved + "`"))
		}
	})
})

var _ = Describe("Events", func() {
	// documented are the rows of this provider's events: the reason, and whether it is normal.
	documented := func() map[string]bool {
		GinkgoHelper()
		page, _, _ := strings.Cut(text(reference+"events.md"), "\n## Karpenter's own\n")
		normal := map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)`(, \\*normal\\*)? \\| [^|]+\\. \\|$").FindAllStringSubmatch(page, -1) {
			Expect(normal).NotTo(HaveKey(row[1]), "documented twice")
			normal[row[1]] = row[2] != ""
		}
		Expect(normal).To(HaveLen(len(keys(page))), "a row is not complete")
		return normal
	}

	It("should have a documented reason and type, an object, and a bound on their repetition", func() {
		normal := documented()
		for name, event := range unit.Events("cause") {
			Expect(event.Reason).To(MatchRegexp(`^[A-Z][A-Za-z]+$`), name)
			Expect(normal).To(HaveKey(event.Reason), name)
			Expect(event.Type).To(Equal(lo.Ternary(normal[event.Reason], corev1.EventTypeNormal, corev1.EventTypeWarning)), name)
			Expect(event.InvolvedObject).ToNot(BeNil(), name)
			Expect(strings.Join(event.DedupeValues, "")).ToNot(BeEmpty(), name)
			Expect(event.Message).ToNot(BeEmpty(), name)
		}
	})
	It("should document every reason that is published or that a condition has, and no other", func() {
		published := lo.MapToSlice(constants("internal/events"), func(_, reason string) string { return reason })
		for _, dir := range []string{"internal/controllers/nodeclass/status", "internal/controllers/nodeclass/usage",
			"internal/controllers/providerconfig", "internal/providers/bootstrap"} {
			for name, reason := range constants(dir) {
				// These are never the reason of a false condition, or of one that needs no further report.
				quiet := []string{"CloudUnavailable", "AwaitingNetworks", "AwaitingZones", "AwaitingDisks", "AwaitingBootstrap", "NotAsked", "KeysIgnored",
					"ControlPlaneUnknown", "LaunchesNotPaused", "CiliumMayBypass", "Deleting"}
				if strings.HasPrefix(strings.ToLower(name), "reason") && !lo.Contains(quiet, reason) {
					Expect(documented()).To(HaveKey(reason), dir)
					published = append(published, reason)
				}
			}
		}
		Expect(published).To(ContainElements(lo.Keys(documented())))
	})
})

// Core's controller of nodes registers its metrics when it is made, which a repeated spec must not do again.
var registerNodeMetrics = sync.OnceFunc(func() { nodemetrics.NewController(nil) })

var _ = Describe("Metrics", func() {
	It("should have labels that are explained or explain themselves", func() {
		metrics := lo.Must(registered())
		used := lo.FlatMap(metrics, func(m metric, _ int) []string {
			return lo.Ternary(strings.HasPrefix(m.name, prefix) || strings.HasPrefix(m.name, sharedPrefix), m.labels, nil)
		})
		explained := lo.Uniq(keys(section(text(reference+"metrics.md"), "## Labels")))
		Expect(used).To(ContainElements(explained), "a label that no metric has")
		themselves := []string{"method", "flavor", "zone", "nodeclass", "nodepool", "version", "goversion", "change", "outcome"}
		Expect(append(explained, themselves...)).To(ContainElements(lo.Uniq(used)), "add a label to the page, or here")
	})
	It("should come from every package that counts", func(ctx context.Context) {
		counts := regexp.MustCompile(`(prometheus|opmetrics|factory)\.New(Prometheus)?(Counter|Gauge|Histogram|Summary|Desc)|\bmetrics\.(Counter|Gauge|Histogram)\(`)
		var counting []string
		Expect(filepath.WalkDir(root+"internal", func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && counts.MatchString(text(path)) {
				counting = append(counting, module+strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), root))
			}
			return err
		})).To(Succeed())
		Expect(counting).NotTo(BeEmpty())
		imported := lo.Must(exec.CommandContext(ctx, "go", "list", "-deps", ".").Output())
		Expect(strings.Fields(string(imported))).To(ContainElements(lo.Uniq(counting)), "import what is missing in metrics.go")
	})
	It("should exist wherever they are written: pages, dashboards, alerts and runbooks", func() {
		registerNodeMetrics()
		all, err := registered()
		Expect(err).ToNot(HaveOccurred())
		known := lo.SliceToMap(all, func(m metric) (string, bool) { return m.name, true })
		// A name that ends in _ is a prefix.
		name := regexp.MustCompile(`\bkarpenter_[a-z0-9_]*[a-z0-9]\b[^*a-z0-9_./-]`)
		suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
		looked := 0
		for _, dir := range []string{"docs", "charts", "README.md"} {
			Expect(filepath.WalkDir(root+dir, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.Name() == ".vitepress" {
					return filepath.SkipDir // packages of npm
				}
				if err != nil || entry.IsDir() || !lo.Contains([]string{".md", ".json", ".yaml", ".txt"}, filepath.Ext(path)) {
					return err
				}
				for _, found := range name.FindAllString(text(path), -1) {
					found = found[:len(found)-1]
					if found == "karpenter_sh_nodepool" {
						continue // core's label for the NodePool of a NodeClaim
					}
					Expect(known[found] || known[suffix.ReplaceAllString(found, "")]).To(BeTrue(), "%s names %s, which is no metric", path, found)
					looked++
				}
				return nil
			})).To(Succeed())
		}
		Expect(looked).To(BeNumerically(">", 100))
	})
})
