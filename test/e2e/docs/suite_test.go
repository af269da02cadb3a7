// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestDocs(t *testing.T) {
	suite.Reads(filepath.Join(root, "charts")) // Helm does
	suite.Run(t, "Docs")
}

// sources are the pages and the files beside them that a reader copies commands from: those of docs/, of the repository's top, and of
// what users run alone.
func sources() []string {
	paths := lo.Must(filepath.Glob(filepath.Join(root, "*.md")))
	paths = append(paths, filepath.Join(root, "test/sandbox/README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".vitepress" {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return paths
}

// charts are the pages beside the charts, whose commands are those of other pages.
func charts() []string {
	paths, err := filepath.Glob(filepath.Join(root, "charts", "*", "README.md"))
	if err != nil {
		panic(err)
	}
	return paths
}

// lastLooks matches the commands at the end of a block that change nothing.
var lastLooks = regexp.MustCompile(`(?m)(^kubectl get .*[^\\\n]\n)+\z`)

// placeholder is what a reader replaces by a value of theirs.
var placeholder = regexp.MustCompile(`<[a-z][a-z A-Z-]*>`)

// assigned and ends are what HCL has instead of the colons and commas of YAML.
var (
	assigned = regexp.MustCompile(`(\w+)\s+= `)
	ends     = regexp.MustCompile(`([^\s{\[,])\n`)
)

// assignment gives variables the values of the reader's.
var assignment = regexp.MustCompile(`(?m)^ *export [A-Z_]+='<.*$`)

var _ = Describe("The blocks of the pages", func() {
	It("should be valid shell, whether they are run here or not", func() {
		parsed := 0
		for _, path := range append(sources(), charts()...) {
			p, err := readPage(path)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range p.blocks {
				if b.language != "sh" && b.language != "bash" {
					continue
				}
				command := exec.Command("bash", "-n")
				command.Stdin = strings.NewReader(b.text)
				said, err := command.CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s:%d: %s", path, b.line, said)
				parsed++
				// To a shell, <name> is a redirection: users replace the values of variables, which are set once.
				if !strings.Contains(path, "/contribute/") {
					Expect(assignment.ReplaceAllString(b.text, "")).NotTo(MatchRegexp(placeholder.String()), "%s:%d", path, b.line)
				}
			}
		}
		Expect(parsed).To(BeNumerically(">", 50))
	})
	It("should be executed, or marked with what they need instead", func() {
		text := lo.Must(filepath.Glob(filepath.Join(root, "test/e2e/install/*_test.go")))
		var specs strings.Builder
		for _, path := range text {
			content := lo.Must(os.ReadFile(path))
			specs.Write(content)
		}
		// Blocks of one name are the same commands, so that it is enough to run one of them.
		named, counts := map[string]string{}, map[string]int{}
		for _, path := range append(sources(), charts()...) {
			p := lo.Must(readPage(path))
			for _, b := range p.blocks {
				at := fmt.Sprintf("%s:%d", path, b.line)
				switch {
				case b.section != "":
				case b.e2e != "":
					Expect(specs.String()).To(MatchRegexp(`run\("[^"]*", %q`, b.e2e), "%s: test/e2e/install does not run it", at)
					Expect(b.text).To(Equal(lo.CoalesceOrEmpty(named[b.e2e], b.text)), "%s: another block of this name has other commands", at)
					named[b.e2e] = b.text
					counts["e2e"]++
				case b.language == "sh" || b.language == "bash":
					mark := lo.FirstOr(b.marks, "")
					Expect(mark).To(BeElementOf(run, realCloud, elsewhere), "%s: no mark, or another one", at)
					counts[mark]++
				case b.language == "console" && !strings.Contains(path, "/contribute/") && !strings.HasSuffix(path, "/kubectl-bizfly.md"):
					Expect(b.text).NotTo(HavePrefix("$ "), "%s: commands belong into a block sh", at)
				}
				Expect(b.section != "" || b.language != "").To(BeTrue(), "%s: the block has no language", at)
			}
		}
		GinkgoWriter.Printf("blocks of commands: %v\n", counts)
		Expect(counts[run]).To(BeNumerically(">", counts[elsewhere]+counts[realCloud]), "%v", counts)
	})
	It("should be fenced, or none of this would see them", func() {
		for _, path := range append(sources(), charts()...) {
			p := lo.Must(readPage(path))
			Expect(p.indented).To(BeEmpty(), path)
		}
	})
	It("should have commands, sentences, samples and hints that their tools know", func() {
		found, hinted := documented()
		Expect(len(hinted)).To(BeNumerically(">", 20))
		found = append(found, hinted...)
		checked := map[string]error{}
		var wrong []string
		for _, c := range found {
			line := strings.Join(c.words, "\x00")
			if _, done := checked[line]; !done {
				checked[line] = check(c)
			}
			if err := checked[line]; err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %s", c, err))
			}
		}
		Expect(wrong).To(BeEmpty())
	})
	DescribeTable("should be rejected where BizFly Cloud's command line would do nothing", func(line string, expected types.GomegaMatcher) {
		said := lo.Must(commands("a page", line))
		Expect(said).To(HaveLen(1))
		Expect(check(said[0])).To(expected)
	},
		Entry("", "bizfly kubernetes workerpool update $CLUSTER $POOL --min-size 2 --max-size 2", Succeed()),
		Entry("", "bizfly kubernetes workerpool update $CLUSTER $POOL --autoscaling=true", Succeed()),
		Entry("", "bizfly kubernetes workerpool update $CLUSTER $POOL --autoscaling false", MatchError("3 arguments, not 2")),
		Entry("", "bizfly kubernetes workerpool update $CLUSTER $POOL --autoscaling=false", MatchError("--autoscaling=false is not sent")),
		Entry("", "bizfly kubernetes workerpool update $CLUSTER $POOL --enable-autoscaling", MatchError(ContainSubstring("not defined: -enable-autoscaling"))),
		Entry("", "bizfly kubernetes workerpool list $CLUSTER", MatchError("no such command")),
		Entry("", "bizfly iam project list", MatchError("no such command")),
		Entry("", "bizfly server delete $A $B", Succeed()),
		Entry("", "bizfly server delete", MatchError("0 arguments, not 1+")),
		Entry("", "kubectl get nodes --no-such-flag", HaveOccurred()),
		Entry("", "kubectl gets nodes", HaveOccurred()),
		Entry("", "kubectl bizfly top", Succeed()),
		Entry("", "kubectl bizfly top --no-such-flag", HaveOccurred()),
		Entry("", "helm test karpenter --namespace karpenter", Succeed()),
		Entry("", "helm tests karpenter", HaveOccurred()),
		Entry("", "helm upgrade karpenter charts/karpenter-provider-bizflycloud --reset-then-reuse-values", Succeed()),
		Entry("", "helm upgrade --reset-then-reuse-values --set a=b", MatchError(ContainSubstring("the release is karpenter"))),
		Entry("", "helm install karpenter charts/karpenter-provider-bizflycloud-crd", MatchError(ContainSubstring("the release is karpenter"))),
		Entry("", "go run ./test/sandbox --listen 127.0.0.1:8080", Succeed()),
		Entry("", "go run ./test/sandbox/cloud", MatchError(ContainSubstring("no command"))),
		Entry("", "go run ./test/sandbox --address 127.0.0.1:8080", MatchError(ContainSubstring("no flag --address"))),
		Entry("", "curl https://manage.bizflycloud.vn", MatchError(ContainSubstring("not executed"))),
	)
	DescribeTable("should not have what cannot work", func(wrong string) {
		for _, dir := range []string{"docs", "internal", "cmd", "charts", "config", "README.md", "README.vi.md"} {
			Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case entry.IsDir() && entry.Name() == "node_modules":
					return fs.SkipDir
				case !entry.Type().IsRegular(), // building the site leaves a link to its packages
					strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".test"): // Ginkgo compiles a suite beside its sources
					return nil
				}
				text, err := os.ReadFile(path)
				Expect(string(text)).NotTo(ContainSubstring(wrong), path)
				return err
			})).To(Succeed())
		}
	},
		Entry("an application credential for BizFly Cloud's command line, which sends no method with it", "BIZFLY_CLOUD_APP_CREDENTIAL"),
		Entry("a column that this command line shows, and nothing can change", "Enabled AutoScaling"),
		Entry("a plugin of Krew, whose index does not have it", "krew upgrade"),
		Entry("a repository that holds the older provider", "git clone https://github.com/bizflycloud/karpenter-provider-bizflycloud"),
		Entry("a label that no cloud controller manager has", "-l app=bizfly-cloud-controller-manager"),
	)
	It("should launch no node that is smaller than each worker that is known, and so do samples", func() {
		text := func(path string) string {
			content := lo.Must(os.ReadFile(path))
			return string(content)
		}
		manifests := map[string]string{}
		for _, path := range sources() {
			p := lo.Must(readPage(path))
			for _, b := range p.blocks {
				if b.language == "yaml" {
					manifests[fmt.Sprintf("%s:%d", path, b.line)] = b.text
				}
			}
		}
		for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
			paths := lo.Must(filepath.Glob(filepath.Join(root, "config/samples", pattern)))
			for _, path := range paths {
				manifests[path] = text(path)
			}
		}
		pools := 0
		for at, manifest := range manifests {
			for _, document := range strings.Split(manifest, "\n---\n") {
				pool := &karpv1.NodePool{}
				if !strings.Contains(document, "\nkind: NodePool\n") {
					continue
				}
				Expect(yaml.Unmarshal([]byte(document), pool)).To(Succeed(), at)
				Expect(pool.Spec.Limits).NotTo(BeEmpty(), "%s: NodePool %s", at, pool.Name)
				Expect(document).To(ContainSubstring("expireAfter: "), "%s: Karpenter's default ignores budgets", at)
				if pool.Spec.Replicas == nil {
					Expect(document).To(ContainSubstring("consolidateAfter: "), "%s: Karpenter's default is 0s", at)
				}
				// Servers with user data of their own need what that installs.
				if lo.Contains([]string{"kubeadm", "k3s"}, pool.Name) {
					continue
				}
				pools++
				requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
				if requirements.Get(corev1.LabelInstanceTypeStable).Operator() == corev1.NodeSelectorOpIn || // flavors by name
					requirements.Has(v1alpha1.LabelInstanceGPUCount) && requirements.Get(v1alpha1.LabelInstanceGPUCount).Operator() == corev1.NodeSelectorOpExists {
					continue
				}
				for _, small := range [][2]string{{"1", "1024"}, {"1", "2048"}, {"2", "1024"}} {
					Expect(requirements.Get(v1alpha1.LabelInstanceCPU).Has(small[0]) && requirements.Get(v1alpha1.LabelInstanceMemory).Has(small[1])).To(BeFalse(),
						"%s: NodePool %s allows %s vCPU with %s MiB, and no worker of BKE is known below 2 vCPUs and 2 GiB", at, pool.Name, small[0], small[1])
				}
			}
		}
		Expect(pools).To(BeNumerically(">", 10))
	})
	It("should be commands of other pages, which are executed, beside the charts", func() {
		executed := map[string]bool{}
		for _, path := range sources() {
			p := lo.Must(readPage(path))
			for _, b := range p.blocks {
				if b.language == "sh" && (b.marked(run) || b.e2e != "") {
					said := lo.Must(commands(path, b.text))
					for _, c := range said {
						executed[strings.Join(c.words, " ")] = true
					}
				}
			}
		}
		for _, path := range charts() {
			p := lo.Must(readPage(path))
			for _, b := range p.blocks {
				if b.language != "sh" {
					continue
				}
				said := lo.Must(commands(fmt.Sprintf("%s:%d", path, b.line), b.text))
				for _, c := range said {
					Expect(executed).To(HaveKey(strings.Join(c.words, " ")), "%s: no page has it", c)
				}
			}
		}
	})
	It("should install the charts with values that they accept, where another tool reads them", func(ctx SpecContext) {
		p, err := readPage(filepath.Join(root, "docs/how-to/gitops.md"))
		Expect(err).NotTo(HaveOccurred())
		installed := 0
		for _, b := range p.blocks {
			text, path := []byte(b.text), []string{}
			switch {
			case strings.Contains(b.text, "kind: Application\n"):
				path = []string{"spec", "source", "helm", "valuesObject"}
			case strings.Contains(b.text, "kind: HelmRelease\n"):
				path = []string{"spec", "values"}
			case b.language == "hcl":
				_, inner, _ := strings.Cut(b.text, "yamlencode(")
				inner, _, found := strings.Cut(inner, ")]")
				Expect(found).To(BeTrue())
				text = []byte(ends.ReplaceAllString(assigned.ReplaceAllString(inner, "$1: "), "$1,\n"))
			default:
				continue
			}
			var object map[string]any
			Expect(yaml.Unmarshal(text, &object)).To(Succeed(), "%s:%d: %s", p.path, b.line, text)
			values, found := lo.Must2(unstructured.NestedMap(object, path...))
			Expect(found || len(path) == 0).To(BeTrue(), "%s:%d has no values", p.path, b.line)
			if len(path) == 0 {
				values = object
			}
			Expect(values).To(HaveKey("cloud"))
			content := lo.Must(yaml.Marshal(values))
			file := filepath.Join(GinkgoT().TempDir(), "values.yaml")
			Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
			said, err := exec.CommandContext(ctx, filepath.Join(root, ".cache/tools/helm"), "template", "karpenter",
				filepath.Join(root, "charts/karpenter-provider-bizflycloud"), "--values", file).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s:%d: %s", p.path, b.line, said)
			installed++
		}
		Expect(installed).To(Equal(3), "Argo CD, Flux and Terraform")
	})
	It("should name targets that make has", func() {
		makefile := lo.Must(os.ReadFile(filepath.Join(root, "Makefile")))
		for _, path := range append(sources(), charts()...) {
			p := lo.Must(readPage(path))
			for _, b := range p.blocks {
				for _, line := range strings.Split(b.text, "\n") {
					line, _, _ = strings.Cut(placeholder.ReplaceAllString(line, "placeholder"), "#")
					words := strings.Fields(line)
					if b.language != "sh" || len(words) == 0 || words[0] != "make" {
						continue
					}
					for _, target := range words[1:] {
						if strings.Contains(target, "=") || target == "&&" {
							break // variables, whose values may have spaces, come last, and then other commands
						}
						Expect(string(makefile)).To(ContainSubstring("\n"+target+":"), "%s:%d", path, b.line)
					}
				}
			}
		}
	})
	It("should be run on a cluster that the page names", func() {
		for _, path := range sources() {
			p := lo.Must(readPage(path))
			runs := slices.ContainsFunc(p.blocks, func(b block) bool { return b.marked(run) || b.section != "" })
			Expect(runs).To(Equal(p.fixture != ""), "%s: the front matter needs \"cluster\" exactly if blocks are marked run", path)
			Expect(p.fixture == "" || lo.HasKey(fixtures, p.fixture)).To(BeTrue(), path)
		}
	})
	It("should be commands of the English pages in Vietnamese", func() {
		commands := func(name string) []string {
			p := lo.Must(readPage(filepath.Join(root, "docs", name)))
			return lo.FilterMap(p.blocks, func(b block, _ int) (string, bool) { return b.text, b.language == "sh" })
		}
		Expect(commands("get-started/bke.md")).To(ContainElements(lo.ToAnySlice(commands("vi/get-started.md"))...))
		Expect(commands("../README.vi.md")).To(HaveEach(BeElementOf(lo.ToAnySlice(commands("../README.md"))...)))
	})
	It("should be compared without what differs from run to run", func() {
		Expect(normalized("NAME          AGE\ndefault-x7k2p 37s\n")).To(Equal(normalized("NAME            AGE\ndefault-abcde   4m1s\n")))
		Expect(normalized("default-x7k2p-pg686cy4sbfb56br45 Ready")).To(Equal(normalized("default-qqqqq-0yptx5s0gaqc65fzgm   Ready")))
		Expect(normalized(`"name":"default-x7k2p-pg686cy4sbfb56br45_rootdisk"`)).To(Equal(normalized(`"name":"default-qqqqq-0yptx5s0gaqc65fzgm_rootdisk"`)))
		Expect(normalized("default True")).NotTo(Equal(normalized("default False")))
	})
	It("should be rewritten where they are", func() {
		path := filepath.Join(GinkgoT().TempDir(), "page.md")
		text := "---\ncluster: ready\n---\n1. Do:\n\n   ```sh run\n   echo one\n   ```\n\n   ```text output\n   old\n   ```\n\n```sh\ntrue\n```\n"
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		p, err := readPage(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.fixture).To(Equal("ready"))
		Expect(p.blocks[p.expected(0)].text).To(Equal("old\n"))
		p.show(1, "one\ntwo\n")
		Expect(p.write()).To(Succeed())
		p, err = readPage(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.blocks).To(HaveLen(3))
		Expect(p.blocks[1].text).To(Equal("one\ntwo\n"))
		Expect(p.lines[p.blocks[2].line-1]).To(Equal("true"))
	})
})

