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

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

func spec(state types.SpecState, name string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: state}
}

func setUp(state types.SpecState) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: state}
}

func suiteReport(succeeded bool, specs ...types.SpecReport) types.Report {
	return types.Report{SuitePath: "/repo/pkg/thing", SuiteSucceeded: succeeded, SpecReports: specs}
}

func lines(s *Summary) []string {
	var out bytes.Buffer
	Expect(s.Write(&out)).To(Succeed())
	Expect(out.String()).To(HaveSuffix("\n"))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

var _ = Describe("Summary", func() {
	DescribeTable("the closing line",
		func(line string, ok bool, status int, reports ...types.Report) {
			s := Summarize(reports)
			s.Account(status)
			out := lines(s)
			Expect(out[len(out)-1]).To(Equal(line))
			Expect(s.OK()).To(Equal(ok))
		},
		Entry("should sum the specs over all suites", "3 passed, 0 failed, 1 skipped", true, 0,
			suiteReport(true, spec(types.SpecStatePassed, "a"), spec(types.SpecStateSkipped, "b")),
			suiteReport(true, spec(types.SpecStatePassed, "a"), spec(types.SpecStatePassed, "b"))),
		Entry("should count a pending spec as skipped", "1 passed, 0 failed, 1 skipped", true, 0,
			suiteReport(true, spec(types.SpecStatePassed, "a"), spec(types.SpecStatePending, "b"))),
		Entry("should not count set-up and tear-down that succeed", "1 passed, 0 failed, 0 skipped", true, 0,
			suiteReport(true, setUp(types.SpecStatePassed), spec(types.SpecStatePassed, "a"))),
		Entry("should count a failed spec", "1 passed, 1 failed, 0 skipped", false, 1,
			suiteReport(false, spec(types.SpecStatePassed, "a"), spec(types.SpecStateFailed, "b"))),
		Entry("should count a panic, a timeout, an abort and an interruption as failures", "0 passed, 4 failed, 0 skipped", false, 1,
			suiteReport(false, spec(types.SpecStatePanicked, "a"), spec(types.SpecStateTimedout, "b"),
				spec(types.SpecStateAborted, "c"), spec(types.SpecStateInterrupted, "d"))),
		Entry("should count a set-up that fails", "0 passed, 1 failed, 1 skipped", false, 1,
			suiteReport(false, setUp(types.SpecStateFailed), spec(types.SpecStateSkipped, "a"))),
		Entry("should count a suite that failed without a failed spec", "1 passed, 1 failed, 0 skipped", false, 1,
			suiteReport(false, spec(types.SpecStatePassed, "a"))),
		Entry("should count a suite that did not compile", "1 passed, 1 failed, 0 skipped", false, 1,
			suiteReport(true, spec(types.SpecStatePassed, "a")), suiteReport(false)),
		Entry("should count a failure of the runner that no spec accounts for", "1 passed, 1 failed, 0 skipped", false, 197,
			suiteReport(true, spec(types.SpecStatePassed, "a"))),
		Entry("should fail when only skipped specs are left", "0 passed, 0 failed, 1 skipped", false, 0,
			suiteReport(true, spec(types.SpecStateSkipped, "a"))),
		Entry("should fail when no spec ran", "0 passed, 0 failed, 0 skipped", false, 0),
	)

	It("should name what failed, where and how", func() {
		failed := spec(types.SpecStateTimedout, "should adopt the server")
		failed.ContainerHierarchyTexts = []string{"Instance", "Create"}
		Expect(lines(Summarize([]types.Report{suiteReport(false, failed)}))).To(Equal([]string{
			"FAILED /repo/pkg/thing: Instance Create should adopt the server (timedout)",
			"0 passed, 1 failed, 0 skipped",
		}))
	})

	It("should name a set-up that failed by its kind", func() {
		Expect(lines(Summarize([]types.Report{suiteReport(false, setUp(types.SpecStateFailed))}))[0]).To(ContainSubstring("BeforeSuite (failed)"))
	})

	It("should report why a suite did not run, in few lines", func() {
		report := suiteReport(false)
		report.SpecialSuiteFailureReasons = []string{"Failed to compile thing:\n\n" + strings.Repeat("undefined: x\n", 40)}
		out := lines(Summarize([]types.Report{report}))
		Expect(out[0]).To(Equal("FAILED /repo/pkg/thing: Failed to compile thing:"))
		Expect(out).To(HaveLen(7))
	})

	It("should fail for a focused spec", func() {
		report := suiteReport(true, spec(types.SpecStatePassed, "a"))
		report.SuiteHasProgrammaticFocus = true
		s := Summarize([]types.Report{report})
		Expect(s.OK()).To(BeFalse())
		Expect(lines(s)[0]).To(ContainSubstring("a spec is focused"))
	})

	Context("with a spec that passed in its second attempt", func() {
		var s *Summary
		BeforeEach(func() {
			retried := spec(types.SpecStatePassed, "should adopt the server")
			retried.NumAttempts = 2
			once := spec(types.SpecStatePassed, "a")
			once.NumAttempts = 1
			s = &Summary{}
			s.Add(Summarize([]types.Report{suiteReport(true, once, retried)}))
		})

		It("should name it and count it as passed", func() {
			Expect(lines(s)).To(Equal([]string{"RETRIED /repo/pkg/thing: should adopt the server (2 attempts)", "2 passed, 0 failed, 0 skipped"}))
			Expect(s.OK()).To(BeTrue())
		})
		It("should count it as failed when retries fail the run", func() {
			s.FailRetried()
			Expect(lines(s)).To(Equal([]string{
				"FAILED /repo/pkg/thing: should adopt the server (2 attempts): passed only in a later attempt", "1 passed, 1 failed, 0 skipped",
			}))
			Expect(s.OK()).To(BeFalse())
		})
	})

	It("should add up the parts of a run", func() {
		whole := &Summary{Passed: 2, Skipped: 1}
		whole.Add(&Summary{Passed: 3, Failed: 1, Problems: []string{"a: b (failed)"}})
		Expect(whole).To(Equal(&Summary{Passed: 5, Failed: 1, Skipped: 1, Problems: []string{"a: b (failed)"}}))
	})
	It("should report that no spec ran", func() {
		Expect(lines(Summarize(nil))[0]).To(Equal("FAILED no spec ran"))
	})

	It("should report that it could not write", func() {
		Expect(Summarize(nil).Write(brokenPipe{})).To(MatchError("broken pipe"))
	})

	Context("reading a file", func() {
		var path string

		BeforeEach(func() {
			path = filepath.Join(GinkgoT().TempDir(), "report.json")
		})

		It("should understand what the runner writes", func() {
			content, err := json.Marshal([]types.Report{suiteReport(true, spec(types.SpecStatePassed, "a"))})
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
			Expect(Read(path).OK()).To(BeTrue())
		})

		It("should fail when there is no report", func() {
			s := Read(path)
			Expect(s.OK()).To(BeFalse())
			Expect(lines(s)).To(HaveExactElements(ContainSubstring("no report of the test run"), Equal("0 passed, 1 failed, 0 skipped")))
		})

		It("should fail when the report is cut short", func() {
			Expect(os.WriteFile(path, []byte(`[{"SuitePath": "/repo`), 0o600)).To(Succeed())
			s := Read(path)
			Expect(s.OK()).To(BeFalse())
			Expect(lines(s)[0]).To(ContainSubstring(path))
		})
	})
})
