// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

func TestConformance(t *testing.T) { suite.Run(t, "Conformance runner") }

var drift = spec{suite: "disruption", description: "Disruption", containers: []string{"Drift", "Budgets"}, leaf: "should a|b"}

// report writes what a suite would.
func report(reports ...types.SpecReport) string {
	file := filepath.Join(GinkgoT().TempDir(), "report.json")
	content, err := json.Marshal([]types.Report{{SuiteDescription: "Disruption", SpecReports: reports}})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

func specReport(state types.SpecState, message string) types.SpecReport {
	return types.SpecReport{
		LeafNodeType: types.NodeTypeIt, ContainerHierarchyTexts: drift.containers, LeafNodeText: drift.leaf, State: state,
		Failure: types.Failure{Message: message},
	}
}

var _ = Describe("The outcome of a spec", func() {
	other := types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: "another", State: types.SpecStateSkipped}

	DescribeTable("should be what its suite reports",
		func(state types.SpecState, runErr error, outcome, message string) {
			gotOutcome, gotMessage := classify(drift, report(other, specReport(state, "3 nodes")), runErr)
			Expect(gotOutcome).To(Equal(outcome))
			Expect(gotMessage).To(ContainSubstring(message))
		},
		Entry("passed", types.SpecStatePassed, nil, passed, ""),
		Entry("failed", types.SpecStateFailed, errors.New("exit status 1"), failed, "3 nodes"),
		Entry("timed out", types.SpecStateTimedout, errors.New("exit status 1"), failed, "3 nodes"),
		Entry("skipped by itself, for a reason that is on no list", types.SpecStateSkipped, nil, failed, "it skipped itself"),
		Entry("passed in a suite that failed", types.SpecStatePassed, errors.New("exit status 1"), failed, "passed"),
	)

	It("should be a failure where the suite could not even begin", func() {
		begin := types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePanicked, Failure: types.Failure{Message: "no cluster"}}
		outcome, message := classify(drift, report(begin, specReport(types.SpecStateSkipped, "")), errors.New("exit status 1"))
		Expect(outcome).To(Equal(failed))
		Expect(message).To(ContainSubstring("no cluster"))
	})

	It("should be a failure where the suite reports nothing", func() {
		outcome, message := classify(drift, filepath.Join(GinkgoT().TempDir(), "report.json"), errors.New("signal: killed"))
		Expect(outcome).To(Equal(failed))
		Expect(message).To(ContainSubstring("signal: killed"))
		outcome, _ = classify(drift, report(other), nil)
		Expect(outcome).To(Equal(failed))
	})
})

var _ = Describe("The page", func() {
	It("should get a new table in the place of the last, and nothing else", func() {
		page := filepath.Join(GinkgoT().TempDir(), "conformance.md")
		Expect(os.WriteFile(page, []byte("# Title\n\n"+tableBegin+"old\n"+tableEnd+"\nThe end.\n"), 0o600)).To(Succeed())
		r := &runner{parallel: 6}
		results := []result{{spec: drift, outcome: passed, took: 83 * time.Second},
			{spec: spec{suite: "regression", containers: []string{"Chaos"}, leaf: "x", skip: spot}, outcome: skipped}}
		for range 2 {
			Expect(r.writePage(page, results, "1 passed, 0 failed, 1 skipped", 43*time.Minute)).To(Succeed())
		}
		content, err := os.ReadFile(page)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(And(
			HavePrefix("# Title\n\n"+tableBegin), HaveSuffix(tableEnd+"\nThe end.\n"), Not(ContainSubstring("old")),
			ContainSubstring("**1 passed, 0 failed, 1 skipped** in 43m0s on 6 control planes"),
			ContainSubstring("| disruption | Drift | 1 of 1 | 1m23s |"), ContainSubstring("| regression | Chaos | 0 of 1 | 0s |"),
			ContainSubstring("| regression | Chaos / x | skipped: "+spot+" |"), Not(ContainSubstring("Budgets")),
		))
	})
})
