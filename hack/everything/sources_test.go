// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The list of checks", func() {
	It("should have every check of this repository, or the reason why it is none", func() {
		table, commands, help := must(ReadTable(root)), must(Commands(root)), must(Help(root))
		Expect(Targets(commands)).To(ContainElements("test", "e2e", "docs-browse", "image-check"), "what workflows run")
		Expect(Gaps(table, commands, help)).To(BeEmpty())
	})

	It("should have all that a workflow runs, also what the table lacks", func() {
		table := Table{Checks: []Check{{Name: "test"}, {Name: "e2e-a", PartOf: "e2e"}, {Name: "e2e"}}}
		Expect(table.Everything([]string{"new", "test"})).To(HaveExactElements(
			HaveField("Name", "test"), HaveField("Name", "e2e"), HaveField("Name", "new")))
	})

	DescribeTable("should find the targets of make in a script", func(script string, expected ...string) {
		Expect(Targets(split(script))).To(ConsistOf(expected))
	},
		Entry("alone", "make verify", "verify"),
		Entry("several of them", "make helm controlplane", "controlplane", "helm"),
		Entry("with variables", "make chaos SEED=$((GITHUB_RUN_NUMBER * 5000)) RUNS=5000", "chaos"),
		Entry("with flags", "make --jobs=2 verify", "verify"),
		Entry("of another user", `sudo -E env "PATH=$PATH" make image-check`, "image-check"),
		Entry("at the end of a longer one", "if [ -n \"$A\" ]; then\n  export B=c\nfi\nunset A\nA=b make e2e-cloud\n", "e2e-cloud"),
		Entry("on one line with others", "cd x && make lint || make fmt; echo make test", "fmt", "lint"),
		Entry("over two lines", "make \\\n  docs", "docs"),
		Entry("in none", "# make test\necho make"),
	)

	It("should find the scripts of all jobs and steps of a workflow", func() {
		Expect(scripts(map[string]any{"jobs": map[string]any{
			"a": map[string]any{"steps": []any{map[string]any{"uses": "x"}, map[string]any{"run": "make a\nmake b"}}},
			"b": map[string]any{"defaults": map[string]any{"run": map[string]any{"shell": "bash"}}},
		}})).To(ConsistOf("make a", "make b"))
	})

	DescribeTable("should not hide", func(change func(table *Table, commands *[]string, help map[string]string), expected string) {
		table := Table{
			Checks: []Check{{Name: "test"}, {Name: "bench", CI: Rotates}}, Others: map[string]string{"clean": "removes"},
			Commands: map[string]string{"hack/release/release.sh notes": "prints"},
		}
		commands := []string{"make test", "hack/release/release.sh notes v1", "echo done"}
		help := map[string]string{"test": "Run every suite", "bench": "Compare", "clean": "Remove"}
		Expect(Gaps(table, commands, help)).To(BeEmpty())
		change(&table, &commands, help)
		Expect(Gaps(table, commands, help)).To(ConsistOf(ContainSubstring(expected)))
	},
		Entry("a workflow's target that the table lacks", func(_ *Table, commands *[]string, _ map[string]string) {
			*commands = append(*commands, "make new")
		}, "a workflow runs `make new`"),
		Entry("a check that a workflow runs without make", func(_ *Table, commands *[]string, _ map[string]string) {
			*commands = append(*commands, "go test ./...")
		}, "a workflow runs `go test ./...` without make"),
		Entry("a new target of make", func(_ *Table, _ *[]string, help map[string]string) { help["new"] = "Check" },
			"`make new` must be either a check or one of"),
		Entry("a target that is both", func(table *Table, _ *[]string, _ map[string]string) { table.Others["test"] = "no check" },
			"`make test` must be either a check or one of"),
		Entry("a check that runs nowhere without a reason", func(table *Table, _ *[]string, _ map[string]string) { table.Checks[1].CI = "" },
			"neither a workflow nor .ci/run runs `make bench`"),
		Entry("a check whose target is gone", func(table *Table, _ *[]string, help map[string]string) {
			table.Checks = append(table.Checks, Check{Name: "part", Make: []string{"--jobs=2", "gone", "A=b"}, PartOf: "test"})
		}, "the check part of hack/everything/checks.yaml runs `make gone`"),
		Entry("a target that is gone", func(table *Table, _ *[]string, _ map[string]string) { table.Others["gone"] = "prints" }, "has gone, which"),
	)

	It("should fail where a focus or a label selects no spec, which else counts as passed", func() {
		selects, nodes := regexp.MustCompile(`--?(?:ginkgo\.)?(?:focus|label-filter)=`), "test/e2e/nodes/nodes.sh"
		for _, file := range append(must(filepath.Glob(filepath.Join(root, "hack", "*.sh"))), filepath.Join(root, "Makefile")) {
			text := strings.ReplaceAll(string(must(os.ReadFile(file))), "\\\n", " ")
			for _, line := range strings.Split(text, "\n") {
				if selects.MatchString(line) && !strings.HasPrefix(line, "#") {
					Expect(line).To(Or(ContainSubstring("fail-on-empty"), ContainSubstring("dry-run"), ContainSubstring(nodes)), file)
				}
			}
		}
		Expect(string(must(os.ReadFile(filepath.Join(root, nodes))))).To(MatchRegexp(`nodes\.test .*-ginkgo\.fail-on-empty .*NODES_FLAGS`))
	})

	It("should write below .cache only after it has made the folder, which a fresh checkout lacks", func() {
		makefile := strings.ReplaceAll(string(must(os.ReadFile(filepath.Join(root, "Makefile")))), "\\\n", " ")
		// The demo makes the folder of its scrapes, and controller-gen that of the definitions.
		makes, writes := regexp.MustCompile(`mkdir -p|--scrapes |output:crd:dir=`), regexp.MustCompile(`(?:>|\btee )\s*"?\$\((?:CACHE|REPORTS|SCRAPES)\)`)
		found := 0
		for _, rule := range strings.Split(makefile, "\n\n") {
			if at := writes.FindStringIndex(rule); at != nil {
				Expect(rule[:at[0]]).To(MatchRegexp(makes.String()), rule)
				found++
			}
		}
		Expect(found).To(BeNumerically(">", 4))
	})

	It("should accept a check that runs nowhere with a reason in its help", func() {
		Expect(Gaps(Table{Checks: []Check{{Name: "pictures"}}}, nil, map[string]string{"pictures": "Draw (not in CI: other numbers)"})).To(BeEmpty())
	})
})
