// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestMutate(t *testing.T) { suite.Run(t, "Mutate") }

var _ = Describe("The mutants of a file", func() {
	mutants := func(body string) (names []string, text string) {
		GinkgoHelper()
		source := "package p\n\n" + body
		fset, files, info, wrong := checker{path: "p", exports: map[string]string{}}.check(map[string]string{"p.go": source})
		Expect(wrong).To(BeEmpty())
		in := &instrumenter{fset: fset, info: info, source: []byte(source)}
		text = in.file(files["p.go"])
		for _, mutant := range in.mutants {
			names = append(names, mutant.Name)
		}
		_, _, _, wrong = checker{path: "p", exports: map[string]string{}}.check(map[string]string{"p.go": text, "m.go": `package p
			func mutant(int) bool { panic(0) }
			func mutantNot(int, bool) bool { panic(0) }
			func mutantAnd(int, bool, func() bool) bool { panic(0) }
			func mutantOr(int, bool, func() bool) bool { panic(0) }
			func mutantLess(int, bool, int, int) bool { panic(0) }
			func mutantNil(int, error) error { panic(0) }
			func mutantZero[T any](int, T) T { panic(0) }
			func mutantText(int, string) string { panic(0) }`})
		Expect(wrong).To(BeEmpty(), text)
		return names, text
	}
	DescribeTable("should be those that change", func(body string, expected ...string) {
		names, _ := mutants(body)
		Expect(names).To(Equal(append([]string(nil), expected...)))
	},
		Entry("a condition", "func f(a bool) { if a {} }", "f: not a"),
		Entry("a result", "func f() bool { return true }", "f: not true"),
		Entry("a condition of a method", "type t struct{}; func (t *t) f(a bool) { for !a {} }", "t.f: not a"),
		Entry("a case", "func f(a, b bool) { switch { case a, b: } }", "f: not a", "f: not b"),
		Entry("what && joins", "func f(a, b bool) bool { return a &&\n // so\n b }", "f: || for && in a && // so b", "f: not a", "f: not b"),
		Entry("what || joins", "func f(a, b bool) bool { return (a || b) }", "f: && for || in a || b", "f: not a", "f: not b"),
		Entry("an equality", "func f(a int) bool { return a == 1 }", "f: not a == 1"),
		Entry("a boundary", "func f(a int) bool { return a < 1 }", "f: not a < 1", "f: <= for < in a < 1"),
		Entry("another boundary", "func f(a int) bool { return 1 >= a }", "f: not 1 >= a", "f: > for >= in 1 >= a"),
		Entry("an error", "func f(err error) (int, error) { return 1, err }", "f: nil for the error in return 1, err"),
		Entry("no error", "func f() error { return nil }"),
		Entry("an error of a function in a function", "func f(err error) { _ = func() error { return err } }", "f: nil for the error in return err"),
		Entry("a call", "func f() { f() }", "f: without f()"),
		Entry("a call whose result is not used", "func f(a bool) bool { f(a); return true }", "f: without f(a)", "f: not a", "f: not true"),
		Entry("a deferred call", "func f() { defer f() }", "f: without defer f()"),
		Entry("an assignment", "func f(a int) { a = 1; a++; b := a; _ = b }", "f: without a = 1", "f: without a++"),
		Entry("what is assigned, not to what", "func f(a []bool) { a[0] = a[1] }", "f: without a[0] = a[1]", "f: not a[1]"),
		Entry("a jump", "func f() { for { continue } }", "f: without continue"),
		Entry("a field", "type t struct { n int; b bool }; func f() t { return t{n: 1, b: true} }", "f: without n: 1", "f: not true"),
		Entry("a field without a value", "type t struct { n int; e error }; func f() t { return t{n: 0, e: nil} }"),
		Entry("a pattern of a table", `func f(...string) int { return 1 }; var table = f("a", "b")`, `table: without "a"`, `table: without "b"`),
		Entry("no log line", `type l struct{}; var log l; func (l) FromContext(int) l { return log }; func (l) Info() {}; func f() { log.FromContext(1).Info() }`),
	)
	It("should keep the lines of the source", func() {
		_, text := mutants("func f(a, b bool) bool {\n\treturn a &&\n\t\tb\n}\n")
		Expect(strings.Split(text, "\n")[3:5]).To(Equal([]string{
			"\treturn mutantAnd(1, mutantNot(2, a) , func() bool { return (", "\t\tmutantNot(3, b)) })"}))
	})
	It("should have names of their own", func() {
		Expect(named([]Mutant{{Name: "a"}, {Name: "b"}, {Name: "a"}}, map[int]bool{2: true})).To(Equal([]Mutant{{Name: "a"}, {Name: ""}, {Name: "a #2"}}))
	})
	It("should not be missing because their file has another name now", func() {
		_, _, err := (&Target{Package: "p", Files: []string{"p.go", "q.go"}}).instrument(listing{GoFiles: []string{"p.go"}}, nil)
		Expect(err).To(MatchError(`package p has no files ["q.go"]`))
	})
	It("should not be in what does not compile with them", func() {
		folder := GinkgoT().TempDir()
		source := "package p\n\ntype t bool\n\nfunc f(a t) t {\n\treturn a\n}\n\nfunc g(a bool) bool {\n\treturn a\n}\n"
		Expect(os.WriteFile(filepath.Join(folder, "p.go"), []byte(source), 0o600)).To(Succeed())
		pkg := listing{Dir: folder, ImportPath: "p", Name: "p", GoFiles: []string{"p.go"}}
		sources, found, err := (&Target{}).instrument(pkg, exportsOf(runtimeImports...))
		Expect(err).ToNot(HaveOccurred())
		Expect(found).To(HaveExactElements(HaveField("Name", "g: not a")))
		Expect(sources["p.go"]).To(ContainSubstring("return a\n"))
	})
})

