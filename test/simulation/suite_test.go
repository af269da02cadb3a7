// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation_test injects faults into everything around the controller and checks that the invariants hold: here in process,
// in simulations whose time is simulated and whose every fault follows from a seed. test/e2e/faults does it with real processes.
package simulation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// root is the test in which simulations have a time of their own.
var root *testing.T

func TestSimulation(t *testing.T) {
	root = t
	lifecycle.LaunchTimeout = 3 * time.Minute // as internal/options sets it
	suite.Run(t, "Simulation")
}

// batch is how many seeds one spec runs, so that several processes can share them.
const batch = 10

// simulate runs the simulation of one seed.
func simulate(seed int64) *simulation {
	sim := newSimulation(seed)
	synctest.Test(root, func(t *testing.T) {
		defer settle()
		sim.run(t.Context())
	})
	return sim
}

// settle lets the simulated time pass in which what polls for the last launch finds that no call waits any more.
func settle() { time.Sleep(time.Minute) }

// report lists the violated invariants of a simulation and how to replay it. Its timeline goes to a file.
func report(sim *simulation) string {
	// Events at the very same simulated moment have no defined order, so that about one simulation in thirty differs when it is replayed.
	text := fmt.Sprintf("in simulation %d:\n  %s\nreplay it with: make chaos SEED=%d RUNS=1", sim.seed, strings.Join(sim.violations, "\n  "), sim.seed)
	directory := os.Getenv("CHAOS_LOGS")
	if directory == "" {
		return text
	}
	file := filepath.Join(directory, fmt.Sprintf("simulation-%d.log", sim.seed))
	if err := os.WriteFile(file, []byte(strings.Join(sim.lines, "\n")+"\n"), 0o600); err != nil {
		return text + "\nwriting its timeline: " + err.Error()
	}
	return text + "\ntimeline: " + file
}

var _ = Describe("Simulations", func() {
	first, runs := suite.Number("SEED", 1), suite.Number("RUNS", 6)
	for start := first; start < first+runs; start += batch {
		end := min(start+batch, first+runs)
		It(fmt.Sprintf("should violate no invariant with seeds %d to %d", start, end-1), func() {
			var failures []string
			for seed := start; seed < end; seed++ {
				if sim := simulate(seed); len(sim.violations) > 0 {
					failures = append(failures, report(sim))
				}
			}
			Expect(failures).To(BeEmpty(), strings.Join(failures, "\n\n"))
		})
	}

	It("should draw the same faults for the same question and seed, and others for others", func() {
		draw := func(seed int64, subjects ...string) []uint64 {
			sim := newSimulation(seed)
			return lo.Map(subjects, func(subject string, _ int) uint64 { return sim.chances(subject).Uint64() })
		}
		Expect(draw(1, "POST", "GET", "POST")).To(ConsistOf(draw(1, "POST", "POST", "GET")), "in whatever order goroutines ask")
		Expect(lo.Uniq(append(draw(1, "POST", "GET", "POST"), draw(2, "POST", "GET", "POST")...))).To(HaveLen(6))
	})
})
