// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package properties_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/properties/randomcluster"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Core's disruption controller, where a started hour is charged in full", func() {
	// cluster has a NodePool of one flavor, on which two of the pods fit, and the controller that protects nodes.
	cluster := func(budget string) *randomcluster.Live {
		pool := unit.NodePool()
		pool.Spec.Disruption = karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
			ConsolidateAfter: karpv1.MustParseNillableDuration("30s"), Budgets: []karpv1.Budget{{Nodes: budget}}}
		pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements,
			unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
		live := randomcluster.NewKarpenter(ctx, pool)
		DeferCleanup(live.CloseCloud)
		live.Tune(ctx, map[string]string{"billingPeriod": "1h"})
		return live
	}
	pods := func(count int, arrives, leaves time.Duration) (all []bill.Pod) {
		for i := range count {
			name := fmt.Sprintf("at-%s-%d", arrives, i)
			all = append(all, bill.Pod{Name: name, App: name, MilliCPU: 800, MiB: 512, Arrives: arrives, Leaves: leaves})
		}
		return all
	}
	// billed is the bill after so long.
	billed := func(live *randomcluster.Live, after time.Duration) *randomcluster.Bill {
		live.Elapse(ctx, after)
		return live.Settle(ctx, nil, 0)
	}
	inWindow := func(hour int) types.GomegaMatcher {
		next := time.Duration(hour) * time.Hour
		return And(BeNumerically(">", next-10*time.Minute), BeNumerically("<=", next))
	}

	DescribeTable("should remove a node in the window before its next hour, and not before",
		func(hour int, workload ...[]bill.Pod) {
			live := cluster("1")
			for _, pods := range workload {
				live.Settle(ctx, pods, 0)
			}
			b := billed(live, time.Duration(hour)*time.Hour+30*time.Minute)
			Expect(b.Lives).To(HaveExactElements(inWindow(hour)))
			Expect(b.Launches).To(Equal(1))
			Expect(b.VNDByHours).To(BeNumerically("<", 1.25*b.VND), "hardly more than was used")
		},
		Entry("empty at minute 3", 1, pods(1, 0, 3*time.Minute)),
		Entry("used again at minute 40, and empty at minute 70", 2, pods(1, 0, 3*time.Minute), pods(1, 40*time.Minute, 70*time.Minute)),
		Entry("older than a day", 26, pods(1, 0, 25*time.Hour+5*time.Minute)),
	)
	DescribeTable("should remove an empty node in its window after a restart, by the new process's clock",
		func(ahead time.Duration) {
			live := cluster("1")
			live.Settle(ctx, pods(1, 0, 3*time.Minute), 0)
			live.Elapse(ctx, 30*time.Minute)
			live.Restart(ctx, ahead)
			b := billed(live, 40*time.Minute)
			Expect(b.Lives).To(HaveExactElements(BeNumerically("~", 51*time.Minute-ahead, time.Minute)))
		},
		Entry("that agrees with the one before", time.Duration(0)),
		Entry("that is 3 minutes ahead", 3*time.Minute),
		Entry("that is 3 minutes behind", -3*time.Minute),
	)
	It("should replace drifted nodes in their window, as many as the budget lets, the others an hour later", func() {
		live := cluster("1")
		live.Settle(ctx, pods(16, 0, 0), 0)
		live.Elapse(ctx, 20*time.Minute)
		pool := live.Pools[0]
		Expect(live.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		pool.Spec.Template.Labels = map[string]string{"team": "a"}
		pool.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: pool.Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
		Expect(live.Client.Update(ctx, pool)).To(Succeed())
		// What begins in the window ends when the replacement is ready.
		drifted := func(hour int) types.GomegaMatcher {
			next := time.Duration(hour) * time.Hour
			return And(BeNumerically(">", next-10*time.Minute), BeNumerically("<", next+2*time.Minute))
		}
		first := billed(live, 45*time.Minute)
		Expect(first.Lives).To(And(HaveEach(drifted(1)), Not(BeEmpty())))
		all := billed(live, time.Hour)
		Expect(all.Lives).To(And(HaveLen(8), HaveEach(Or(drifted(1), drifted(2)))))
		Expect(len(first.Lives)).To(BeNumerically("<", 8), "one at a time takes longer than the window")
	})
	It("should remove most of many empty nodes that share one window, with the default budget", func() {
		nodes := int(min(suite.Number("PROPERTY_SEEDS", 30), 100)) // a hundred take a minute
		live := cluster("10%")
		live.Settle(ctx, pods(2*nodes, 0, 30*time.Minute), 0)
		b := billed(live, 65*time.Minute)
		Expect(b.Launches).To(Equal(nodes))
		Expect(b.Lives).To(HaveEach(And(BeNumerically(">", 50*time.Minute), BeNumerically("<", 62*time.Minute))))
		once := lo.CountBy(b.Lives, func(lived time.Duration) bool { return lived <= time.Hour })
		Expect(once).To(BeNumerically("~", 0.64*float64(nodes), 0.1*float64(nodes)))
		Expect(b.VNDByHours).To(BeNumerically("~", 1575*float64(2*nodes-once), 1), "the others pay a second hour")
	})
})
