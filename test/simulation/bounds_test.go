// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/awslabs/operatorpkg/singleton"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// Bounds of minutes are measured in simulated time, with core's own lifecycle controller and with controllers that run.
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

	DescribeTable("should be an option: a cloud that takes four minutes to create and show a server", func(patience time.Duration, launched bool) {
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
		Expect(hung).To(BeNumerically("<=", lifecycle.LaunchTimeout), fmt.Sprint("the others took ", took))
	})
	It("should hold for late servers while another one cannot be deleted", func() {
		var bound time.Duration
		var took []time.Duration
		within(func(o *cloud.Options) { o.Latency = 20 * time.Second }, func(sim *simulation) {
			bound = sim.grace + options.Defaults().GarbageCollectionInterval
			p := sim.leader()
			running := lo.Must(controller.NewUnmanaged(p.collector.Name(), controller.Options{
				Reconciler: singleton.AsReconciler(p.collector), SkipNameValidation: lo.ToPtr(true),
			}))
			lo.Must0(running.Watch(singleton.Source()))
			go func() { lo.Must0(running.Start(p.ctx)) }()
			late := func(n int) string {
				uid := string(claimUID(sim.seed, n))
				return sim.cloud.AddServer(cloud.ServerSpec{Name: instance.Name(claimName(n), uid, clusterUID, 1), Metadata: map[string]string{
					v1alpha1.MetadataClusterUID: clusterUID, v1alpha1.MetadataNodeClaimUID: uid, v1alpha1.MetadataAttempt: "1",
				}}).ID
			}
			locked := late(0)
			sim.cloud.EditServer(locked, func(s *cloud.Server) { s.Locked = true })
			exists := func(id string) bool {
				return lo.ContainsBy(sim.cloud.Servers(), func(s cloud.Server) bool { return s.ID == id && !s.Truth.Deleting })
			}
			for n := range 3 {
				// What grows with each failed deletion of the other one has grown by now.
				time.Sleep(10 * time.Minute)
				id, created := late(n+1), time.Now()
				for exists(id) && time.Since(created) < time.Hour {
					time.Sleep(time.Second)
				}
				took = append(took, time.Since(created))
			}
			took = lo.Ternary(exists(locked), took, nil)
		})
		Expect(took).To(And(HaveLen(3), HaveEach(BeNumerically("<=", bound+30*time.Second))))
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
