// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// enough steps for every repack here.
const enough = 10000

// settled is a cluster for which a repack is offered, and the repack. It takes a moment, and specs begin with a copy of it.
var settled = sync.OnceValues(func() (*cluster, *repack.Proposal) {
	for seed := range uint64(20) {
		c := newCluster(seed, "100%", mix(1+seed, 40)...)
		if p := c.propose(); len(p.New) > 0 {
			return c, p
		}
	}
	Fail("nothing is offered for any of the seeds")
	return nil, nil
})

func offering() (*cluster, *repack.Proposal) {
	GinkgoHelper()
	c, p := settled()
	return c.again(1), p
}

// budgets are PodDisruptionBudgets: one pod may not be evicted, and of a service one at a time.
func budgets() []client.Object {
	budget := func(key, value string, allowed int32) client.Object {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: value},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	return []client.Object{budget("role", "leader", 0), budget("app", "app1", 1)}
}

var _ = Describe("A repack", func() {
	It("should save what it says, evict no pod twice, keep budgets, and leave nothing behind", func() {
		var report []string
		offered, guarded := 0, 0
		for seed := range uint64(40) {
			// Where core's consolidation rests is partly chance, so that it is not certain for which seeds a repack is offered.
			if seed >= uint64(suite.Number("PROPERTY_SEEDS", 2)) && guarded > 0 && offered > guarded {
				break
			}
			pods := mix(seed, 30+5*int(seed%8))
			pods[5].Labels["role"] = "leader"
			c := newCluster(seed, []string{"10%", "100%"}[seed%2], pods...)
			if seed%3 == 0 {
				for _, budget := range budgets() {
					Expect(c.Objects.Create(ctx, budget)).To(Succeed())
				}
				c.rest()
			}
			before, nodes := c.bill()
			clear(c.Moved)
			p := c.propose()
			if len(p.Replaced) > 0 {
				offered++
				guarded += lo.Ternary(seed%3 == 0, 1, 0)
				outcome, err := c.run(p, enough)
				Expect(err).ToNot(HaveOccurred(), "seed %d", seed)
				Expect(outcome.Failed).To(BeEmpty(), "seed %d", seed)
				Expect(outcome.Left).To(BeEmpty(), "seed %d", seed)
				c.rest()
			}
			after, nodesAfter := c.bill()
			Expect(after).To(BeNumerically("<=", p.VNDPerHourAfter+0.001), "seed %d", seed)
			Expect(after).To(Or(BeNumerically("==", before), BeNumerically("<=", before*(1-repack.MinSaving))), "seed %d", seed)
			Expect(lo.Max(append(lo.Values(c.Moved), 0))).To(BeNumerically("<=", 1), "seed %d: a pod was evicted twice", seed)
			all := &corev1.PodList{}
			Expect(c.Objects.List(ctx, all)).To(Succeed())
			Expect(all.Items).To(HaveLen(len(pods)), "seed %d: the pods that hold nodes are gone", seed)
			for _, p := range all.Items {
				Expect(p.Spec.NodeName).ToNot(BeEmpty(), "seed %d: %s", seed, p.Name)
				if seed%3 == 0 && p.Labels["role"] == "leader" {
					Expect(c.Moved[p.UID]).To(BeZero(), "seed %d: %s was evicted against its budget", seed, p.Name)
				}
			}
			report = append(report, fmt.Sprintf("seed %d, %d pods: %d nodes %.0f -> %d nodes %.0f (planned %.0f), %d pods moved %s", seed, len(pods),
				nodes, before, nodesAfter, after, p.VNDPerHourAfter, len(c.Moved), p.Reason))
		}
		AddReportEntry("repacks", strings.Join(report, "\n"))
		Expect(offered).To(BeNumerically(">", guarded), "there was nothing to repack, so nothing is proved")
		Expect(guarded).To(BeNumerically(">", 0), "there was nothing to repack with PodDisruptionBudgets, so nothing is proved of them")
	})

	It("should come to all of it or to nothing when it is interrupted at any point", func() {
		interrupted := 0
		base, p := settled()
		before, nodes := base.bill()
		for seed := range uint64(suite.Number("PROPERTY_SEEDS", 10)) {
			r := rand.New(rand.NewPCG(seed, 3))
			c := base.again(seed)
			_, err := c.run(p, r.IntN(created(p)+len(p.New)+6))
			if err != nil {
				Expect(err).To(MatchError(errInterrupted))
				interrupted++
			}
			c.rest()
			after, nodesAfter := c.bill()
			Expect(nodesAfter).To(BeElementOf(nodes, p.NodesAfter), "seed %d", seed)
			Expect(after).To(Or(BeNumerically("~", before, 0.01), BeNumerically("~", p.VNDPerHourAfter, 0.01)), "seed %d: all of it or nothing", seed)
			if err == nil {
				Expect(nodesAfter).To(Equal(p.NodesAfter), "seed %d", seed)
			}
			jobs := &batchv1.JobList{}
			Expect(c.Objects.List(ctx, jobs)).To(Succeed())
			Expect(jobs.Items).To(BeEmpty(), "seed %d", seed)
		}
		Expect(interrupted).To(BeNumerically(">", 0))
	})
})

