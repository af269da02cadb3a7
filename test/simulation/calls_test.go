//go:build !race

// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// The bursts take minutes with the race detector, which finds nothing more in 500 nodes than in the simulations' few: make chaos runs
// them without it.

package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// What the cloud is asked is counted in simulated time, with the calls that core makes and at its intervals.
var _ = Describe("The requests to the cloud", func() {
	// measure runs one process on a cloud without faults.
	measure := func(run func(sim *simulation, p *process)) *simulation {
		GinkgoHelper()
		sim := newSimulation(suite.Number("SEED", 1))
		synctest.Test(root, func(t *testing.T) {
			defer settle()
			sim.begin(t.Context(), func(o *cloud.Options) {
				o.Latency, o.TokenTTL = 20*time.Second, 4*time.Hour
				o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections = false, false, false
			})
			run(sim, sim.leader())
			for _, p := range sim.processes {
				p.cancel()
			}
			time.Sleep(2 * time.Hour)
		})
		return sim
	}
	// every repeats a reconciliation until the end of the context.
	every := func(ctx context.Context, interval time.Duration, do func()) {
		go func() {
			for sleep(ctx, interval) == nil {
				do()
			}
		}()
	}
	// passes are what runs once per cluster.
	passes := func(ctx context.Context, sim *simulation, p *process) {
		every(ctx, options.Defaults().GarbageCollectionInterval, func() { _, _ = p.collector.Reconcile(ctx) })
		every(ctx, 2*time.Minute, func() { _, _ = p.coreCollector.Reconcile(ctx) })
		every(ctx, options.Defaults().CatalogInterval, func() { _ = sim.shared.Refresh(ctx) })
	}

	It("should be at most 3.2 a node, and one to leave BKE, in a burst of 500", func() {
		const nodes = 500
		var counts map[string]int
		var left []cloud.Server
		var up, down time.Duration
		sim := measure(func(sim *simulation, p *process) {
			for n := range nodes {
				sim.makeClaim(n, claimName(n))
			}
			sim.cloud.ResetRequests()
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			passes(ctx, sim, p)
			began := time.Now()
			launched := together(sim.liveClaims(), func(claim *karpv1.NodeClaim) { sim.launchNode(p, claim) })
			up = time.Since(began)
			for _, claim := range launched {
				sim.deleteClaim(claim)
			}
			began = time.Now()
			together(lo.FromSlicePtr(launched), func(claim *karpv1.NodeClaim) {
				time.Sleep(between(sim.chances("drain of "+claim.Name), 0, 20*time.Second))
				sim.removeNode(p, claim)
			})
			down = time.Since(began)
			// Nodes leave BKE in the background.
			time.Sleep(5 * time.Minute)
			counts, left = sim.cloud.RequestCounts(), ourServers(sim)
		})
		Expect(sim.violations).To(BeEmpty())
		Expect(left).To(BeEmpty())
		report := fmt.Sprintf("%s up, %s down: %v", up, down, counts)
		AddReportEntry("requests", report)
		Expect(counts["POST /iaas-cloud/api/servers"]).To(Equal(nodes), report)
		Expect(counts["DELETE /iaas-cloud/api/servers/{id}"]).To(Equal(nodes), report)
		// Whether it is gone: once for each, and seldom twice, when core and a pass of garbage collection ask at once.
		Expect(counts["GET /iaas-cloud/api/servers/{id}"]).To(BeNumerically("<=", nodes*105/100), report)
		Expect(counts["POST /api/kubernetes-engine/engine/cluster_leave/{uid}"]).To(Equal(nodes), report)
		Expect(float64(lo.Sum(lo.Values(counts)))/nodes).To(BeNumerically("<=", 4.2), report)
		Expect(up).To(BeNumerically("<", 2*time.Minute), "20 creates a second, 20 s to build, 40 s to boot")
		Expect(down).To(BeNumerically("<", 2*time.Minute))
	})
	DescribeTable("should be at most three a minute at rest", func(nodes int) {
		const rest = 30 * time.Minute
		var counts map[string]int
		measure(func(sim *simulation, p *process) {
			for n := range nodes {
				sim.makeClaim(n, claimName(n))
			}
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			passes(ctx, sim, p)
			running := together(sim.liveClaims(), func(claim *karpv1.NodeClaim) {
				sim.launchNode(p, claim)
				sim.registerNode(claim)
				go func() {
					for ctx.Err() == nil {
						result, _ := p.server.Reconcile(ctx, claim.DeepCopy())
						_ = sleep(ctx, max(result.RequeueAfter, time.Second))
					}
				}()
			})
			Expect(running).To(HaveLen(nodes))
			time.Sleep(5 * time.Minute)
			sim.cloud.ResetRequests()
			time.Sleep(rest)
			counts = sim.cloud.RequestCounts()
		})
		perMinute := float64(lo.Sum(lo.Values(counts))) / rest.Minutes()
		AddReportEntry("requests", fmt.Sprintf("%.2f a minute: %v", perMinute, counts))
		Expect(perMinute).To(BeNumerically("<=", 3), fmt.Sprint(counts))
	},
		Entry("with 10 nodes", 10),
		Entry("with 100 nodes", 100),
	)
	DescribeTable("should end no launch of a thousand by their own waiting", func(perSecond int) {
		const launches = 1000
		ended, servers := 0, 0
		var took time.Duration
		measure(func(sim *simulation, p *process) {
			for n := range launches {
				sim.makeClaim(n, claimName(n))
			}
			sim.createsPerSecond = perSecond
			began := time.Now()
			var mu sync.Mutex
			together(sim.liveClaims(), func(claim *karpv1.NodeClaim) {
				claim.StatusConditions().SetUnknown(karpv1.ConditionTypeLaunched)
				for {
					_, err := p.cloudProvider.Create(p.ctx, claim.DeepCopy())
					if err == nil {
						return
					}
					if corecloudprovider.IsInsufficientCapacityError(err) {
						mu.Lock()
						ended++
						mu.Unlock()
						return
					}
					time.Sleep(time.Second)
				}
			})
			took, servers = time.Since(began), len(ourServers(sim))
		})
		AddReportEntry("launches", fmt.Sprintf("%d servers in %s", servers, took))
		Expect(ended).To(BeZero())
		Expect(servers).To(Equal(launches))
		Expect(took).To(BeNumerically("<", 3*time.Minute))
	},
		Entry("at the default rate", 0),
		Entry("on a cloud that rejects more than 12 create requests a second", 12),
	)
})

