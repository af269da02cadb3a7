// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/node/legacyrepair"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination/terminator"
	nodeclaimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// disrupted lets core look once for nodes to disrupt, launches replacements, and terminates what it removes. It
// returns how many nodes were removed.
func (h *testCluster) disrupted() int {
	GinkgoHelper()
	clk := unit.SteppingClock{FakeClock: env.Clock}
	conditions := nodeclaimdisruption.NewController(clk, env.Client, env.CloudProvider)
	env.Clock.Step(time.Minute)
	for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
		Expect(conditions.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		h.cluster.UpdateNodeClaim(claim)
	}
	h.cluster.MarkUnconsolidated()
	queue := disruption.NewQueue(h.client, env.Recorder, h.cluster, clk, h.provisioner)
	controller := disruption.NewController(ctx, clk, h.client, h.provisioner, env.CloudProvider, env.Recorder, h.cluster, queue,
		cost.NewClusterCost(ctx, env.CloudProvider, h.client))
	Eventually(func() bool { return h.cluster.Synced(ctx) }).Should(BeTrue())
	expectations.ExpectSingletonReconciled(ctx, controller)
	given := 0
	for _, command := range queue.GetCommands() {
		for _, replacement := range command.Replacements {
			h.join(replacement.Name)
		}
		for _, candidate := range command.Candidates {
			given++
			expectations.ExpectObjectReconciled(ctx, env.Client, queue, candidate.NodeClaim)
		}
	}
	h.terminated()
	return given
}

// terminated ends every claim that is being deleted. It is kubelet and ReplicaSet controller as well: pods of a node
// that drains are gone at once and wait elsewhere as new ones, which are then placed.
func (h *testCluster) terminated() {
	GinkgoHelper()
	ending := termination.NewController(unit.SteppingClock{FakeClock: env.Clock}, env.Client, env.CloudProvider,
		terminator.NewTerminator(env.Clock, env.Client, terminator.NewQueue(env.Clock, env.Client, env.Recorder), env.Recorder), env.Recorder)
	var again []*corev1.Pod
	Eventually(func(g Gomega) {
		env.Clock.Step(10 * time.Second)
		for _, node := range expectations.ExpectNodes(ctx, env.Client) {
			if node.DeletionTimestamp.IsZero() {
				continue
			}
			for _, pod := range podsOn(ctx, node) {
				again = append(again, coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: pod.Spec.Containers[0].Resources}))
				expectations.ExpectDeleted(ctx, env.Client, pod)
				h.cluster.DeletePod(client.ObjectKeyFromObject(pod))
			}
			_, err := ending.Reconcile(ctx, node)
			g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
		for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
			if !claim.DeletionTimestamp.IsZero() {
				_, err := h.lifecycle.Reconcile(ctx, claim)
				g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			}
		}
		g.Expect(h.guests.Sync(ctx)).To(Succeed())
		claims := expectations.ExpectNodeClaims(ctx, env.Client)
		g.Expect(lo.Filter(claims, func(claim *karpv1.NodeClaim, _ int) bool { return !claim.DeletionTimestamp.IsZero() })).To(BeEmpty())
		joined := lo.Map(expectations.ExpectNodes(ctx, env.Client), func(node *corev1.Node, _ int) string { return node.Name })
		g.Expect(joined).To(ConsistOf(lo.Map(claims, func(claim *karpv1.NodeClaim, _ int) string { return claim.Status.NodeName })))
	}).Should(Succeed())
	h.forget()
	Expect(h.settle(again...)).To(BeEmpty())
}

// forget makes core's picture of the cluster anew, as its informers would.
func (h *testCluster) forget() {
	GinkgoHelper()
	h.cluster.Reset()
	for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
		h.cluster.UpdateNodeClaim(claim)
	}
	// From the API server: a cache that lags behind shows some nodes as they were.
	nodes := &corev1.NodeList{}
	Expect(env.APIReader.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		node := &nodes.Items[i]
		Expect(h.cluster.UpdateNode(ctx, node)).To(Succeed())
		for _, pod := range podsOn(ctx, node) {
			Expect(h.cluster.UpdatePod(ctx, pod)).To(Succeed())
		}
	}
}