var _ = Describe("A repack whose look fails", func() {
	var c *cluster
	var p *repack.Proposal
	BeforeEach(func() {
		c, p = offering()
	})

	It("should look again after an error that passes", func() {
		process, lists := c.client(enough), 0
		process.fail = func() error {
			if lists++; lists > 1 && lists%2 == 0 { // the first is that of the check
				return apierrors.NewTimeoutError("try again", 1)
			}
			return nil
		}
		outcome := lo.Must(c.runWith(p, process))
		Expect(outcome.Committed).To(BeTrue())
		Expect(outcome.Left).To(BeEmpty())
	})

	It("should look no more after its deadline, nor without the right", func() {
		lists := 0
		failing := func(with error) error {
			process := c.client(enough)
			lists, process.fail = 0, func() error {
				lists++
				return lo.Ternary(lists > 1, with, nil)
			}
			_, err := c.runWith(p, process)
			return err
		}
		err := failing(apierrors.NewTimeoutError("try again", 1))
		Expect(apierrors.IsTimeout(err)).To(BeTrue(), "%v", err)
		Expect(lists).To(BeNumerically(">", 10), "one look each minute")
		c, p = offering()
		err = failing(apierrors.NewForbidden(schema.GroupResource{Resource: "nodeclaims"}, "", errors.New("no")))
		Expect(err).To(MatchError(ContainSubstring("you may not list nodeclaims")))
		Expect(lists).To(Equal(2))
	})
})

// created is how many steps it takes until all is created, three of which try whether it can be.
func created(p *repack.Proposal) int {
	return 3 + len(p.Replaced) + len(p.Held) + len(p.New) + 1
}

