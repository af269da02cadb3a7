// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/capacitybuffer"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/pod/deletioncost"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	staticprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	coremetrics "sigs.k8s.io/karpenter/pkg/metrics"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// What core does only behind a feature gate, and what that needs of us.
var _ = Describe("Feature gates", func() {
	// What reads the gates takes them from the suite's context.
	before := ctx
	with := func(gates coretest.FeatureGates) {
		ctx = coreoptions.ToContext(before, coretest.Options(coretest.OptionsFields{FeatureGates: gates})) //nolint:fatcontext // replaced, not nested
	}
	AfterEach(func() { ctx = before }) //nolint:fatcontext // back to what it was

	Describe("NodeOverlay", func() {
		var core *planner
		var controller *nodeoverlay.Controller
		BeforeEach(func() {
			with(coretest.FeatureGates{NodeOverlay: lo.ToPtr(true)})
			store := nodeoverlay.NewInstanceTypeStore()
			config := env.CloudProviderConfig
			config.Overlay = store
			provider := cloudprovider.New(config)
			core = newPlanner(overlay.Decorate(provider, env.Client, store))
			controller = nodeoverlay.NewController(env.Clock, env.Client, provider, store, core.cluster)
		})
		AfterEach(func() {
			Expect(env.Client.DeleteAllOf(ctx, &karpv1alpha1.NodeOverlay{})).To(Succeed())
		})
		overlaid := func(name string, spec karpv1alpha1.NodeOverlaySpec) {
			GinkgoHelper()
			spec.Requirements = append(spec.Requirements, karpv1alpha1.NodeSelectorRequirement{
				Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{name}})
			expectations.ExpectApplied(ctx, env.Client, coretest.NodeOverlay(karpv1alpha1.NodeOverlay{Spec: spec}))
			Expect(controller.Reconcile(ctx, reconcile.Request{})).Error().ToNot(HaveOccurred())
		}

		It("should launch what the overlay makes cheapest", func() {
			ready(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g", "p2.4c_8g")))
			overlaid("p2.4c_8g", karpv1alpha1.NodeOverlaySpec{Price: lo.ToPtr("1")})
			pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("100m", "64Mi")})
			core.provision(pod)
			Expect(serverOf(pod).Flavor.Name).To(Equal("p2.4c_8g"))
		})
		It("should leave what we share as it is", func() {
			pool := ready(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g")))
			price := typesOf(env.CloudProvider, pool)["p2.2c_4g"].Offerings.Cheapest().Price
			overlaid("p2.2c_4g", karpv1alpha1.NodeOverlaySpec{PriceAdjustment: lo.ToPtr("+50%")})
			Expect(typesOf(core.provider, pool)["p2.2c_4g"].Offerings.Cheapest().Price).To(BeNumerically("~", 1.5*price, 0.01))
			Expect(typesOf(env.CloudProvider, pool)["p2.2c_4g"].Offerings.Cheapest().Price).To(Equal(price))
		})
		It("should launch for a resource that only the overlay knows of", func() {
			ready(unit.NodePool())
			overlaid("p2.4c_8g", karpv1alpha1.NodeOverlaySpec{Capacity: list("smarter-devices/fuse", "4")})
			pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
				Requests: list("smarter-devices/fuse", "1"), Limits: list("smarter-devices/fuse", "1"),
			}})
			core.provision(pod)
			Expect(serverOf(pod).Flavor.Name).To(Equal("p2.4c_8g"))
		})
		DescribeTable("should promise huge pages of an overlay to its NodePool, and take nothing from another:", func(pages string) {
			const name, size = "p2.4c_8g", "2Gi"
			pools := []*karpv1.NodePool{ready(unit.NodePool()), ready(unit.NodePool())}
			own := karpv1alpha1.NodeSelectorRequirement{
				Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{pools[0].Name}}
			overlaid(name, karpv1alpha1.NodeOverlaySpec{Capacity: list(pages, size),
				Requirements: []karpv1alpha1.NodeSelectorRequirement{own}})
			core.provision(coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
				Requests: list(pages, "1Gi", "memory", "3Gi"), Limits: list(pages, "1Gi", "memory", "3Gi")}}))
			claim := expectations.ExpectNodeClaims(ctx, env.Client)[0]
			Expect(claim.Labels).To(HaveKeyWithValue(karpv1.NodePoolLabelKey, pools[0].Name))
			// The kubelet finds 100Mi more than was estimated, and takes the pages out of what it offers.
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
				Capacity:    resources.Merge(claim.Status.Capacity, list("memory", "100Mi")),
				Allocatable: resources.Merge(claim.Status.Allocatable, list("memory", "100Mi"))}}
			nodeClass := &v1alpha1.BizflyNodeClass{}
			Expect(env.Client.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
			Expect(env.Flavors.Observe(ctx, nodeClass, claim, node)).To(BeFalse())
			promised := func(pool *karpv1.NodePool) (memory, of int64) {
				all := typesOf(core.provider, pool)[name].Allocatable()
				return all.Memory().Value() >> 20, lo.ToPtr(all[corev1.ResourceName(pages)]).Value() >> 20
			}
			offered := node.Status.Allocatable.Memory().Value() >> 20
			memory, of := promised(pools[0])
			Expect([]int64{memory, of}).To(Equal([]int64{offered, 2048}))
			memory, of = promised(pools[1])
			Expect([]int64{memory, of}).To(Equal([]int64{offered + 2048, 0}))
		},
			Entry("of 2 MiB", "hugepages-2Mi"),
			Entry("of 1 GiB", "hugepages-1Gi"),
		)
		It("should launch for, and promise, GPUs that only the overlay knows of", func() {
			ready(unit.NodePool(unit.Requirement(v1alpha1.LabelInstanceGPUCount, corev1.NodeSelectorOpDoesNotExist)))
			overlaid("e2.16c_64g", karpv1alpha1.NodeOverlaySpec{Capacity: list("nvidia.com/gpu", "2")})
			pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{
				Requests: list("nvidia.com/gpu", "2"), Limits: list("nvidia.com/gpu", "2"),
			}})
			core.provision(pod)
			Expect(serverOf(pod).Flavor.Name).To(Equal("e2.16c_64g"))
			claims := expectations.ExpectNodeClaims(ctx, env.Client)
			Expect(claims).To(HaveLen(1))
			gpus := claims[0].Status.Capacity[v1alpha1.ResourceNVIDIAGPU]
			Expect(gpus.Value()).To(BeEquivalentTo(2))
		})
	})
	Describe("StaticCapacity", func() {
		var core *planner
		BeforeEach(func() {
			with(coretest.FeatureGates{StaticCapacity: lo.ToPtr(true)})
			core = newPlanner(env.CloudProvider)
		})
		// replicas makes a static NodePool and launches what core wants for it.
		replicas := func(n int64, requirements ...karpv1.NodeSelectorRequirementWithMinValues) {
			GinkgoHelper()
			pool := unit.NodePool(requirements...)
			pool.Spec.Replicas, pool.Spec.Limits = &n, nil
			ready(pool)
			controller := staticprovisioning.NewController(env.Client, core.cluster, env.Recorder, env.CloudProvider, core.provisioner, env.Clock,
				deviceallocation.NewController(env.Client), core.virtual)
			expectations.ExpectObjectReconciled(ctx, env.Client, controller, pool)
			for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
				expectations.ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, core.cluster, env.CloudProvider, claim)
			}
			// Enough is enough.
			expectations.ExpectObjectReconciled(ctx, env.Client, controller, pool)
			Expect(expectations.ExpectNodeClaims(ctx, env.Client)).To(HaveLen(int(n)))
		}

		It("should launch as many of the cheapest servers as there are replicas, without any pod", func() {
			replicas(3, unit.Requirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpIn, "4"))
			Expect(env.Servers()).To(HaveLen(3))
			Expect(env.Servers()).To(HaveEach(HaveField("Flavor.VCPUs", 4)))
			Expect(lo.Uniq(lo.Map(env.Servers(), func(s cloud.Server, _ int) string { return s.Flavor.Name }))).To(HaveLen(1))
		})
		It("should launch them with a saving plan when the NodeClass sets one", func() {
			nodeClass := &v1alpha1.BizflyNodeClass{}
			Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
			Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
			_, err := env.NodeClass(ctx, func(n *v1alpha1.BizflyNodeClass) { n.Spec.BillingPlan = v1alpha1.BillingPlanSavingPlan })
			Expect(err).ToNot(HaveOccurred())
			replicas(1)
			Expect(env.Servers()).To(ConsistOf(HaveField("BillingPlan", bizfly.PlanWord(v1alpha1.BillingPlanSavingPlan))))
		})
	})
	Describe("TerminateFirst", func() {
		// full is a static NodePool of one node at its node limit, which leaves no capacity for a replacement.
		full := func() (*testCluster, *karpv1.NodePool) {
			GinkgoHelper()
			pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
			pool.Spec.Replicas, pool.Spec.Limits = lo.ToPtr(int64(1)), karpv1.Limits{resources.Node: resource.MustParse("1")}
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			ready(pool)
			h := newTestCluster(0.04)
			expectations.ExpectObjectReconciled(ctx, env.Client, staticprovisioning.NewController(env.Client, h.cluster, env.Recorder, env.CloudProvider,
				h.provisioner, env.Clock, deviceallocation.NewController(env.Client), h.virtual), pool)
			h.join(expectations.ExpectNodeClaims(ctx, env.Client)[0].Name)
			return h, pool
		}
		DescribeTable("should end a drifted node before there is another, with TerminateFirstDrift", func(on bool) {
			with(coretest.FeatureGates{StaticCapacity: lo.ToPtr(true), TerminateFirstDrift: &on})
			h, pool := full()
			pool.Spec.Template.Labels = map[string]string{"team": "a"}
			pool.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: pool.Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
			expectations.ExpectApplied(ctx, env.Client, pool)
			Expect(h.disrupted()).To(Equal(lo.Ternary(on, 1, 0)))
			Expect(env.Servers()).To(HaveLen(lo.Ternary(on, 0, 1)))
		}, Entry("on", true), Entry("off", false))
		DescribeTable("should end an unhealthy node before there is another, with TerminateFirstRepair", func(on bool) {
			with(coretest.FeatureGates{StaticCapacity: lo.ToPtr(true), NodeRepair: lo.ToPtr(true), TerminateFirstRepair: &on})
			h, _ := full()
			h.ready(expectations.ExpectNodes(ctx, env.Client)[0], corev1.ConditionFalse, "KubeletNotReady")
			env.Clock.Step(16 * time.Minute)
			h.forget()
			Expect(h.disrupted()).To(Equal(lo.Ternary(on, 1, 0)))
			Expect(env.Servers()).To(HaveLen(lo.Ternary(on, 0, 1)))
		}, Entry("on", true), Entry("off", false))
	})
	Describe("PodDeletionCostManagement", func() {
		It("should mark for ReplicaSets which pods to remove first", func() {
			with(coretest.FeatureGates{PodDeletionCostManagement: lo.ToPtr(true)})
			pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
			pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
			pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			ready(pool)
			h := newTestCluster(0.04)
			set := coretest.ReplicaSet()
			expectations.ExpectApplied(ctx, env.Client, set)
			pods := lo.Times(2, func(int) *corev1.Pod {
				return coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1100m", "512Mi"), ObjectMeta: metav1.ObjectMeta{
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: lo.ToPtr(true)}},
				}})
			})
			Expect(h.settle(pods...)).To(BeEmpty())
			h.forget()
			queue := deletioncost.NewQueue(env.Client)
			expectations.ExpectSingletonReconciled(ctx, deletioncost.NewController(env.Clock, env.Client, env.CloudProvider, h.cluster, queue))
			for _, pod := range pods {
				live := &corev1.Pod{}
				Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(pod), live)).To(Succeed())
				expectations.ExpectObjectReconciled(ctx, env.Client, queue, live)
				Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(pod), live)).To(Succeed())
				Expect(live.Annotations).To(HaveKey(corev1.PodDeletionCost))
			}
			expectations.ExpectDeleted(ctx, env.Client, set)
		})
	})
	Describe("CapacityBuffer", func() {
		It("should launch capacity for pods that do not exist yet", func() {
			with(coretest.FeatureGates{CapacityBuffer: lo.ToPtr(true)})
			core := newPlanner(env.CloudProvider)
			ready(unit.NodePool())
			template := &corev1.PodTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "headroom", Namespace: "default"},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
					{Name: "app", Image: "pause", Resources: requests("1", "2Gi")},
				}}},
			}
			buffer := &autoscalingv1beta1.CapacityBuffer{
				ObjectMeta: metav1.ObjectMeta{Name: "headroom", Namespace: "default"},
				Spec: autoscalingv1beta1.CapacityBufferSpec{
					ProvisioningStrategy: lo.ToPtr("buffer.x-k8s.io/active-capacity"),
					PodTemplateRef:       &autoscalingv1beta1.LocalObjectRef{Name: "headroom"}, Replicas: lo.ToPtr(int32(3)),
				},
			}
			expectations.ExpectApplied(ctx, env.Client, template, buffer)
			DeferCleanup(func() { expectations.ExpectDeleted(ctx, env.Client, template, buffer) })
			expectations.ExpectReconcileSucceeded(ctx, capacitybuffer.NewController(env.Client, noTrigger{}, core.virtual), client.ObjectKeyFromObject(buffer))
			results, err := core.provisioner.Schedule(ctx)
			Expect(err).ToNot(HaveOccurred())
			Expect(results.NewNodeClaims).ToNot(BeEmpty())
			for _, planned := range results.NewNodeClaims {
				name, err := core.provisioner.Create(ctx, planned, provisioning.WithReason(coremetrics.ProvisionedReason))
				Expect(err).ToNot(HaveOccurred())
				claim := &karpv1.NodeClaim{}
				Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
				expectations.ExpectNodeClaimDeployedAndStateUpdated(ctx, env.Client, core.cluster, env.CloudProvider, claim)
			}
			Expect(lo.SumBy(env.Servers(), func(s cloud.Server) int { return s.Flavor.VCPUs })).To(BeNumerically(">", 3))
			Expect(lo.SumBy(env.Servers(), func(s cloud.Server) int { return s.Flavor.RAM })).To(BeNumerically(">", 3*2048))
			// Core may place a pod of the same size before or after those of the buffer; together they need one server more.
			before := len(env.Servers())
			pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1", "2Gi")})
			core.provision(pod)
			expectations.ExpectScheduled(ctx, env.Client, pod)
			Expect(env.Servers()).To(HaveLen(before + 1))
		})
	})
})

// noTrigger ignores the triggers of the provisioner.
type noTrigger struct{}

// Trigger implements capacitybuffer.ProvisionerTrigger.
func (noTrigger) Trigger(types.UID) {}

// TriggerReconcile implements capacitybuffer.ProvisionerTrigger.
func (noTrigger) TriggerReconcile() {}