// The rest starts processes and takes minutes: `make e2e SUITE=docs` and `make e2e SUITE=nodes-docs` define it. One control plane per page,
// so that no page depends on another, and several run side by side.
var _ = Describe("The commands of", func() {
	if os.Getenv("E2E") == "" && !machines {
		return
	}
	for _, path := range sources() {
		name, _ := filepath.Rel(root, path)
		p, err := readPage(path)
		if err != nil || p.fixture == "" {
			continue
		}
		// The pages on migration are rehearsals, which are part of `make e2e`.
		labels := lo.Ternary(strings.Contains(name, "how-to/migrate-"), Label("e2e"), Label())
		It(name+" should print what the page shows", labels, func(ctx SpecContext) {
			s := newSession(ctx, p.fixture)
			// All outputs of a page are written when one has changed, so that they are of one run.
			printed, changed := map[int]string{}, false
			for i := range p.blocks {
				b := p.blocks[i]
				if b.section != "" {
					s.runSection(ctx, b.section)
				}
				if !b.marked(run) {
					continue
				}
				begin, looks, shown := b, "", p.expected(i)
				if shown >= 0 {
					looks = lastLooks.FindString(b.text)
				}
				begin.text = strings.TrimSuffix(b.text, looks)
				said, err := s.runBlock(ctx, begin)
				if looks != "" && err == nil {
					said, err = s.lookAgain(ctx, looks, said, p.blocks[shown].text)
				}
				Expect(err).NotTo(HaveOccurred(), "%s:%d:\n%s\nprinted:\n%s\n%s", name, b.line, b.text, said, s.diagnosis())
				if shown < 0 {
					continue
				}
				printed[shown] = said
				if slices.Equal(normalized(p.blocks[shown].text), normalized(said)) {
					continue
				}
				if os.Getenv("UPDATE") == "true" {
					changed = true
					continue
				}
				Expect(normalized(said)).To(Equal(normalized(p.blocks[shown].text)), "%s:%d:\n%s\nprinted:\n%s\nUPDATE=true make e2e SUITE=%s writes it into the page\n%s",
					name, p.blocks[shown].line, b.text, said, lo.Ternary(machines, "nodes-docs", "docs"), s.diagnosis())
			}
			if s.after != nil {
				s.after(ctx)
			}
			if changed || machines && os.Getenv("UPDATE") == "true" {
				for shown, said := range printed {
					p.show(shown, said)
				}
				Expect(p.write()).To(Succeed())
			}
		}, SpecTimeout(8*time.Minute))
	}
	It("manifests should be accepted by the API server", func(ctx SpecContext) {
		s := newSession(ctx, "ready")
		applied := 0
		for _, path := range sources() {
			p, err := readPage(path)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range p.blocks {
				// Blocks marked run are applied where their page is, with what they need, such as a namespace.
				if b.language != "yaml" || b.marked(elsewhere) || b.marked(run) || !strings.Contains(b.text, "apiVersion:") || strings.Contains(path, "/reference/") {
					continue
				}
				manifest := filepath.Join(s.dir, "manifest.yaml")
				Expect(os.WriteFile(manifest, []byte(placeholder.ReplaceAllString(b.text, "placeholder")), 0o600)).To(Succeed())
				said, err := s.run(ctx, "kubectl apply --dry-run=server --validate=strict -f "+manifest)
				Expect(err).NotTo(HaveOccurred(), "%s:%d: %s", path, b.line, said)
				applied++
			}
		}
		Expect(applied).To(BeNumerically(">", 5))
	}, SpecTimeout(5*time.Minute))
})
