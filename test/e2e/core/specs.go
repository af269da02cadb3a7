// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// performance is the suite that measures, so that each of its specs runs alone.
const performance = "performance"

// suiteNames are the suites of core, by the names of their packages.
var suiteNames = []string{"regression", "disruption", "dra", performance}

// spec is one spec of a suite.
type spec struct {
	suite string
	// description is what the suite calls itself; Ginkgo's focus is matched against it, a space and the text.
	description string
	// containers and leaf are the texts of the spec.
	containers []string
	leaf       string
	// skip is why the spec is not run, empty for those that are.
	skip string
}

func (s spec) text() string { return strings.Join(append(slices.Clone(s.containers), s.leaf), " ") }

// nodePool is the file with the NodePool that the spec starts from.
func (s spec) nodePool() string {
	if s.containers[0] == "CapacityBuffer" {
		return "nodepool-small.yaml"
	}
	return "nodepool.yaml"
}

// longest are the beginnings of the specs that take longest, the longest first: they are started first, so that none of them is
// alone at the end.
var longest = []string{
	"Reboot should reboot twice, then replace",
	"NodeClaim StandaloneNodeClaim should delete a NodeClaim after the registration timeout",
	"Drift Failure should not disrupt a drifted node",
	"Chaos",
	"StaticCapacity Provisioning should respect node limits",
	"Reboot",
	"StaticCapacity",
	"Integration DoNotDisrupt",
	"Expiration",
	"Termination",
	"Performance",
	"Integration Utilization",
	"Repair",
	"Drift",
	"TerminateFirst",
	"DefaultTopologySpreadConstraints",
	"CapacityBuffer",
}

func (s spec) rank() int {
	i := slices.IndexFunc(longest, func(start string) bool { return strings.HasPrefix(s.text(), start) })
	if i < 0 {
		return len(longest)
	}
	return i
}

// listSpecs asks the compiled suites what specs they have.
func listSpecs(ctx context.Context, dir, reports string) ([]spec, error) {
	var specs []spec
	for _, suite := range suiteNames {
		file := filepath.Join(reports, suite+"-specs.json")
		list := exec.CommandContext(ctx, filepath.Join(dir, suite+".test"), //nolint:gosec // compiled by make core-e2e
			"--ginkgo.dry-run", "--ginkgo.json-report="+file)
		if output, err := list.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("listing the specs of %s: %w\n%s", suite, err, output)
		}
		report, err := readReport(file)
		if err != nil {
			return nil, err
		}
		for _, r := range report.SpecReports {
			if r.LeafNodeType != types.NodeTypeIt {
				continue
			}
			s := spec{suite: suite, description: report.SuiteDescription, containers: r.ContainerHierarchyTexts, leaf: r.LeafNodeText}
			s.skip = skips[s.text()]
			specs = append(specs, s)
		}
	}
	for text := range skips {
		if !slices.ContainsFunc(specs, func(s spec) bool { return s.text() == text }) {
			return nil, fmt.Errorf("the list of skipped specs names %q, which is in no suite", text)
		}
	}
	return specs, nil
}

// drawn are some of the specs that are not skipped, at random.
func drawn(specs []spec, number int) []spec {
	specs = slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.skip != "" })
	rand.Shuffle(len(specs), func(i, j int) { specs[i], specs[j] = specs[j], specs[i] }) //nolint:gosec // which specs are tried is no secret
	return specs[:min(number, len(specs))]
}

func readReport(file string) (types.Report, error) {
	content, err := os.ReadFile(file) //nolint:gosec // a report of ours
	if err != nil {
		return types.Report{}, fmt.Errorf("reading a report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return types.Report{}, fmt.Errorf("reading the report %s: %w", file, err)
	}
	if len(reports) != 1 {
		return types.Report{}, fmt.Errorf("the report %s holds %d suites", file, len(reports))
	}
	return reports[0], nil
}
