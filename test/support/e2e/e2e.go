// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e is what the suites below test/e2e share: how they read the cluster and the ground truth of the cloud.
package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// Start starts the processes of a suite, whose seed is that of its order unless the options have one, and ends them with it.
func Start(polling time.Duration, options environment.Options) *environment.Environment {
	GinkgoHelper()
	SetDefaultEventuallyPollingInterval(polling)
	options.Progress = func(what string) { GinkgoWriter.Println(what) }
	options.Seed = lo.CoalesceOrEmpty(options.Seed, GinkgoRandomSeed())
	env, err := environment.Start(context.Background(), options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	return env
}

// Listed fills a list from the API server and returns it.
func Listed[L client.ObjectList](g Gomega, env *environment.Environment, list L, options ...client.ListOption) L {
	g.Expect(env.Client().List(context.Background(), list, options...)).To(Succeed())
	return list
}

// Truth is the sandbox's ground truth.
func Truth(g Gomega, env *environment.Environment) cloud.State {
	state, err := env.Sandbox().State(context.Background())
	g.Expect(err).NotTo(HaveOccurred())
	return state
}

// ServersOf are the servers of a pool that exist, in any state.
func ServersOf(g Gomega, env *environment.Environment, pool string) []cloud.Server {
	return lo.Filter(Truth(g, env).Servers, func(s cloud.Server, _ int) bool { return s.Metadata[v1alpha1.MetadataNodePool] == pool })
}
