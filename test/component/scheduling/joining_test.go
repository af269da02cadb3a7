// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"context"
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	coremetrics "sigs.k8s.io/karpenter/pkg/metrics"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// shortTry ends a try of core's as its minute does, once core has tried so many pods: core asks its clock before each. So it does not
// depend on how fast the machine is.
type shortTry struct {
	context.Context
	clock.Clock
	pods, left int
	end        func()
}

func (t *shortTry) Since(start time.Time) time.Duration {
	if t.left--; t.left == -1 {
		t.end()
	}
	return t.Clock.Since(start)
}

// AfterFunc ends the context that core derives for a try.
func (t *shortTry) AfterFunc(end func()) (stop func() bool) {
	t.end = end
	return func() bool { return true }
}

// Done is not nil, because core's context would never end otherwise.
func (t *shortTry) Done() <-chan struct{} { return make(chan struct{}) }

func (t *shortTry) Err() error {
	if t.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// The upstream issues are in docs/reference/compatibility.md. A server of this NodePool has room for one of the pods.
var _ = Describe("Pods whose nodes take none yet", func() {
	var tc *testCluster
	var pool *karpv1.NodePool
	var try *shortTry
	BeforeEach(func() {
		tc = newTestCluster(0.04)
		try = &shortTry{Context: ctx, Clock: env.Clock, pods: math.MaxInt, left: math.MaxInt}
		tc.provisioner = provisioning.NewProvisioner(tc.client, env.Recorder, tc.provider, tc.cluster, try,
			deviceallocation.NewController(tc.client), tc.virtual)
		pool = unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
	})
	waiting := func(n int, options coretest.PodOptions) []*corev1.Pod {
		GinkgoHelper()
		if options.ResourceRequirements.Requests == nil {
			options.ResourceRequirements = requests("1100m", "256Mi")
		}
		pods := coretest.UnschedulablePods(options, n)
		for _, pod := range pods {
			expectations.ExpectApplied(ctx, env.Client, pod)
		}
		return pods
	}
	// reconciled is the NodeClaim after core has looked at it, in core's picture of the cluster, too.
	reconciled := func(name string) *karpv1.NodeClaim {
		GinkgoHelper()
		claim := &karpv1.NodeClaim{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		Expect(tc.lifecycle.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		tc.cluster.UpdateNodeClaim(claim)
		return claim
	}
	// launch launches what core plans, and returns the NodeClaims.
	launch := func() []string {
		GinkgoHelper()
		try.left = try.pods
		results := lo.Must(tc.provisioner.Schedule(try))
		names := lo.Must(tc.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims,
			provisioning.WithReason(coremetrics.ProvisionedReason)))
		defer atPresent()()
		for _, name := range names {
			Eventually(func() string { return reconciled(name).Status.ProviderID }).ShouldNot(BeEmpty())
		}
		return names
	}
	// register lets the node of a NodeClaim register, and returns it.
	register := func(name string) *corev1.Node {
		GinkgoHelper()
		defer atPresent()()
		node := &corev1.Node{}
		Eventually(func(g Gomega) {
			g.Expect(tc.guests.Sync(ctx)).To(Succeed())
			claim := reconciled(name)
			registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
			g.Expect(registered.IsTrue()).To(BeTrue(), "%v", registered)
			g.Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node)).To(Succeed())
		}).Should(Succeed())
		Expect(tc.cluster.UpdateNode(ctx, node)).To(Succeed())
		return node
	}

	DescribeTable("should get exactly the servers that they need, however slowly those join", func(
		batches, each int, joining time.Duration) {
		ready(pool)
		var names []string
		var pods []*corev1.Pod
		for batch := range batches {
			pods = append(pods, waiting(each, coretest.PodOptions{})...)
			names = append(names, launch()...)
			Expect(names).To(HaveLen((batch + 1) * each))
			for range int(joining / time.Minute) {
				env.Clock.Step(time.Minute)
				// As a mutating policy does with pods that wait.
				for _, pod := range pods {
					now := env.Clock.Now().Format("at-150405")
					pod.Labels = lo.Assign(pod.Labels, map[string]string{"seen": now})
					pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: now, Operator: corev1.TolerationOpExists})
					Expect(env.Client.Update(ctx, pod)).To(Succeed())
				}
				Expect(launch()).To(BeEmpty())
			}
		}
		for _, name := range names {
			tc.join(name)
			Expect(launch()).To(BeEmpty())
		}
		Expect(tc.bind(pods)).To(BeEmpty())
		Expect(env.Servers()).To(HaveLen(batches * each))
	},
		Entry("a pod, 2 minutes", 1, 1, 2*time.Minute),
		Entry("three pods, 10 minutes", 1, 3, 10*time.Minute),
		Entry("four batches of three, 2 minutes each", 4, 3, 2*time.Minute),
	)
	DescribeTable("should get exactly the servers that they need, where a try has time for a part of them", func(
		millicores int64) {
		try.pods = 3
		try.Context = coreoptions.ToContext(ctx, coretest.Options(coretest.OptionsFields{CPURequests: &millicores}))
		ready(pool)
		small := coretest.PodOptions{ResourceRequirements: requests("500m", "256Mi")}
		pods := append(waiting(8, coretest.PodOptions{}), waiting(8, small)...)
		for _, launched := range []int{3, 3, 2} {
			names := launch()
			Expect(names).To(HaveLen(launched))
			Expect(launch()).To(BeEmpty(), "the same pods are tried first until they run")
			for _, name := range names {
				tc.join(name)
			}
			pods = tc.bind(pods)
		}
		Expect(pods).To(BeEmpty())
		Expect(env.Servers()).To(HaveLen(8))
	}, Entry("with one thread", int64(50)), Entry("with four threads", int64(4000)))
	DescribeTable("should get no server behind more pods than a try has time for that no server helps", func(inTime, servers int) {
		try.pods = inTime
		ready(pool)
		waiting(3, coretest.PodOptions{ResourceRequirements: requests("3", "256Mi")})
		waiting(1, coretest.PodOptions{})
		launch()
		launch()
		Expect(env.Servers()).To(HaveLen(servers))
	}, Entry("3 of 4", 3, 0), Entry("4 of 4", 4, 1))
	DescribeTable("should get one more server for each where a taint comes late, unless the NodePool names it", func(
		named bool, more int) {
		taint := corev1.Taint{Key: "agent.example.com/not-ready", Value: "true", Effect: corev1.TaintEffectNoSchedule}
		if named {
			pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{taint}
		}
		ready(pool)
		waiting(2, coretest.PodOptions{})
		for _, name := range launch() {
			if node := register(name); !named {
				node.Spec.Taints = append(node.Spec.Taints, taint)
				Expect(env.APIReader.Update(ctx, node)).To(Succeed())
				Expect(tc.cluster.UpdateNode(ctx, node)).To(Succeed())
			}
		}
		Expect(launch()).To(HaveLen(more))
		env.Clock.Step(time.Minute)
		Expect(launch()).To(BeEmpty(), "the pods wait for the later servers now")
	}, Entry("named", true, 0), Entry("not named", false, 2))

	DescribeTable("should get no second server where kube-scheduler binds them for a reason that core does not know",
		func(servers int, options func() coretest.PodOptions) {
			pool.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("4")}
			ready(pool)
			waiting(3, options())
			names := launch()
			Expect(names).To(HaveLen(servers))
			for _, name := range names {
				register(name)
			}
			for range 10 {
				env.Clock.Step(time.Minute)
				Expect(launch()).To(BeEmpty())
			}
			Expect(env.Servers()).To(HaveLen(servers))
			for _, name := range names {
				// So it is not taken for an empty node.
				Expect(tc.cluster.IsNodeNominated(reconciled(name).Status.ProviderID)).To(BeTrue())
			}
		},
		Entry("a gang of which the limits leave room for a part", 2, func() coretest.PodOptions {
			return coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": "a"}}}
		}),
		Entry("a CSI driver that the node must have first", 2, func() coretest.PodOptions {
			driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "late.csi.example.com"},
				Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: lo.ToPtr(true)}}
			class := coretest.StorageClass(coretest.StorageClassOptions{
				Provisioner: &driver.Name, VolumeBindingMode: lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer),
			})
			claim := coretest.PersistentVolumeClaim(coretest.PersistentVolumeClaimOptions{StorageClassName: &class.Name})
			expectations.ExpectApplied(ctx, env.Client, driver, class, claim)
			DeferCleanup(func() { expectations.ExpectDeleted(ctx, env.Client, driver) })
			return coretest.PodOptions{PersistentVolumeClaims: []string{claim.Name}}
		}),
		Entry("a feature that the node must declare", 2, func() coretest.PodOptions { return coretest.PodOptions{} }),
	)
	It("should get no server for an extended resource that only a DRA driver has", func() {
		ready(pool)
		pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
			Requests: list("example.com/accelerator", "1"), Limits: list("example.com/accelerator", "1"),
		}})
		Expect(tc.settle(pod)).To(ConsistOf(pod))
		Expect(env.Servers()).To(BeEmpty())
	})
	It("should not keep nodes of others from being replaced while none can be launched for theirs", func() {
		pool.Spec.Disruption.Budgets, pool.Spec.Weight = []karpv1.Budget{{Nodes: "100%"}}, lo.ToPtr(int32(10))
		other := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.4c_8g"))
		other.Spec.Disruption.Budgets = pool.Spec.Disruption.Budgets
		ready(pool)
		ready(other)
		for _, cpu := range []string{"1100m", "3"} {
			options := coretest.PodOptions{ResourceRequirements: requests(cpu, "256Mi")}
			if cpu == "1100m" { // the other NodePool's flavor would do, too
				options.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: pool.Name}
			}
			Expect(tc.settle(coretest.UnschedulablePod(options))).To(BeEmpty())
		}
		before := lo.Map(env.Servers(), func(s cloud.Server, _ int) string { return s.ID })
		Expect(before).To(HaveLen(2))
		exhausted := capacity.Offering{Flavor: "p2.2c_4g"}
		env.Capacity.MarkUnavailable(ctx, exhausted, capacity.ReasonInsufficientCapacity, time.Hour)
		for i, changed := range []*karpv1.NodePool{pool, other} {
			changed.Spec.Template.Labels = map[string]string{"team": "a"}
			changed.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: changed.Hash(),
				karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
			expectations.ExpectApplied(ctx, env.Client, changed)
			Expect(tc.disrupted()).To(Equal(i), "the older drift is that of the first")
		}
		Expect(env.Servers()).To(ConsistOf(HaveField("ID", before[0]), HaveField("ID", Not(BeElementOf(before)))))
	})
})