// together runs the same for each NodeClaim at once and returns them as they are afterwards.
func together(claims []karpv1.NodeClaim, do func(*karpv1.NodeClaim)) []*karpv1.NodeClaim {
	var group sync.WaitGroup
	for i := range claims {
		group.Go(func() { do(&claims[i]) })
	}
	group.Wait()
	return lo.ToSlicePtr(claims)
}

// launchNode calls Create as core does, records the id, and lets the controllers of a launch work until the node has booted.
func (sim *simulation) launchNode(p *process, claim *karpv1.NodeClaim) {
	id := ""
	for id == "" {
		created, err := p.cloudProvider.Create(p.ctx, claim.DeepCopy())
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		id = created.Status.ProviderID
	}
	lo.Must0(sim.kube.Get(sim.ctx, client.ObjectKeyFromObject(claim), claim))
	claim.Status.ProviderID = id
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	lo.Must0(sim.kube.Status().Update(sim.ctx, claim))
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Second) {
		_, _ = p.server.Reconcile(p.ctx, claim.DeepCopy())
		lo.Must0(sim.kube.Get(sim.ctx, client.ObjectKeyFromObject(claim), claim))
	}
}

// registerNode adds the Node of a NodeClaim.
func (sim *simulation) registerNode(claim *karpv1.NodeClaim) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: map[string]string{karpv1.NodeRegisteredLabelKey: "true"}},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	lo.Must0(sim.kube.Create(sim.ctx, node))
	claim.Status.NodeName = node.Name
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
	lo.Must0(sim.kube.Status().Update(sim.ctx, claim))
}

// removeNode calls Get and Delete as core's node termination does, and Delete once more as its lifecycle controller does.
func (sim *simulation) removeNode(p *process, claim *karpv1.NodeClaim) {
	for {
		if err := p.cloudProvider.Delete(p.ctx, claim.DeepCopy()); corecloudprovider.IsNodeClaimNotFoundError(err) {
			break
		}
		time.Sleep(5 * time.Second)
		_, _ = p.cloudProvider.Get(p.ctx, claim.Status.ProviderID)
	}
	if err := p.cloudProvider.Delete(p.ctx, claim.DeepCopy()); !corecloudprovider.IsNodeClaimNotFoundError(err) {
		sim.violated("the server of %s is there again: %v", claim.Name, err)
	}
}