var _ = Describe("What a repack creates", func() {
	var c *cluster
	var p *repack.Proposal
	BeforeEach(func() {
		c, p = offering()
	})

	It("should be NodeClaims like those of core's provisioner, narrowed to one flavor in one zone", func() {
		theirs := &karpv1.NodeClaimList{}
		Expect(c.Objects.List(ctx, theirs)).To(Succeed())
		pattern := theirs.Items[0]
		_, err := c.run(p, created(p))
		Expect(err).To(MatchError(errInterrupted))
		all := &karpv1.NodeClaimList{}
		Expect(c.Objects.List(ctx, all)).To(Succeed())
		ours := lo.Filter(all.Items, func(claim karpv1.NodeClaim, _ int) bool { return claim.Labels[repack.NodeLabel] != "" })
		Expect(ours).To(HaveLen(len(p.New)))
		for _, claim := range ours {
			Expect(claim.OwnerReferences).To(Equal(pattern.OwnerReferences))
			Expect(claim.Labels).To(HaveKeyWithValue("team", "shop"))
			Expect(claim.Labels).To(HaveKeyWithValue(karpv1.NodePoolLabelKey, "default"))
			for _, key := range []string{karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, "example.com/owner"} {
				Expect(claim.Annotations).To(HaveKeyWithValue(key, pattern.Annotations[key]))
			}
			Expect(claim.Spec.NodeClassRef).To(Equal(pattern.Spec.NodeClassRef))
			Expect(claim.Spec.StartupTaints).To(Equal(pattern.Spec.StartupTaints))
			for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone} {
				requirement, found := lo.Find(claim.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool { return r.Key == key })
				Expect(found).To(BeTrue())
				Expect(requirement.Values).To(HaveLen(1))
			}
			Expect(claim.Spec.Resources.Requests.Cpu().IsZero()).To(BeFalse())
		}
	})

	It("should be Jobs that end by themselves, and hold each node that is new or stays", func() {
		_, err := c.run(p, created(p))
		Expect(err).To(MatchError(errInterrupted))
		jobs := &batchv1.JobList{}
		Expect(c.Objects.List(ctx, jobs)).To(Succeed())
		Expect(jobs.Items).To(HaveLen(len(p.Held) + 1))
		for _, job := range jobs.Items {
			lasts := time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second
			Expect(job.Spec.TTLSecondsAfterFinished).ToNot(BeNil())
			template := job.Spec.Template
			Expect(template.Annotations).To(HaveKeyWithValue(karpv1.DoNotDisruptAnnotationKey, lasts.String()))
			Expect(template.Spec.Containers[0].Resources.Requests).To(BeEmpty())
			Expect(template.Spec.PriorityClassName).To(BeEmpty())
			for _, term := range template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				Expect(term.LabelSelector.MatchExpressions).To(BeEmpty(), "core confuses lists of values whose names differ alike")
			}
			Expect(len(template.Spec.NodeSelector) + len(template.Spec.NodeName)).To(BeNumerically(">", 0))
			Expect(template.Spec.Tolerations).To(ConsistOf(corev1.Toleration{Operator: corev1.TolerationOpExists}), "taints of the NodePool do not evict it")
			held := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			Expect(podutils.ToleratesDisruptedNoScheduleTaint(held)).To(BeTrue(), "a node that is removed by hand does not wait for it")
		}
	})

	It("should keep other pods off each replaced node by a pod that core leaves alone", func() {
		_, err := c.run(p, created(p))
		Expect(err).To(MatchError(errInterrupted))
		Expect(c.gates).To(HaveLen(len(p.Replaced)), "new nodes have theirs once all are ready")
		for i, gate := range c.gates {
			Expect(gate.Spec.NodeName).To(Equal(p.Replaced[i].Name))
			Expect(gate.Spec.ActiveDeadlineSeconds).To(HaveValue(BeNumerically("==", p.Hold().Seconds())))
			Expect(gate.Spec.Containers[0].Resources.Requests).To(BeEmpty())
			Expect(gate.Annotations).To(HaveKey(karpv1.DoNotDisruptAnnotationKey))
			Expect(gate.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Node"), HaveField("Name", gate.Spec.NodeName), HaveField("UID", Not(BeEmpty())))))
			Expect(podutils.IsReschedulable(gate)).To(BeFalse())
			Expect(podutils.IsEvictable(gate, clock.RealClock{}, nil)).To(BeFalse())
			Expect(podutils.IsDrainable(gate, clock.RealClock{})).To(BeFalse())
			waiting := gate.DeepCopy()
			waiting.Spec.NodeName, waiting.Status.Conditions = "", []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
			Expect(podutils.IsProvisionable(waiting)).To(BeFalse())
		}
	})

	It("should let each pod that moves come to the node that it is planned for, and to no other", func() {
		Expect(c.run(p, enough)).Error().ToNot(HaveOccurred())
		nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
		Expect(c.Objects.List(ctx, nodes)).To(Succeed())
		Expect(c.Objects.List(ctx, pods)).To(Succeed())
		on := lo.GroupBy(pods.Items, func(p corev1.Pod) string { return p.Spec.NodeName })
		for i, added := range p.New {
			node, found := lo.Find(nodes.Items, func(n corev1.Node) bool {
				return strings.HasSuffix(n.Labels[repack.NodeLabel], fmt.Sprintf("-%d", i+1))
			})
			Expect(found).To(BeTrue())
			app := func(name string) string { return strings.TrimPrefix(strings.Split(name, "-")[0], "shop/") }
			Expect(lo.FilterMap(on[node.Name], func(p corev1.Pod, _ int) (string, bool) { return p.Labels["app"], p.Labels["app"] != "" })).
				To(ConsistOf(lo.ToAnySlice(lo.Map(added.Pods, func(name string, _ int) string { return app(name) }))...))
		}
	})

	It("should be nothing when the NodePool has changed since the proposal", func() {
		pool := &karpv1.NodePool{}
		Expect(c.Objects.Get(ctx, client.ObjectKey{Name: "default"}, pool)).To(Succeed())
		pool.Spec.Template.Labels["team"] = "other"
		Expect(c.Objects.Update(ctx, pool)).To(Succeed())
		_, err := c.run(p, enough)
		Expect(err).To(MatchError(ContainSubstring("has changed since the proposal")))
	})

	It("should be nothing, and not be offered, when the NodePool's limits have no room", func() {
		pool := &karpv1.NodePool{}
		Expect(c.Objects.Get(ctx, client.ObjectKey{Name: "default"}, pool)).To(Succeed())
		pool.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse(fmt.Sprint(p.Nodes))}
		Expect(c.Objects.Update(ctx, pool)).To(Succeed())
		_, err := c.run(p, enough)
		Expect(err).To(MatchError(ContainSubstring("would exceed the limits")))
		Expect(c.propose().New).To(BeEmpty())
		claims := &karpv1.NodeClaimList{}
		Expect(c.Objects.List(ctx, claims)).To(Succeed())
		Expect(claims.Items).To(HaveLen(p.Nodes))
	})

	It("should say which pods move and which budgets apply", func() {
		// Of all pods: another proposal may replace other nodes.
		Expect(c.Objects.Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "applies"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 2},
		})).To(Succeed())
		again := c.propose()
		Expect(again.Budgets).To(ConsistOf(And(HaveField("Name", "applies"), HaveField("Pods", BeNumerically(">", 0)), HaveField("Allowed", BeEquivalentTo(2)))))
		moved := lo.FlatMap(again.Replaced, func(n repack.Node, _ int) []string { return n.Pods })
		added := lo.FlatMap(again.New, func(n repack.Node, _ int) []string { return n.Pods })
		Expect(moved).To(ContainElements(added))
		Expect(again.Saves()).To(BeNumerically(">=", repack.MinSaving))
		Expect(again.SavesVNDPerMonth).To(BeNumerically("~", 720*(again.VNDPerHour-again.VNDPerHourAfter), 1))
	})
})