var _ = Describe("Disruption", func() {
	var tc *testCluster
	var pool *karpv1.NodePool
	BeforeEach(func() {
		pool = unit.NodePool()
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		ready(pool)
		tc = newTestCluster(0.04)
	})
	// cost is what all servers cost per hour.
	cost := func() float64 {
		GinkgoHelper()
		types := typesOf(env.CloudProvider, pool)
		return lo.SumBy(expectations.ExpectNodes(ctx, env.Client), func(n *corev1.Node) float64 {
			return types[n.Labels[corev1.LabelInstanceTypeStable]].Offerings.Cheapest().Price
		})
	}
	gone := func(pods ...*corev1.Pod) {
		GinkgoHelper()
		for _, pod := range pods {
			expectations.ExpectDeleted(ctx, env.Client, pod)
			tc.cluster.DeletePod(client.ObjectKeyFromObject(pod))
		}
	}

	It("should delete an empty node with its server and its disks", func() {
		pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1", "1Gi")})
		Expect(tc.settle(pod)).To(BeEmpty())
		Expect(env.Servers()).To(HaveLen(1))
		Expect(tc.disrupted()).To(BeZero(), "a node in use is not empty")
		gone(pod)
		Expect(tc.disrupted()).To(Equal(1))
		Expect(env.Servers()).To(BeEmpty())
		Expect(env.Sandbox.State().Volumes).To(BeEmpty())
		Expect(expectations.ExpectNodes(ctx, env.Client)).To(BeEmpty())
	})
	It("should replace a node that is much too large by the one of the right size, and then rest", func() {
		large := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("12", "20Gi")})
		small := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("500m", "512Mi")})
		Expect(tc.settle(large, small)).To(BeEmpty())
		Expect(env.Servers()).To(HaveLen(1))
		before := cost()
		gone(large)
		Expect(tc.disrupted()).To(Equal(1))
		Expect(env.Servers()).To(ConsistOf(HaveField("Flavor.VCPUs", 1)))
		Expect(cost()).To(BeNumerically("<", before/4))
		Expect(tc.disrupted()).To(BeZero(), "consolidation does not come to rest")
	})
	It("should pack half-empty nodes together", func() {
		var larges []*corev1.Pod
		for range 3 {
			large := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("3", "2Gi")})
			small := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("600m", "512Mi")})
			Expect(tc.settle(large, small)).To(BeEmpty())
			larges = append(larges, large)
		}
		gone(larges...)
		before := cost()
		Expect(len(env.Servers())).To(BeNumerically(">", 1))
		for range 5 {
			if tc.disrupted() == 0 {
				break
			}
			Expect(cost()).To(BeNumerically("<", before), "the cluster has become more expensive")
			before = cost()
		}
		Expect(env.Servers()).To(HaveLen(1))
		Expect(tc.disrupted()).To(BeZero(), "consolidation does not come to rest")
	})
	DescribeTable("should replace several nodes by a cheaper one, with any capacity types in the NodePool",
		func(capacityTypes ...karpv1.NodeSelectorRequirementWithMinValues) {
			pool.Spec.Template.Spec.Requirements = append(capacityTypes, unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "premium"))
			ready(pool)
			for range 2 {
				// Neither fits beside the other on a server of 8 GiB, and both fit on one of 16.
				Expect(tc.settle(coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("600m", "5Gi")}))).To(BeEmpty())
			}
			Expect(env.Servers()).To(HaveLen(2))
			Expect(tc.disrupted()).To(Equal(2))
			Expect(env.Servers()).To(HaveLen(1))
		},
		Entry("only on-demand", unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)),
		Entry("all but spot", unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpNotIn, karpv1.CapacityTypeSpot)),
		Entry("any"),
		Entry("spot",
			unit.Requirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)),
	)
	It("should replace a node whose NodePool has changed, and only then", func() {
		Expect(tc.settle(coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("500m", "512Mi")}))).To(BeEmpty())
		Expect(tc.disrupted()).To(BeZero())
		old := env.Servers()[0].ID
		pool.Spec.Template.Labels = map[string]string{"team": "a"}
		pool.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: pool.Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
		expectations.ExpectApplied(ctx, env.Client, pool)
		Expect(tc.disrupted()).To(Equal(1))
		Expect(env.Servers()).To(ConsistOf(HaveField("ID", Not(Equal(old)))))
		Expect(tc.disrupted()).To(BeZero(), "drift does not come to rest")
	})
	It("should replace a node that is not ready for too long when the former node repair is on", func() {
		Expect(tc.settle(coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("500m", "512Mi")}))).To(BeEmpty())
		old := env.Servers()[0].ID
		node := expectations.ExpectNodes(ctx, env.Client)[0]
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
			LastHeartbeatTime: metav1.NewTime(env.Clock.Now()), LastTransitionTime: metav1.NewTime(env.Clock.Now()),
		}}
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
		repair := legacyrepair.NewController(env.Client, env.CloudProvider, env.Clock, env.Recorder)
		result := lo.Must(repair.Reconcile(ctx, node))
		Expect(result.RequeueAfter).To(BeNumerically("~", 15*time.Minute, 2*time.Second))
		env.Clock.Step(result.RequeueAfter + time.Second)
		Expect(repair.Reconcile(ctx, node)).Error().ToNot(HaveOccurred())
		tc.terminated()
		Expect(env.Servers()).To(ConsistOf(HaveField("ID", Not(Equal(old)))))
	})
})
