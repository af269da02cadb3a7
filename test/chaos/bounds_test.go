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
)

// What takes minutes is looked at in simulated time, with core's own lifecycle controller.
var _ = Describe("The bounds of a launch", func() {
	// within lives through a fine day of a cloud and looks at its end.
	within := func(change func(*cloud.Options), day func(*world)) {
		GinkgoHelper()
		w := newWorld(number("SEED", 1))
		synctest.Test(suite, func(t *testing.T) {
			w.begin(t.Context(), func(o *cloud.Options) {
				o.HideBuilding, o.ConflictOnBuild, o.AsyncRefusals, o.TokenTTL = false, false, false, 4*time.Hour
				change(o)
			})
			day(w)
			for _, p := range w.processes {
				p.cancel()
			}
			time.Sleep(2 * time.Hour)
		})
	}
	// lifecycles reconciles what claims there are, as core does, for a while.
	lifecycles := func(w *world, d time.Duration) {
		for began := time.Now(); time.Since(began) < d; time.Sleep(5 * time.Second) {
			for _, claim := range w.liveClaims() {
				w.reconcile("lifecycle", claim.DeepCopy())
				w.wait(w.leader(), "lifecycle"+claim.Name, time.Second)
			}
			w.observe()
		}
	}

	DescribeTable("should be an option: a cloud whose creates take four minutes, and show their server only then", func(patience time.Duration, launched bool) {
		before := lifecycle.LaunchTimeout
		lifecycle.LaunchTimeout = patience
		DeferCleanup(func() { lifecycle.LaunchTimeout = before })
		var claims []karpv1.NodeClaim
		orders := 0
		within(func(o *cloud.Options) { o.Latency, o.HideBuilding = 4*time.Minute, true }, func(w *world) {
			w.newClaim()
			lifecycles(w, 10*time.Minute)
			claims, orders = w.liveClaims(), lo.Sum(lo.Values(w.orders))
		})
		Expect(orders).To(Equal(1))
		if !launched {
			Expect(claims).To(BeEmpty(), "core has given the claim up")
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
		var orders map[string]int
		within(func(o *cloud.Options) { o.Latency = 20 * time.Second }, func(w *world) {
			began := time.Now()
			for n := range launches + 1 {
				w.makeClaim(n, claimName(n))
			}
			w.hangs = claimUID(w.seed, launches)
			p := w.leader()
			var group sync.WaitGroup
			for _, claim := range w.liveClaims() {
				if claim.UID == w.hangs {
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
				for w.exists(launches) && time.Since(began) < time.Hour {
					stored := lo.Must(lo.Find(w.liveClaims(), func(c karpv1.NodeClaim) bool { return c.UID == w.hangs }))
					w.reconcile("lifecycle", stored.DeepCopy())
					w.wait(p, "lifecycle"+stored.Name, 10*time.Minute)
					time.Sleep(time.Second)
				}
				hung = time.Since(began)
			}()
			group.Wait()
			took = time.Since(began)
			<-gone
			orders = w.orders
		})
		Expect(lo.Uniq(lo.Compact(servers))).To(HaveLen(launches))
		Expect(lo.CountBy(lo.Values(orders), func(n int) bool { return n != 1 })).To(BeZero(), "one order for each claim")
		Expect(took).To(BeNumerically("<", 10*time.Minute))
		// Core schedules nothing while a claim has no server: that is how long this one keeps it.
		Expect(hung).To(BeNumerically("<=", lifecycle.LaunchTimeout+90*time.Second), fmt.Sprint("the others took ", took))
	})
})

// numberOf is the number in the name of a claim.
func numberOf(claim karpv1.NodeClaim) int {
	n := 0
	lo.Must(fmt.Sscanf(claim.Name, "general-%d", &n))
	return n
}

// exists says whether the n-th claim is still there.
func (w *world) exists(n int) bool {
	return lo.ContainsBy(w.liveClaims(), func(c karpv1.NodeClaim) bool { return c.UID == claimUID(w.seed, n) })
}
