// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// disturbances are what processes add to the simulations (test/simulation), which have all faults of the cloud and of what is in it.
func (run *faultsRun) disturbances() []func() {
	all := []func(){
		run.freezeLeader, run.upgradeLeader, run.killLeader, run.killLeader, run.killAny, run.scale, run.scale,
		func() { run.apiServer(true) }, func() { run.apiServer(false) },
	}
	run.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// leads returns the leader, once one leads.
func (run *faultsRun) leads() (found *replica) {
	GinkgoHelper()
	Eventually(func() *replica { found = leader(); return found }).WithTimeout(time.Minute).ShouldNot(BeNil())
	return found
}

func (run *faultsRun) killLeader() {
	r := run.leads()
	event("replica %s, which leads, is killed", r.name)
	r.kill()
}

func (run *faultsRun) killAny() {
	r := replicas[run.random.IntN(len(replicas))]
	event("replica %s is killed", r.name)
	r.kill()
}

func (run *faultsRun) upgradeLeader() {
	r := run.leads()
	event("replica %s, which leads, is upgraded", r.name)
	r.upgrade()
}

// freezeLeader freezes the leader until another leads: it then finishes late what it was doing.
func (run *faultsRun) freezeLeader() {
	GinkgoHelper()
	r := run.leads()
	event("replica %s, which leads, is frozen", r.name)
	r.freeze()
	run.scale()
	Eventually(leader).WithTimeout(time.Minute).ShouldNot(BeNil())
	event("replica %s continues", r.name)
	r.thaw()
}

// apiServer stops the API server for some seconds.
func (run *faultsRun) apiServer(crash bool) {
	GinkgoHelper()
	excused()
	event("the API server %s", lo.Ternary(crash, "crashes", "is upgraded"))
	Expect(env.StopAPIServer(crash)).To(Succeed())
	run.rest(time.Duration(run.random.IntN(6000)) * time.Millisecond)
	Expect(env.StartAPIServer(ctx)).To(Succeed())
	event("the API server is back")
	excused()
}

func (run *faultsRun) scale() {
	GinkgoHelper()
	run.wanted = int32(2 + run.random.IntN(mostPods()-1))
	event("%d pods are wanted", run.wanted)
	patched := run.web.DeepCopy()
	patched.Spec.Replicas = lo.ToPtr(run.wanted)
	insist(func() error { return env.Client().Patch(ctx, patched, client.MergeFrom(run.web)) })
	run.web = patched
}