// exportsOf compiles packages of the standard library.
func exportsOf(packages ...string) map[string]string {
	GinkgoHelper()
	output, err := goCommand(context.Background(), append([]string{"list", "-deps", "-export", "-json=ImportPath,Export"}, packages...)...)
	Expect(err).ToNot(HaveOccurred())
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var pkg listing
		Expect(decoder.Decode(&pkg)).To(Succeed())
		exports[pkg.ImportPath] = pkg.Export
	}
	return exports
}

var _ = Describe("A run", Ordered, func() {
	const header = "- package: hack/mutate/testdata/sample\n  skip: too long\n"
	var (
		c   config
		out *bytes.Buffer
	)
	run := func(survivors string) error {
		GinkgoHelper()
		out = &bytes.Buffer{}
		Expect(os.WriteFile(c.file, []byte(header+survivors), 0o600)).To(Succeed())
		return c.start(context.Background(), out)
	}
	BeforeAll(func() {
		// Packages are those of the repository.
		GinkgoT().Chdir("../..")
		folder := GinkgoT().TempDir()
		c = config{file: filepath.Join(folder, "mutants.yaml"), cache: folder, parallel: 2}
	})
	const alive = `  survivors:
  - {mutant: "fruit: without \"pear\"", reason: one}
  - {mutant: "New: >= for < in apples >= 10", reason: two}
  - {mutant: "Untested: without box.Apples++", reason: three}
`
	It("should name the survivors that are not listed, and say which ones no spec reaches", func() {
		Expect(run("")).To(MatchError(ContainSubstring("write a spec that fails with each mutant above, or list it with its reason in")))
		Expect(out.String()).To(And(
			ContainSubstring("  sample.go:14: survived\n    fruit: without \"pear\"\n"),
			ContainSubstring("  sample.go:36: survived: no spec reaches it\n    Untested: without box.Apples++\n"),
			ContainSubstring("    New: > for >= in apples >= 10\n"),
			Not(ContainSubstring("apple\"\n")),
		))
	})
	It("should take the results of the same test binary from its cache", func() {
		results := filepath.Join(c.cache, "hack-mutate-testdata-sample", "results.json")
		before, err := os.ReadFile(results)
		Expect(err).ToNot(HaveOccurred())
		Expect(run("")).To(HaveOccurred())
		Expect(os.ReadFile(results)).To(Equal(before))
	})
	It("should accept those that are listed", func() {
		Expect(run(strings.Replace(alive, ">= for < in", "> for >= in", 1))).To(Succeed(), out.String())
		Expect(out.String()).To(MatchRegexp(`hack/mutate/testdata/sample +\d+ +\d+ +\d`))
	})
	It("should say which of those that are listed was killed", func() {
		killed := "  - {mutant: \"fruit: without \\\"apple\\\"\", reason: four}\n"
		Expect(run(strings.Replace(alive, ">= for < in", "> for >= in", 1)+killed)).To(Succeed(), out.String())
		Expect(strings.Count(out.String(), "and killed now")).To(Equal(1))
		Expect(out.String()).To(ContainSubstring("and killed now: fruit: without \"apple\"\n"))
	})
	It("should not accept a listed one that does not exist", func() {
		Expect(run(alive)).To(HaveOccurred())
		Expect(out.String()).To(ContainSubstring("there is no such mutant or no reason: New: >= for < in apples >= 10"))
	})
	It("should say without running any spec which listed ones do not exist", func() {
		c.check = true
		DeferCleanup(func() { c.check = false })
		Expect(run(alive)).To(MatchError(ContainSubstring("correct the names in")))
		Expect(out.String()).To(HaveSuffix("there is no such mutant or no reason: New: >= for < in apples >= 10\n"))
		Expect(strings.Count(out.String(), "\n")).To(Equal(1))
		Expect(run(strings.Replace(alive, ">= for < in", "> for >= in", 1))).To(Succeed())
		Expect(out.String()).To(BeEmpty())
	})
	It("should not accept fewer killed ones than asked for, except of a sample", func() {
		c.atLeast = 99
		Expect(run(strings.Replace(alive, ">= for < in", "> for >= in", 1))).To(HaveOccurred())
		Expect(out.String()).To(ContainSubstring("% of the mutants are killed, at least 99 % must be"))
		c.sample = 2
		Expect(run(strings.Replace(alive, ">= for < in", "> for >= in", 1))).To(Succeed())
		Expect(out.String()).To(ContainSubstring("hack/mutate/testdata/sample: 2 mutants\n"))
	})
})

var _ = Describe("What a run leaves", func() {
	It("should be ended, whoever has started it", func() {
		cmd := exec.Command("sleep", "600")
		variable := fmt.Sprintf("TMPDIR=%s", GinkgoT().TempDir())
		cmd.Env = append(os.Environ(), variable)
		Expect(cmd.Start()).To(Succeed())
		killAll(variable)
		Expect(cmd.Wait()).To(MatchError("signal: killed"))
	})
	DescribeTable("should be an API server that the next mutant can use", func(output string, clean bool) {
		Expect(leftClean(output)).To(Equal(clean))
	},
		Entry("after a spec that failed", "[FAIL] A box [It] should\nRan 3 of 3 Specs in 1 seconds\n", true),
		Entry("not after a crash", "panic: runtime error\n", false),
		Entry("not after a cleanup that failed", "[FAIL] [AfterEach] A box should\nRan 3 of 3 Specs in 1 seconds\n", false),
		Entry("not after the time was up", "[TIMEDOUT] A box [It] should\nRan 3 of 3 Specs in 1 seconds\n", false),
	)
})
