// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Pods", func() {
	var core *planner
	BeforeEach(func() { core = newPlanner(env.CloudProvider) })
	pods := func(n int, options coretest.PodOptions) []*corev1.Pod { return coretest.UnschedulablePods(options, n) }
	pod := func(options coretest.PodOptions) *corev1.Pod { return coretest.UnschedulablePod(options) }

	Context("of a size", func() {
		It("should share the cheapest server that has capacity for all of them", func() {
			pool := applied(unit.NodePool())
			small := pods(8, coretest.PodOptions{ResourceRequirements: requests("200m", "256Mi")})
			core.provision(small...)
			expectations.ExpectPodsScheduled(ctx, env.Client, small...)
			Expect(env.Servers()).To(HaveLen(1))
			// No other flavor with capacity for 1600m and 2 GiB is cheaper.
			types := typesOf(env.CloudProvider, pool)
			chosen := types[env.Servers()[0].Flavor.Name]
			for _, it := range types {
				if resources.Fits(list("cpu", "1600m", "memory", "2Gi", "pods", "8"), it.Allocatable()) && len(it.Offerings.Available()) > 0 {
					Expect(it.Offerings.Cheapest().Price).To(BeNumerically(">=", chosen.Offerings.Cheapest().Price), "%s rather than %s", chosen.Name, it.Name)
				}
			}
		})
		It("should get a large server when one of them is large", func() {
			applied(unit.NodePool())
			large := pod(coretest.PodOptions{ResourceRequirements: requests("60", "100Gi")})
			core.provision(large)
			Expect(serverOf(large).Flavor.VCPUs).To(Equal(64))
		})
		It("should wait when no server is large enough, and nothing should be launched", func() {
			applied(unit.NodePool())
			huge := pod(coretest.PodOptions{ResourceRequirements: requests("1", "2000Gi")})
			core.provision(huge)
			expectations.ExpectNotScheduled(ctx, env.Client, huge)
			Expect(env.Servers()).To(BeEmpty())
		})
		It("should get more servers when there are more of them than a kubelet runs", func() {
			applied(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.32c_64g")))
			tiny := pods(120, coretest.PodOptions{ResourceRequirements: requests("1m", "1Mi")})
			expectations.ExpectParallelized(lo.Map(tiny, func(p *corev1.Pod, _ int) func() {
				return func() { expectations.ExpectApplied(ctx, env.Client, p) }
			})...)
			results := lo.Must(core.provisioner.Schedule(ctx))
			Expect(results.NewNodeClaims).To(HaveLen(2))
			Expect(lo.SumBy(results.NewNodeClaims, func(n *scheduling.NodeClaim) int { return len(n.Pods) })).To(Equal(120))
		})
		It("should get a disk that is large enough, or wait", func() {
			applied(unit.NodePool())
			disk := func(size string) *corev1.Pod {
				return pod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: list("ephemeral-storage", size)}})
			}
			modest, greedy := disk("20Gi"), disk("60Gi")
			core.provision(modest, greedy)
			expectations.ExpectScheduled(ctx, env.Client, modest)
			expectations.ExpectNotScheduled(ctx, env.Client, greedy)
		})
		It("should fit beside the daemons of their node", func() {
			applied(unit.NodePool())
			options := coretest.PodOptions{ResourceRequirements: requests("1500m", "1Gi")}
			without := pod(options)
			core.provision(without)
			Expect(serverOf(without).Flavor.VCPUs).To(Equal(2))

			daemon := daemonSet(requests("1", "1Gi"))
			expectations.ExpectApplied(ctx, env.Client, daemon)
			Expect(core.cluster.UpdateDaemonSet(ctx, daemon)).To(Succeed())
			options.NodeSelector = map[string]string{corev1.LabelTopologyZone: "HN2"} // a node of its own
			with := pod(options)
			Expect(serverOf(without).AvailabilityZone).To(Equal("HN1"))
			core.provision(with)
			Expect(serverOf(with).Flavor.VCPUs).To(BeNumerically(">=", 4))
		})
	})
	Context("with resource claims", func() {
		It("should wait, as core does nothing for them by default, and hold up no other pod", func() {
			applied(unit.NodePool())
			claim := coretest.ResourceClaimForRequests("gpu", coretest.ExactDeviceRequest("gpu", "gpu.example.com", 1))
			expectations.ExpectApplied(ctx, env.Client, claim)
			DeferCleanup(func() { expectations.ExpectDeleted(ctx, env.Client, claim) })
			claiming, other := pod(coretest.PodOptions{
				ResourceClaims:          []corev1.PodResourceClaim{coretest.PodResourceClaimReference("gpu", claim.Name)},
				ContainerResourceClaims: []corev1.ResourceClaim{{Name: "gpu"}},
			}), pod(coretest.PodOptions{ResourceRequirements: requests("1", "1Gi")})
			core.provision(claiming, other)
			expectations.ExpectNotScheduled(ctx, env.Client, claiming)
			expectations.ExpectScheduled(ctx, env.Client, other)
			Expect(env.Servers()).To(HaveLen(1))
		})
	})
	Context("with GPUs", func() {
		gpus := func(n string) corev1.ResourceRequirements {
			return corev1.ResourceRequirements{Requests: list("cpu", "1", string(v1alpha1.ResourceNVIDIAGPU), n), Limits: list(string(v1alpha1.ResourceNVIDIAGPU), n)}
		}
		It("should get as many as they ask for, and no more", func() {
			applied(unit.NodePool())
			one, two, three := pod(coretest.PodOptions{ResourceRequirements: gpus("1")}), pod(coretest.PodOptions{ResourceRequirements: gpus("2")}),
				pod(coretest.PodOptions{ResourceRequirements: gpus("3")})
			core.provision(one, two, three)
			expectations.ExpectNotScheduled(ctx, env.Client, three)
			total := lo.SumBy(env.Servers(), func(s cloud.Server) int { return s.Truth.Flavor.GPU.Count })
			// Both fit on one server of two only one after the other.
			Expect(total).To(Equal(3))
			Expect(nodeOf(two).Labels).To(HaveKeyWithValue(v1alpha1.LabelInstanceGPUCount, "2"))
			Expect(nodeOf(one).Labels).To(HaveKeyWithValue(v1alpha1.LabelInstanceGPUName, "NVIDIA-A30"))
		})
		It("should be asked for by model", func() {
			applied(unit.NodePool())
			known := pod(coretest.PodOptions{NodeSelector: map[string]string{v1alpha1.LabelInstanceGPUName: "NVIDIA-A30"}})
			unknown := pod(coretest.PodOptions{NodeSelector: map[string]string{v1alpha1.LabelInstanceGPUName: "NVIDIA-H200"}})
			core.provision(known, unknown)
			Expect(serverOf(known).Truth.Flavor.GPU).ToNot(BeNil())
			expectations.ExpectNotScheduled(ctx, env.Client, unknown)
		})
		It("should leave servers with GPUs alone when they need none", func() {
			applied(unit.NodePool())
			plain := pods(3, coretest.PodOptions{ResourceRequirements: requests("6", "20Gi")})
			core.provision(plain...)
			for _, p := range plain {
				Expect(serverOf(p).Truth.Flavor.GPU).To(BeNil())
			}
		})
	})
	Context("that choose by label", func() {
		DescribeTable("should get what they ask for", func(key string, operator corev1.NodeSelectorOperator, values []string, matches func(cloud.Server) bool) {
			applied(unit.NodePool())
			choosy := pod(coretest.PodOptions{
				ResourceRequirements: requests("100m", "64Mi"),
				NodeRequirements:     []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}},
			})
			core.provision(choosy)
			Expect(matches(serverOf(choosy))).To(BeTrue(), "got %s", serverOf(choosy).Flavor.Name)
		},
			Entry("a category", v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, []string{"enterprise"},
				func(s cloud.Server) bool { return s.Truth.Flavor.Category == "enterprise" }),
			Entry("any category but two", v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpNotIn, []string{"basic", "premium"}, func(s cloud.Server) bool {
				return s.Truth.Flavor.Category != "basic" && s.Truth.Flavor.Category != "premium"
			}),
			Entry("a vendor", v1alpha1.LabelInstanceCPUManufacturer, corev1.NodeSelectorOpIn, []string{"amd"},
				func(s cloud.Server) bool { return s.Truth.Flavor.Generation.Vendor == "AMD" }),
			Entry("a generation", v1alpha1.LabelInstanceGeneration, corev1.NodeSelectorOpIn, []string{"2"},
				func(s cloud.Server) bool { return s.Truth.Flavor.Generation.Vendor == "Intel" }),
			Entry("more vCPUs", v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpGt, []string{"15"}, func(s cloud.Server) bool { return s.Flavor.VCPUs >= 16 }),
			Entry("less memory", v1alpha1.LabelInstanceMemory, corev1.NodeSelectorOpLt, []string{"2049"}, func(s cloud.Server) bool { return s.Flavor.RAM <= 2048 }),
			Entry("a zone", corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, []string{"HN2"}, func(s cloud.Server) bool { return s.AvailabilityZone == "HN2" }),
			Entry("the region, as the cloud controller manager writes it", corev1.LabelTopologyRegion, corev1.NodeSelectorOpIn, []string{"HN"},
				func(cloud.Server) bool { return true }),
			Entry("the zone key of the block storage driver", v1alpha1.LabelCSIBlockZone, corev1.NodeSelectorOpIn, []string{"HN2"},
				func(s cloud.Server) bool { return s.AvailabilityZone == "HN2" }),
			Entry("the zone key of the file storage driver", v1alpha1.LabelCSIFileZone, corev1.NodeSelectorOpIn, []string{"HN2"},
				func(s cloud.Server) bool { return s.AvailabilityZone == "HN2" }),
		)
		It("should wait for an architecture that no flavor has", func() {
			applied(unit.NodePool())
			arm := pod(coretest.PodOptions{NodeSelector: map[string]string{corev1.LabelArchStable: karpv1.ArchitectureArm64}})
			core.provision(arm)
			expectations.ExpectNotScheduled(ctx, env.Client, arm)
			Expect(env.Servers()).To(BeEmpty())
		})
		It("should get what they only prefer when it is there, and anything otherwise", func() {
			applied(unit.NodePool())
			prefers := func(category string) *corev1.Pod {
				return pod(coretest.PodOptions{NodePreferences: []corev1.NodeSelectorRequirement{
					{Key: v1alpha1.LabelInstanceCategory, Operator: corev1.NodeSelectorOpIn, Values: []string{category}},
				}})
			}
			possible, impossible := prefers("dedicated"), prefers("celestial")
			core.provision(possible, impossible)
			Expect(serverOf(possible).Truth.Flavor.Category).To(Equal("dedicated"))
			expectations.ExpectScheduled(ctx, env.Client, impossible)
		})
	})
	Context("that look at each other", func() {
		It("should spread over zones and nodes", func() {
			applied(unit.NodePool())
			spread := pods(4, coretest.PodOptions{
				ObjectMeta: labelled("spread"), ResourceRequirements: requests("500m", "256Mi"),
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
					{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects("spread")},
					{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects("spread")},
				},
			})
			core.provision(spread...)
			zones := lo.CountValuesBy(spread, func(p *corev1.Pod) string { return serverOf(p).AvailabilityZone })
			Expect(zones).To(Equal(map[string]int{"HN1": 2, "HN2": 2}))
			Expect(env.Servers()).To(HaveLen(4))
		})
		It("should not spread into a zone that the NodeClass leaves out", func() {
			narrow := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: unit.NodeClassName}}
			Expect(env.Client.Delete(ctx, narrow)).To(Succeed())
			_, err := env.NodeClass(ctx, func(n *v1alpha1.BizflyNodeClass) { n.Spec.Zones = []string{"HN2"} })
			Expect(err).ToNot(HaveOccurred())
			applied(unit.NodePool())
			spread := pods(3, coretest.PodOptions{
				ObjectMeta: labelled("spread"),
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
					{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects("spread")},
				},
			})
			core.provision(spread...)
			for _, p := range spread {
				Expect(serverOf(p).AvailabilityZone).To(Equal("HN2"))
			}
		})
		It("should each have a server when they cannot stand each other", func() {
			applied(unit.NodePool())
			hostile := pods(3, coretest.PodOptions{
				ObjectMeta: labelled("hostile"), ResourceRequirements: requests("100m", "64Mi"),
				PodAntiRequirements: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: selects("hostile")}},
			})
			core.provision(hostile...)
			expectations.ExpectPodsScheduled(ctx, env.Client, hostile...)
			Expect(env.Servers()).To(HaveLen(3))
		})
		It("should follow each other into a zone", func() {
			applied(unit.NodePool())
			leader := pod(coretest.PodOptions{ObjectMeta: labelled("leader"), NodeSelector: map[string]string{corev1.LabelTopologyZone: "HN2"},
				ResourceRequirements: requests("3", "6Gi")})
			followers := pods(3, coretest.PodOptions{
				ResourceRequirements: requests("3", "6Gi"),
				PodRequirements:      []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelTopologyZone, LabelSelector: selects("leader")}},
			})
			core.provision(append(followers, leader)...)
			// Where the leader runs is certain only once it does.
			core.provision(lo.Filter(followers, func(p *corev1.Pod, _ int) bool {
				return expectations.ExpectPodExists(ctx, env.Client, p.Name, p.Namespace).Spec.NodeName == ""
			})...)
			for _, p := range followers {
				Expect(serverOf(p).AvailabilityZone).To(Equal("HN2"))
			}
		})
		It("should not share a port of a node", func() {
			applied(unit.NodePool())
			web := pods(2, coretest.PodOptions{HostPorts: []int32{443}})
			core.provision(web...)
			expectations.ExpectPodsScheduled(ctx, env.Client, web...)
			Expect(env.Servers()).To(HaveLen(2))
		})
	})
	Context("with volumes", func() {
		DescribeTable("should run in the zone of a volume that exists, by the key of the driver", func(driver, key string) {
			applied(unit.NodePool())
			volume := coretest.PersistentVolume(coretest.PersistentVolumeOptions{Driver: driver, NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"HN2"}}},
			}}})
			claim := coretest.PersistentVolumeClaim(coretest.PersistentVolumeClaimOptions{VolumeName: volume.Name})
			expectations.ExpectApplied(ctx, env.Client, volume, claim)
			stateful := pod(coretest.PodOptions{PersistentVolumeClaims: []string{claim.Name}})
			core.provision(stateful)
			Expect(serverOf(stateful).AvailabilityZone).To(Equal("HN2"))
		},
			Entry("block", "volume.csi.bizflycloud.vn", v1alpha1.LabelCSIBlockZone),
			Entry("file", "fs.csi.bizflycloud.vn", v1alpha1.LabelCSIFileZone),
		)
		It("should get another server when they have more volumes than the driver attaches to one", func() {
			pool := applied(unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.8c_16g")))
			Expect(typesOf(env.CloudProvider, pool)["p2.8c_16g"].VolumeAttachmentLimits).To(Equal(map[string]int{v1alpha1.CSIBlockDriver: 20}))
			class := coretest.StorageClass(coretest.StorageClassOptions{
				Provisioner: lo.ToPtr(v1alpha1.CSIBlockDriver), VolumeBindingMode: lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer),
			})
			expectations.ExpectApplied(ctx, env.Client, class)
			stateful := lo.Times(21, func(int) *corev1.Pod {
				claim := coretest.PersistentVolumeClaim(coretest.PersistentVolumeClaimOptions{StorageClassName: &class.Name})
				expectations.ExpectApplied(ctx, env.Client, claim)
				return pod(coretest.PodOptions{PersistentVolumeClaims: []string{claim.Name}, ResourceRequirements: requests("10m", "16Mi")})
			})
			core.provision(stateful...)
			expectations.ExpectPodsScheduled(ctx, env.Client, stateful...)
			Expect(env.Servers()).To(HaveLen(2))
		})
		It("should run where a volume of theirs may be made", func() {
			applied(unit.NodePool())
			class := coretest.StorageClass(coretest.StorageClassOptions{
				Provisioner: lo.ToPtr("volume.csi.bizflycloud.vn"), VolumeBindingMode: lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer),
				AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
					{Key: v1alpha1.LabelCSIBlockZone, Values: []string{"HN2"}},
				}}},
			})
			claim := coretest.PersistentVolumeClaim(coretest.PersistentVolumeClaimOptions{StorageClassName: &class.Name})
			expectations.ExpectApplied(ctx, env.Client, class, claim)
			stateful := pod(coretest.PodOptions{PersistentVolumeClaims: []string{claim.Name}})
			core.provision(stateful)
			Expect(serverOf(stateful).AvailabilityZone).To(Equal("HN2"))
		})
	})
	Context("and taints", func() {
		It("should come to a node whose startup taint another component removes later", func() {
			taint := corev1.Taint{Key: "node.cilium.io/agent-not-ready", Value: "true", Effect: corev1.TaintEffectNoExecute}
			pool := unit.NodePool()
			pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{taint}
			applied(pool)
			patient := pod(coretest.PodOptions{})
			core.provision(patient)
			Expect(nodeOf(patient).Spec.Taints).To(ContainElement(taint))
		})
		It("should come to a tainted node only when they tolerate it", func() {
			pool := unit.NodePool()
			pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
			applied(pool)
			intolerant, tolerant := pod(coretest.PodOptions{}), pod(coretest.PodOptions{Tolerations: []corev1.Toleration{{Key: "team",
				Operator: corev1.TolerationOpExists}}})
			core.provision(intolerant, tolerant)
			expectations.ExpectNotScheduled(ctx, env.Client, intolerant)
			expectations.ExpectScheduled(ctx, env.Client, tolerant)
		})
	})
	It("should go to the NodePool of the greater weight, else to one that can run them", func() {
		preferred := unit.NodePool(unit.Requirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "enterprise"))
		preferred.Spec.Weight = lo.ToPtr(int32(50))
		applied(preferred)
		other := applied(unit.NodePool())
		plain := pod(coretest.PodOptions{ResourceRequirements: requests("100m", "64Mi")})
		basic := pod(coretest.PodOptions{NodeSelector: map[string]string{v1alpha1.LabelInstanceCategory: "basic"}})
		core.provision(plain, basic)
		Expect(nodeOf(plain).Labels).To(HaveKeyWithValue(karpv1.NodePoolLabelKey, preferred.Name))
		Expect(nodeOf(basic).Labels).To(HaveKeyWithValue(karpv1.NodePoolLabelKey, other.Name))
	})
	It("should all find a place when they are many and different, without overloading any node", func() {
		applied(unit.NodePool())
		var all []*corev1.Pod
		for i, size := range slices.Repeat([][2]string{{"100m", "128Mi"}, {"500m", "1Gi"}, {"2", "1Gi"}, {"250m", "6Gi"}, {"3", "12Gi"}, {"7", "3Gi"}}, 4) {
			options := coretest.PodOptions{ResourceRequirements: requests(size[0], size[1]), ObjectMeta: labelled(fmt.Sprint("app-", i%4))}
			switch i % 5 {
			case 1:
				options.NodeSelector = map[string]string{corev1.LabelTopologyZone: "HN2"}
			case 2:
				options.NodeSelector = map[string]string{v1alpha1.LabelInstanceCategory: "premium"}
			case 3:
				options.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selects(fmt.Sprint("app-", i%4)),
				}}
			}
			all = append(all, pod(options))
		}
		core.provision(all...)
		expectations.ExpectPodsScheduled(ctx, env.Client, all...)
		onNode := lo.GroupBy(all, func(p *corev1.Pod) string { return nodeOf(p).Name })
		nodes := lo.KeyBy(expectations.ExpectNodes(ctx, env.Client), func(n *corev1.Node) string { return n.Name })
		for name, here := range onNode {
			Expect(resources.Fits(resources.RequestsForPods(here...), nodes[name].Status.Allocatable)).To(BeTrue(), name)
		}
		Expect(slices.Collect(maps.Keys(onNode))).To(HaveLen(len(env.Servers())), "a server without pods was launched")
		paid := lo.SumBy(env.Servers(), func(s cloud.Server) int { return s.Flavor.VCPUs })
		asked := lo.SumBy(all, func(p *corev1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() })
		Expect(int64(paid*1000)).To(BeNumerically("<", 2*asked), "more than half of what is paid for lies idle")
	})
})

func daemonSet(resources corev1.ResourceRequirements) *appsv1.DaemonSet {
	return coretest.DaemonSet(coretest.DaemonSetOptions{PodOptions: coretest.PodOptions{ResourceRequirements: resources}})
}
