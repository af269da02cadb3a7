// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestGoTest(t *testing.T) { suite.Run(t, "go test") }

const one = module + "/internal/one"

// said is what a package prints, and how it ends.
func said(name, action string, lines ...string) []event {
	events := []event{{Action: "run", Package: name, Test: "TestOne"}}
	for _, line := range lines {
		events = append(events, event{Action: "output", Package: name, Output: line + "\n"})
	}
	test := event{Action: action, Package: name, Test: "TestOne"}
	return append(events, test, event{Action: action, Package: name, Elapsed: 1.5})
}

func read(events ...event) (last, printed string, ok bool) {
	var stream, out bytes.Buffer
	for _, e := range events {
		Expect(json.NewEncoder(&stream).Encode(e)).To(Succeed())
	}
	s := &summary{out: &out, isSuite: func(name string) bool { return !strings.HasSuffix(name, "/plain") }}
	Expect(s.read(&stream)).To(Succeed())
	ok = s.close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return lines[len(lines)-1], out.String(), ok
}

var _ = Describe("The closing line", func() {
	const passes = "\x1b[32m\x1b[1mSUCCESS!\x1b[0m -- \x1b[32m3 Passed\x1b[0m | 0 Failed | 1 Pending | 2 Skipped"

	DescribeTable("should be", func(line string, good bool, events []event) {
		last, _, ok := read(events...)
		Expect(last).To(Equal(line))
		Expect(ok).To(Equal(good))
	},
		Entry("the sum of what suites report, in which pending specs are skipped ones", "6 passed, 0 failed, 6 skipped", true,
			append(said(one, "pass", passes), said(module+"/internal/two", "pass", passes)...)),
		Entry("that of a cached result, too", "3 passed, 0 failed, 3 skipped", true,
			said(one, "pass", passes, "ok\t"+one+"\t(cached)")),
		Entry("without tests that are no specs", "3 passed, 0 failed, 3 skipped", true,
			append(said(one, "pass", passes), said(module+"/plain", "pass")...)),
		Entry("the failed specs of a suite", "1 passed, 2 failed, 0 skipped", false,
			said(one, "fail", "FAIL! -- 1 Passed | 2 Failed | 0 Pending | 0 Skipped")),
		Entry("a failure of a suite of which no spec failed", "3 passed, 1 failed, 3 skipped", false,
			said(one, "fail", passes)),
		Entry("a failure of a suite without a report", "0 passed, 1 failed, 0 skipped", false,
			said(one, "fail", "panic: no")),
		Entry("a failure of what does not compile", "0 passed, 1 failed, 0 skipped", false,
			[]event{
				{Action: "build-output", ImportPath: one, Output: "undefined: x\n"},
				{Action: "build-fail", ImportPath: one}, {Action: "fail", Package: one},
			}),
		Entry("a failure of a suite that has run no specs", "0 passed, 1 failed, 0 skipped", false,
			said(one, "pass", "PASS")),
		Entry("a failure of a suite that has none", "0 passed, 1 failed, 0 skipped", false,
			said(one, "pass", "SUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 0 Skipped")),
		Entry("a failure if all suites were skipped", "0 passed, 0 failed, 0 skipped", false,
			[]event{{Action: "skip", Package: one, Test: "TestOne"}, {Action: "pass", Package: one}}),
		Entry("a failure if nothing ran", "0 passed, 0 failed, 0 skipped", false, nil),
	)
	It("should come after all that a failed suite has printed, and nothing of the others", func() {
		two := said(module+"/internal/two", "pass", "chatter", passes)
		_, printed, _ := read(append(said(one, "fail", "expected 1, got 2"), two...)...)
		Expect(printed).To(Equal("expected 1, got 2\nFAIL    1.5 s     1 specs  ./internal/one\n" +
			"pass    1.5 s     3 specs  ./internal/two\n3 passed, 1 failed, 3 skipped\n"))
	})
	It("should count a failure of go that no package accounts for, and no other one twice", func() {
		s := &summary{out: &bytes.Buffer{}, passed: 1}
		s.account(errors.New("exit status 2"))
		s.account(errors.New("exit status 1"))
		Expect(s.failed).To(Equal(1))
		Expect(s.close()).To(BeFalse())
	})
	It("should not hide that what go test prints was cut short", func() {
		s := &summary{out: &bytes.Buffer{}}
		Expect(s.read(strings.NewReader(`{"Action":"pa`))).To(MatchError(ContainSubstring("reading what go test prints")))
	})
})

var _ = Describe("What suites of the plugin read outside of their module", func() {
	It("should be told to go test, so that a change of a file there runs them again", func() {
		dir := GinkgoT().TempDir()
		file := filepath.Join(dir, "page.md")
		Expect(os.WriteFile(file, []byte("one"), 0o600)).To(Succeed())
		Expect(repositoryVariable).To(Equal(suite.RepositoryVariable))
		before := repository(dir)
		Expect(repository(dir)).To(Equal(before))
		Expect(os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour))).To(Succeed())
		Expect(repository(dir)).ToNot(Equal(before))
	})
})

var _ = DescribeTable("A suite of Ginkgo should be told from other tests", func(name string, expected bool) {
	GinkgoT().Chdir("../..")
	Expect(isSuite(module + name)).To(Equal(expected))
},
	Entry("by its imports", "/hack/gotest", true),
	Entry("in the plugin's module", "/cmd/kubectl-bizfly/internal/cli", true),
	Entry("where there are only plain tests", "/test/measure/bench", false),
)
