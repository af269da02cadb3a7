// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults_test runs the real binaries on a real control plane, injects faults into everything around them, and checks the
// invariants all the time. It takes minutes, so it only runs on demand: `make e2e SUITE=faults`, and
// SUITE=nodes-faults with servers that are real machines.
package faults_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

var (
	ctx = context.Background()
	env *environment.Environment
	// checker checks the invariants over all runs.
	checker = invariants.NewChecker()
	// replicas are the two controllers of the cluster.
	replicas []*replica
)

func TestFaults(t *testing.T) {
	if os.Getenv("E2E") == "" && !machines {
		t.Skip("needs the whole control plane and minutes: run `make e2e SUITE=faults`, or SUITE=nodes-faults for real machines")
	}
	suite.Run(t, "Faults with processes", Label("chaos"))
}

// One control plane and one cloud serve all runs, so that a run also finds what the one before has left.
var _ = BeforeSuite(func() {
	SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	options := environment.Options{
		Latency: 2 * time.Second, Boot: time.Second, Seed: suite.Number("SEED", 1), NoController: true,
		// The Node of a server that was deleted by hand is deleted soon, so that the runs do not wait for that.
		SandboxArgs: []string{"--node-silence=0s"},
		// All waits are short, so that the effects of a fault are seen within the run.
		ControllerEnv: map[string]string{
			"LAUNCH_TIMEOUT": "40s", "UNAVAILABLE_OFFERING_TTL": "15s",
			"GARBAGE_COLLECTION_INTERVAL": "3s", "GARBAGE_COLLECTION_GRACE": "45s", "LOG_LEVEL": "debug",
			"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": metav1.NamespaceSystem,
		},
		Progress: func(what string) { GinkgoWriter.Println(what) },
	}
	if machines {
		options.Machines, options.ControllerEnv["JOIN_TOKENS"] = true, "true"
	}
	var err error
	env, err = environment.Start(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	replicas = []*replica{{name: "a"}, {name: "b"}}
	for _, r := range replicas {
		r.start()
	}
	DeferCleanup(func() {
		for _, r := range replicas {
			r.end()
		}
	})
})

var _ = Describe("Runs", Ordered, func() {
	first, runs := suite.Number("SEED", 1), suite.Number("RUNS", 2)
	for seed := first; seed < first+runs; seed++ {
		It(fmt.Sprintf("should violate no invariant while processes are killed, the API server is stopped and the cloud fails, seed %d", seed), func() {
			newRun(uint64(seed)).execute()
		})
	}
})
