// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/ginkgo/outline"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

func TestConformance(t *testing.T) { suite.Run(t, "Conformance runner") }

var drift = spec{suite: "disruption", description: "Disruption", containers: []string{"Drift", "Budgets"}, leaf: "should a|b"}

// report writes what a suite would.
func report(reports ...types.SpecReport) string {
	file := filepath.Join(GinkgoT().TempDir(), "report.json")
	content := lo.Must(json.Marshal([]types.Report{{SuiteDescription: "Disruption", SpecReports: reports}}))
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

var _ = Describe("What a spec leaves in the cloud", func() {
	It("should count where the spec passed, and requests to other hosts always", func() {
		left := truth{servers: 1, volumes: 2, ports: 3, foreign: 4}
		Expect(left.after(passed)).To(Equal(left))
		Expect(left.after(failed)).To(Equal(truth{foreign: 4}))
	})
})

var _ = Describe("The controller's pod", func() {
	It("should have metrics without the braces at which core's reader of them panics", func() {
		Expect(placeholder.ReplaceAllString(`requests_total{route="/_/{uid}/{pool}",status="200"} 2`, ":$1")).
			To(Equal(`requests_total{route="/_/:uid/:pool",status="200"} 2`))
	})
})

// sources are the files of a suite of core.
func sources(ctx context.Context, suite string) []string {
	GinkgoHelper()
	dir := lo.Must(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter").Output())
	files := lo.Must(filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "test", "suites", suite, "*.go")))
	Expect(files).NotTo(BeEmpty())
	return files
}

// node is what Ginkgo's outline says of a container or a spec.
type node struct {
	Name, Text string
	Nodes      []node
}

func (n node) specs(path ...string) []string {
	if n.Text != "" {
		path = append(path, n.Text)
	}
	if n.Name == "It" {
		return []string{strings.Join(path, " ")}
	}
	return lo.FlatMap(n.Nodes, func(inner node, _ int) []string { return inner.specs(path...) })
}

var _ = Describe("A sample of the specs", func() {
	It("should have each spec that is not skipped in some draw, and none twice", func() {
		specs := []spec{{leaf: "a"}, {leaf: "b"}, {leaf: "skipped", skip: "needs arm64"}, {leaf: "c"}}
		seen := map[string]bool{}
		for range 200 {
			sample := drawn(specs, 2)
			Expect(sample).To(HaveLen(2))
			Expect(sample[0].leaf).ToNot(Equal(sample[1].leaf))
			seen[sample[0].leaf] = true
		}
		Expect(seen).To(HaveLen(3))
		Expect(seen).ToNot(HaveKey("skipped"))
		Expect(specs).To(HaveLen(4))
		Expect(drawn(specs, 9)).To(HaveLen(3))
	})
})

var _ = Describe("The list of skipped specs", func() {
	It("should have every spec of dra, all of which need core's KWOK provider or its driver", func(ctx context.Context) {
		var specs []string
		for _, file := range sources(ctx, "dra") {
			set := token.NewFileSet()
			source := lo.Must(parser.ParseFile(set, file, nil, 0))
			found := lo.Must(outline.FromASTFile(set, source))
			content := lo.Must(json.Marshal(found))
			var root node
			Expect(json.Unmarshal(content, &root.Nodes)).To(Succeed())
			specs = append(specs, root.specs()...)
		}
		Expect(lo.Filter(lo.Keys(skips), func(text string, _ int) bool { return strings.HasPrefix(text, "DRA ") })).To(ConsistOf(specs))
	})
})

var _ = Describe("The thresholds of the performance suite", func() {
	It("should be those that core's suite looks for, since it ignores any other", func(ctx context.Context) {
		var asked []string
		for _, file := range sources(ctx, performance) {
			content := lo.Must(os.ReadFile(file))
			for _, match := range regexp.MustCompile(`(\w+)Threshold\("(\w+/\w+)"`).FindAllStringSubmatch(string(content), -1) {
				asked = append(asked, match[2]+" "+match[1])
			}
		}
		content := lo.Must(readThresholds("thresholds.yaml"))
		var thresholds map[string]map[string]float64
		Expect(json.Unmarshal(content, &thresholds)).To(Succeed())
		var given []string
		names := map[string]string{"heap_mb": "Heap", "cpu_cores": "CPU", "total_time_minutes": "TotalTime", "cpu_util": "CPUUtil", "memory_util": "MemoryUtil"}
		for phase, values := range thresholds {
			for name := range values {
				given = append(given, phase+" "+names[name])
			}
		}
		Expect(asked).NotTo(BeEmpty())
		Expect(lo.Uniq(asked)).To(ContainElements(given))
	})
})
