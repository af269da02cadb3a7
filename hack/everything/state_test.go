// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A run of everything", func() {
	checks := []Check{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	all := []string{"a", "b", "c", "d"}
	results := func(tree string, outcomes ...string) map[string]Result {
		results := map[string]Result{}
		for i, outcome := range outcomes {
			results[checks[i].Name] = Result{Name: checks[i].Name, Outcome: outcome, Tree: tree}
		}
		return results
	}
	mixed := results("now", passed, passed, passed, passed)
	mixed["b"] = Result{Name: "b", Outcome: passed, Tree: "before"}

	DescribeTable("should run", func(earlier map[string]Result, asked Selection, runs []string, keeps ...string) {
		run, kept, err := Select(checks, earlier, "now", asked)
		Expect(err).ToNot(HaveOccurred())
		var names []string
		for _, check := range run {
			names = append(names, check.Name)
		}
		Expect(names).To(Equal(runs))
		Expect(kept).To(HaveLen(len(keeps)))
		for _, name := range keeps {
			Expect(kept).To(HaveKey(name))
		}
	},
		Entry("all the first time", nil, Selection{}, all),
		Entry("what an interrupted run has left", results("now", passed, failed), Selection{}, []string{"c", "d"}, "a", "b"),
		Entry("all of other sources", results("before", passed, failed), Selection{}, all),
		Entry("what is of other sources, although others are of these", mixed, Selection{}, []string{"b"}, "a", "c", "d"),
		Entry("all again after a complete run", results("now", passed, failed, passed, skipped), Selection{}, all),
		Entry("what has not passed", results("before", passed, failed, skipped), Selection{Continue: true}, []string{"b", "d"}, "a", "c"),
		Entry("some, and keep the results of the others", results("now", passed, passed), Selection{Only: []string{"d", "b"}}, []string{"b", "d"}, "a"),
		Entry("from one on", results("now", passed, passed, passed, passed), Selection{From: "c"}, []string{"c", "d"}, "a", "b"),
	)

	It("should reject a name that it does not know", func() {
		_, _, err := Select(checks, nil, "now", Selection{Only: []string{"a", "x"}})
		Expect(err).To(MatchError(ContainSubstring(`"x" is not a check`)))
		_, _, err = Select(checks, nil, "now", Selection{From: "y"})
		Expect(err).To(MatchError(ContainSubstring(`"y" is not a check`)))
	})

	It("should find after an interruption what it has written before", func() {
		file := filepath.Join(GinkgoT().TempDir(), "x", "state.json")
		Expect(ReadState(file)).To(Equal(State{}))
		state := State{Results: results("now", passed)}
		Expect(state.Write(file)).To(Succeed())
		Expect(ReadState(file)).To(Equal(state))
		Expect(os.WriteFile(file, []byte("{"), 0o600)).To(Succeed())
		_, err := ReadState(file)
		Expect(err).To(MatchError(ContainSubstring("delete the file to begin anew")))
	})

	Describe("of a repository", func() {
		var s sources
		write := func(name, content string) {
			GinkgoHelper()
			Expect(os.WriteFile(filepath.Join(s.root, name), []byte(content), 0o600)).To(Succeed())
		}
		BeforeEach(func(ctx SpecContext) {
			s = sources{root: GinkgoT().TempDir(), table: Table{Checks: []Check{{Name: "reads"}, {Name: "writes"}, {Name: "last"}}}}
			write(".gitignore", "/.cache/\n")
			write("Makefile", "reads last:\n\t@true\nwrites:\n\t@echo more >>page\n")
			for _, args := range []string{"init --quiet", "add .", "-c user.name=a -c user.email=a@b commit --quiet --no-gpg-sign --message=a"} {
				git := exec.CommandContext(ctx, "git", strings.Fields(args)...)
				git.Dir = s.root
				said, err := git.CombinedOutput()
				Expect(err).ToNot(HaveOccurred(), string(said))
			}
		})
		run := func(ctx SpecContext, args ...string) string {
			GinkgoHelper()
			output := &bytes.Buffer{}
			Expect(s.everything(ctx, flag.NewFlagSet("run", flag.ContinueOnError), args, output)).To(Succeed())
			return output.String()
		}

		It("should not count results of sources that a later check has changed", func(ctx SpecContext) {
			Expect(run(ctx, "--only=reads writes")).To(HavePrefix("2 of 3 checks run"))
			Expect(run(ctx)).To(HavePrefix("3 of 3 checks run; of 0 an earlier result counts"))
		})

		It("should count results of the same sources", func(ctx SpecContext) {
			run(ctx, "--only=reads")
			Expect(run(ctx)).To(HavePrefix("2 of 3 checks run; of 1 an earlier result counts"))
		})

		It("should know its sources by all that git does not ignore", func(ctx SpecContext) {
			seen := []string{s.tree(ctx)}
			changed := func(name, content string) {
				GinkgoHelper()
				write(name, content)
				Expect(seen).ToNot(ContainElement(s.tree(ctx)), name)
				seen = append(seen, s.tree(ctx))
			}
			changed("Makefile", "other:\n")
			changed("new file", "a")
			changed("new file", "b")
			Expect(os.Mkdir(filepath.Join(s.root, ".cache"), 0o750)).To(Succeed())
			write(".cache/x", "ignored")
			Expect(s.tree(ctx)).To(Equal(seen[len(seen)-1]))
		})
	})

	It("should print a table with each result, its reason and its log", func() {
		output := &bytes.Buffer{}
		WriteResults(output, []Result{
			{Name: "a", Outcome: passed, Seconds: 5, Log: "a.log"}, {Name: "b", Outcome: failed, Seconds: 12, Log: "b.log"},
			{Name: "c", Outcome: skipped, Reason: "not root", Log: "c.log"},
		})
		Expect(output.String()).To(Equal("\ncheck  seconds  log    result\na      5        a.log  passed\nb      12       b.log  FAILED\n" +
			"c      0        c.log  skipped: not root\n\nchecks: 1 passed, 1 failed, 1 skipped\n"))
	})

	It("should record the times of what has passed, and nothing else", func() {
		text := "# x\n  - {name: a, seconds: 1}\n  - {name: a-b, seconds: 2, ci: always}\n  - {name: c, seconds: 3}\n"
		Expect(Record(text, []Result{
			{Name: "a", Outcome: passed, Seconds: 40}, {Name: "a-b", Outcome: failed, Seconds: 50}, {Name: "c", Outcome: skipped},
		})).To(Equal("# x\n  - {name: a, seconds: 40}\n  - {name: a-b, seconds: 2, ci: always}\n  - {name: c, seconds: 3}\n"))
	})

	It("should record into the table of this repository, whose rows begin alike", func() {
		text := string(must(os.ReadFile(filepath.Join(root, tableFile))))
		for _, check := range must(ReadTable(root)).Checks {
			Expect(Record(text, []Result{{Name: check.Name, Outcome: passed, Seconds: 987654}})).To(ContainSubstring("{name: " + check.Name + ", seconds: 987654"))
		}
	})

	It("should write its table into the place that a page has for it", func() {
		table := []Check{{Name: "docs", Seconds: 600, Needs: []string{"npm"}, CI: Always},
			{Name: "e2e-a", PartOf: "e2e", Make: []string{"-j2", "e2e", "A=b c|d"}, Seconds: 20, CI: Rotates}, {Name: "p"}}
		page, err := WritePage("before\n"+begin+"old\n"+end+"after\n", table, map[string]string{"p": "Draw (not in CI: numbers)"}, []string{"docs"})
		Expect(err).ToNot(HaveOccurred())
		Expect(page).To(Equal("before\n" + begin + "\n| check | time | CI |\n| --- | --- | --- |\n" +
			"| `make docs` | 10 min | workflow; always |\n| `e2e-a`: `make e2e A='b c\\|d'` | 20 s | rotates |\n" +
			"| `make p` | not measured | not in CI: numbers |\n\n" + end + "after\n"))
		_, err = WritePage("without", nil, nil, nil)
		Expect(err).To(MatchError(ContainSubstring("no place for the table")))
	})
})
