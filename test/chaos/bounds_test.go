/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package chaos_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
)

// Bounds of minutes are measured in simulated time, with core's own lifecycle controller.
var _ = Describe("The bounds of a launch", func() {
	// within runs a simulation without faults.
	within := func(change func(*cloud.Options), body func(*simulation)) {
		GinkgoHelper()
		sim := newSimulation(suite.Number("SEED", 1))
		synctest.Test(root, func(t *testing.T) {
			defer settle()
			sim.begin(t.Context(), func(o *cloud.Options) {
				o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections, o.TokenTTL = false, false, false, 4*time.Hour
				change(o)
			})
			body(sim)
			for _, p := range sim.processes {
				p.cancel()
			}
			time.Sleep(2 * time.Hour)
		})
	}
	// lifecycles reconciles all NodeClaims for a while, as core does.
	lifecycles := func(sim *simulation, d time.Duration) {
		for began := time.Now(); time.Since(began) < d; time.Sleep(5 * time.Second) {
			for _, claim := range sim.liveClaims() {
				sim.reconcile("lifecycle", claim.DeepCopy())
				sim.wait(sim.leader(), "lifecycle"+claim.Name, time.Second)
			}
			sim.observe()
		}
	}

	DescribeTable("should be an option: a cloud whose creates take four minutes, and show their server only then", func(patience time.Duration, launched bool) {
		before := lifecycle.LaunchTimeout
		lifecycle.LaunchTimeout = patience
		DeferCleanup(func() { lifecycle.LaunchTimeout = before })
		var claims []karpv1.NodeClaim
		creates := 0
		within(func(o *cloud.Options) { o.Latency, o.HideBuilding = 4*time.Minute, true }, func(sim *simulation) {
			sim.newClaim()
			lifecycles(sim, 10*time.Minute)
			claims, creates = sim.liveClaims(), lo.Sum(lo.Values(sim.creates))
		})
		Expect(creates).To(Equal(1))
		if !launched {
			Expect(claims).To(BeEmpty(), "core has abandoned the NodeClaim")
			return
		}
		Expect(claims).To(HaveLen(1))
		Expect(claims[0].Status.ProviderID).ToNot(BeEmpty())
	},
		Entry("is served with a LAUNCH_TIMEOUT of six minutes", 6*time.Minute, true),
		Entry("is not served with the default", 3*time.Minute, false),
	)

	It("should hold for a hundred launches at once, and for one among them that hangs", func() {
		const launches = 100
		servers := make([]string, launches)
		var took, hung time.Duration
		var creates map[string]int
		within(func(o *cloud.Options) { o.Latency = 20 * time.Second }, func(sim *simulation) {
			began := time.Now()
			for n := range launches + 1 {
				sim.makeClaim(n, claimName(n))
			}
			sim.hangs = claimUID(sim.seed, launches)
			p := sim.leader()
			var group sync.WaitGroup
			for _, claim := range sim.liveClaims() {
				if claim.UID == sim.hangs {
					continue
				}
				group.Go(func() {
					for servers[numberOf(claim)] == "" && time.Since(began) < time.Hour {
						if created, err := p.cloudProvider.Create(p.ctx, claim.DeepCopy()); err == nil {
							servers[numberOf(claim)] = created.Status.ProviderID
						} else {
							time.Sleep(time.Second)
						}
					}
				})
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for sim.exists(launches) && time.Since(began) < time.Hour {
					stored := lo.Must(lo.Find(sim.liveClaims(), func(c karpv1.NodeClaim) bool { return c.UID == sim.hangs }))
					sim.reconcile("lifecycle", stored.DeepCopy())
					sim.wait(p, "lifecycle"+stored.Name, 10*time.Minute)
					time.Sleep(time.Second)
				}
				hung = time.Since(began)
			}()
			group.Wait()
			took = time.Since(began)
			<-gone
			creates = sim.creates
		})
		Expect(lo.Uniq(lo.Compact(servers))).To(HaveLen(launches))
		Expect(lo.CountBy(lo.Values(creates), func(n int) bool { return n != 1 })).To(BeZero(), "one create request for each NodeClaim")
		Expect(took).To(BeNumerically("<", 10*time.Minute))
		// Core schedules nothing while a NodeClaim has no server: this is for how long this one blocks it.
		Expect(hung).To(BeNumerically("<=", lifecycle.LaunchTimeout+90*time.Second), fmt.Sprint("the others took ", took))
	})
})

// numberOf returns the number in the name of a NodeClaim.
func numberOf(claim karpv1.NodeClaim) int {
	n := 0
	lo.Must(fmt.Sscanf(claim.Name, "general-%d", &n))
	return n
}

// exists reports whether the n-th NodeClaim still exists.
func (sim *simulation) exists(n int) bool {
	return lo.ContainsBy(sim.liveClaims(), func(c karpv1.NodeClaim) bool { return c.UID == claimUID(sim.seed, n) })
}
