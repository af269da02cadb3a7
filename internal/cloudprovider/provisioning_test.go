// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// Core's own provisioner plans here, and our Create launches what it planned.
var _ = Describe("Provisioning", func() {
	var cluster *state.Cluster
	var provisioner *provisioning.Provisioner
	BeforeEach(func() {
		nodeClass()
		planning := cloudprovider.PlanningClient(env.Client)
		cluster = state.NewCluster(env.Clock, planning, env.CloudProvider)
		provisioner = provisioning.NewProvisioner(planning, env.Recorder, env.CloudProvider, cluster, env.Clock,
			deviceallocation.NewController(planning), virtualpods.NewVirtualPodCache(planning))
	})
	provisioned := func(pods ...*corev1.Pod) {
		GinkgoHelper()
		expectations.ExpectProvisioned(ctx, env.Client, cluster, env.CloudProvider, provisioner, pods...)
	}
	requests := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}
	}

	It("should launch one server for many small pods", func() {
		expectations.ExpectApplied(ctx, env.Client, unit.NodePool())
		pods := coretest.UnschedulablePods(coretest.PodOptions{ResourceRequirements: requests("100m", "128Mi")}, 10)
		provisioned(pods...)
		expectations.ExpectPodsScheduled(ctx, env.Client, pods...)
		Expect(servers()).To(HaveLen(1))
	})
	It("should launch a server with memory enough, what the node will not see included", func() {
		expectations.ExpectApplied(ctx, env.Client, unit.NodePool())
		pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1", "30Gi")})
		provisioned(pod)
		expectations.ExpectScheduled(ctx, env.Client, pod)
		Expect(servers()).To(ConsistOf(HaveField("Flavor.RAM", BeNumerically(">", 32*1024))))
	})
	It("should spread over the zones", func() {
		expectations.ExpectApplied(ctx, env.Client, unit.NodePool())
		labels := map[string]string{"app": "spread"}
		pods := coretest.UnschedulablePods(coretest.PodOptions{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, ResourceRequirements: requests("1", "1Gi"),
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}},
		}, 4)
		provisioned(pods...)
		expectations.ExpectPodsScheduled(ctx, env.Client, pods...)
		Expect(servers()).To(And(ContainElement(HaveField("AvailabilityZone", "HN1")), ContainElement(HaveField("AvailabilityZone", "HN2"))))
	})
	It("should launch a GPU server for a pod that requests one, and for no other", func() {
		expectations.ExpectApplied(ctx, env.Client, unit.NodePool())
		one := corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}
		gpu := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: one, Limits: one}})
		plain := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1", "1Gi"),
			NodeSelector: map[string]string{v1alpha1.LabelInstanceCategory: "basic"}})
		provisioned(gpu, plain)
		Expect(expectations.ExpectScheduled(ctx, env.Client, gpu).Labels).To(HaveKeyWithValue(v1alpha1.LabelInstanceGPUCount, "1"))
		Expect(expectations.ExpectScheduled(ctx, env.Client, plain).Labels).ToNot(HaveKey(v1alpha1.LabelInstanceGPUCount))
	})
	It("should not launch for a selector that no flavor has", func() {
		expectations.ExpectApplied(ctx, env.Client, unit.NodePool())
		pod := coretest.UnschedulablePod(coretest.PodOptions{NodeSelector: map[string]string{v1alpha1.LabelInstanceGPUName: "a100"}})
		provisioned(pod)
		expectations.ExpectNotScheduled(ctx, env.Client, pod)
		Expect(createRequests()).To(BeZero())
	})
	It("should plan around what was found unavailable", func() {
		pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g", "nix.4c_8g"))
		expectations.ExpectApplied(ctx, env.Client, pool)
		env.Sandbox.SetStock("nix.2c_4g", "*", "*", 0)
		pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1", "1Gi")})
		provisioned(pod)
		Expect(expectations.ExpectScheduled(ctx, env.Client, pod).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "nix.4c_8g"))
		Expect(expectations.ExpectNodeClaims(ctx, env.Client)).
			To(ConsistOf(HaveField("Labels", HaveKeyWithValue(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand))))
	})
	It("should put the launch price on NodeClaim and node, where nothing takes it as required", func() {
		pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.4c_8g"))
		expectations.ExpectApplied(ctx, env.Client, pool)
		pod := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("100m", "128Mi")})
		provisioned(pod)
		types := lo.Must(env.CloudProvider.GetInstanceTypes(ctx, pool))
		expected, err := strconv.ParseFloat(expectations.ExpectScheduled(ctx, env.Client, pod).Labels[v1alpha1.LabelLaunchPrice], 64)
		Expect(err).ToNot(HaveOccurred())
		launched, _ := lo.Find(types, func(it *corecloudprovider.InstanceType) bool { return it.Name == "nix.4c_8g" })
		Expect(expected).To(BeNumerically("~", launched.Offerings[0].Price, 0.5))
		claims := expectations.ExpectNodeClaims(ctx, env.Client)
		Expect(claims).To(ConsistOf(HaveField("Labels", HaveKey(v1alpha1.LabelLaunchPrice))))
		Expect(claims[0].Spec.Requirements).ToNot(ContainElement(HaveField("Key", v1alpha1.LabelLaunchPrice)))

		By("having another price also after the hour in which core compares the instance types")
		table := lo.Must(pricing.ParseTable([]byte("categories: {basic: {cpu: 1000}, premium: {cpu: 1000}}")))
		env.Tune(func(o *options.Options) { o.Prices = table })
		env.Clock.Step(2 * time.Hour)
		conditions := disruption.NewController(env.Clock, env.Client, env.CloudProvider)
		expectations.ExpectObjectReconciled(ctx, env.Client, conditions, claims[0])
		Expect(expectations.ExpectExists(ctx, env.Client, claims[0]).StatusConditions().Get(karpv1.ConditionTypeDrifted)).To(BeNil())

		By("scheduling another pod on the same node")
		again := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("100m", "128Mi")})
		provisioned(again)
		Expect(servers()).To(HaveLen(1))
	})
})