var _ = DescribeTable("A NodePool is left alone", func(change func(*karpv1.NodePool, *karpv1.NodeClaim, *corev1.Pod), reason string) {
	after := karpv1.MustParseNillableDuration("0s")
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Disruption = karpv1.Disruption{
		ConsolidationPolicy: karpv1.ConsolidationPolicyBalanced, ConsolidateAfter: after, Budgets: []karpv1.Budget{{Nodes: "10%"}},
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}}}
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
	p := pod("web-1", 100, 100)
	p.Spec.NodeName = "a"
	anothers := pod("anybodys-1", 100, 100)
	anothers.Namespace, anothers.Spec.NodeName, anothers.Labels[repack.HoldLabel] = "team-a", "a", "x"
	gated, controllers := pod("gated", 100, 100), pod("controller-2", 100, 100)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}}
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}}}}}
	controllers.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	eligible := func() error {
		return repack.Eligible(pool, []*karpv1.NodeClaim{claim}, []*corev1.Pod{p, anothers, gated, controllers}, "shop")
	}
	Expect(eligible()).To(Succeed())
	change(pool, claim, p)
	Expect(eligible()).To(MatchError(ContainSubstring(reason)))
},
	Entry("that is static", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) { p.Spec.Replicas = lo.ToPtr(int64(2)) }, "static"),
	Entry("whose consolidation is off", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	}, "consolidation is off"),
	Entry("that consolidates empty nodes only", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
	}, "WhenEmpty"),
	Entry("that is paused by a limit", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("0")}
	}, "limits is 0"),
	Entry("that is paused by its budgets", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
	}, "budgets allow no node"),
	Entry("that is being deleted", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.DeletionTimestamp = lo.ToPtr(metav1.Now())
	}, "being deleted"),
	Entry("with minValues", func(p *karpv1.NodePool, _ *karpv1.NodeClaim, _ *corev1.Pod) {
		p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: lo.ToPtr(2)},
		}
	}, "minValues"),
	Entry("while a NodeClaim is being launched", func(_ *karpv1.NodePool, c *karpv1.NodeClaim, _ *corev1.Pod) {
		c.StatusConditions().SetUnknown(karpv1.ConditionTypeInitialized)
	}, "being launched or removed"),
	Entry("without nodes", func(_ *karpv1.NodePool, c *karpv1.NodeClaim, _ *corev1.Pod) {
		c.Labels[karpv1.NodePoolLabelKey] = "other"
	}, "no nodes"),
	Entry("while pods wait", func(_ *karpv1.NodePool, _ *karpv1.NodeClaim, p *corev1.Pod) { p.Spec.NodeName = "" }, "no node yet"),
	Entry("while another repack holds nodes", func(_ *karpv1.NodePool, _ *karpv1.NodeClaim, p *corev1.Pod) {
		p.Labels[repack.HoldLabel] = "abc"
	}, "under way"),
)
