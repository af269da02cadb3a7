// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A run of everything", func() {
	checks := []Check{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	all := []string{"a", "b", "c", "d"}
	results := func(outcomes ...string) map[string]Result {
		results := map[string]Result{}
		for i, outcome := range outcomes {
			results[checks[i].Name] = Result{Name: checks[i].Name, Outcome: outcome}
		}
		return results
	}

	DescribeTable("should run", func(earlier State, asked Selection, runs []string, keeps ...string) {
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
		Entry("all the first time", State{}, Selection{}, all),
		Entry("what an interrupted run has left", State{"now", results(passed, failed)}, Selection{}, []string{"c", "d"}, "a", "b"),
		Entry("all of other sources", State{"before", results(passed, failed)}, Selection{}, all),
		Entry("all again after a complete run", State{"now", results(passed, failed, passed, skipped)}, Selection{}, all),
		Entry("what has not passed", State{"before", results(passed, failed, skipped)}, Selection{Continue: true}, []string{"b", "d"}, "a", "c"),
		Entry("some, and keep the results of the others", State{"now", results(passed, passed)}, Selection{Only: []string{"d", "b"}}, []string{"b", "d"}, "a"),
		Entry("from one on", State{"now", results(passed, passed, passed, passed)}, Selection{From: "c"}, []string{"c", "d"}, "a", "b"),
	)

	It("should reject a name that it does not know", func() {
		_, _, err := Select(checks, State{}, "now", Selection{Only: []string{"a", "x"}})
		Expect(err).To(MatchError(ContainSubstring(`"x" is not a check`)))
		_, _, err = Select(checks, State{}, "now", Selection{From: "y"})
		Expect(err).To(MatchError(ContainSubstring(`"y" is not a check`)))
	})

	It("should find after an interruption what it has written before", func() {
		file := filepath.Join(GinkgoT().TempDir(), "x", "state.json")
		Expect(ReadState(file)).To(Equal(State{}))
		state := State{Tree: "now", Results: results(passed)}
		Expect(state.Write(file)).To(Succeed())
		Expect(ReadState(file)).To(Equal(state))
		Expect(os.WriteFile(file, []byte("{"), 0o600)).To(Succeed())
		_, err := ReadState(file)
		Expect(err).To(MatchError(ContainSubstring("delete the file to begin anew")))
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
