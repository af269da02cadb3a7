// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	coremetrics "sigs.k8s.io/karpenter/pkg/metrics"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// sample reads a file of config/samples/gpu as kubectl would.
func sample[T any](file string) *T {
	GinkgoHelper()
	content := lo.Must(os.ReadFile(filepath.Join("..", "..", "..", "config", "samples", "gpu", file)))
	object := new(T)
	Expect(yaml.UnmarshalStrict(content, object)).To(Succeed())
	return object
}

var _ = Describe("Servers with GPUs", func() {
	var tc *testCluster
	BeforeEach(func() { tc = newTestCluster(0.04) })

	// report is a device plugin that reports so many GPUs; none is a node on which it does not run yet.
	report := func(name string, gpus int64) {
		GinkgoHelper()
		node := &corev1.Node{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
			list[v1alpha1.ResourceNVIDIAGPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
		}
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
	}
	step := func(name string) *karpv1.NodeClaim {
		GinkgoHelper()
		claim := &karpv1.NodeClaim{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		Expect(tc.lifecycle.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		Expect(tc.guests.Sync(ctx)).To(Succeed())
		Expect(removeNotReadyTaints()).To(Succeed())
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		return claim
	}

	It("should come from zero for the sample, wait for its device plugin, and go to zero again", func() {
		nodeClass := sample[v1alpha1.BizflyNodeClass]("nodeclass.yaml")
		Expect(env.Client.Create(ctx, nodeClass)).To(Succeed())
		Expect(env.Resolve(ctx, nodeClass)).To(Succeed())
		pool := ready(sample[karpv1.NodePool]("nodepool.yaml"))
		plugin := sample[appsv1.DaemonSet]("device-plugin.yaml")
		expectations.ExpectApplied(ctx, env.Client, plugin)
		job := sample[batchv1.Job]("workload.yaml")
		Expect(env.Client.Create(ctx, job, client.DryRunAll)).To(Succeed())
		work := coretest.UnschedulablePod(coretest.PodOptions{
			ResourceRequirements: job.Spec.Template.Spec.Containers[0].Resources, Tolerations: job.Spec.Template.Spec.Tolerations,
		})
		Expect(env.Servers()).To(BeEmpty())

		expectations.ExpectApplied(ctx, env.Client, work)
		results := lo.Must(tc.provisioner.Schedule(ctx))
		names, err := tc.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims, provisioning.WithReason(coremetrics.ProvisionedReason))
		Expect(err).ToNot(HaveOccurred())
		Expect(names).To(HaveLen(1))
		var claim *karpv1.NodeClaim
		Eventually(func(g Gomega) {
			claim = step(names[0])
			g.Expect(claim.Status.ProviderID).ToNot(BeEmpty())
			g.Expect(expectations.ExpectNodes(ctx, env.Client)).To(HaveLen(1))
		}).Should(Succeed())
		Expect(claim.Labels).To(And(HaveKeyWithValue(v1alpha1.LabelInstanceGPUName, "NVIDIA-A30"), HaveKeyWithValue(v1alpha1.LabelInstanceGPUCount, "1")))
		gpus := claim.Status.Capacity[v1alpha1.ResourceNVIDIAGPU]
		Expect(gpus.Value()).To(BeEquivalentTo(1))
		Expect(env.Servers()).To(HaveExactElements(HaveField("Truth.RootDiskGiB", 100)))
		node := expectations.ExpectNodes(ctx, env.Client)[0]

		report(node.Name, 0)
		Eventually(func(g Gomega) {
			claim = step(names[0])
			report(node.Name, 0)
			g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()).To(BeTrue())
			initialized := claim.StatusConditions().Get(karpv1.ConditionTypeInitialized)
			g.Expect(initialized.IsUnknown()).To(BeTrue())
			g.Expect(initialized.Reason).To(Equal("ResourceNotRegistered"))
			g.Expect(initialized.Message).To(ContainSubstring("nvidia.com/gpu"))
		}).Should(Succeed())
		report(node.Name, 1)
		Eventually(func() bool {
			return step(names[0]).StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
		}).Should(BeTrue())

		tc.forget()
		Expect(tc.bind([]*corev1.Pod{work})).To(BeEmpty())
		expectations.ExpectDeleted(ctx, env.Client, work)
		tc.cluster.DeletePod(client.ObjectKeyFromObject(work))
		given := 0
		for range 12 {
			if given += tc.disrupted(); given > 0 {
				break
			}
		}
		Expect(given).To(Equal(1), "an empty server ends after %s", lo.FromPtr(pool.Spec.Disruption.ConsolidateAfter.Duration))
		Eventually(env.Servers).Should(BeEmpty())
		expectations.ExpectDeleted(ctx, env.Client, plugin)
	})
	It("should be launched with as many GPUs of the model that a pod selects", func() {
		applied(unit.NodePool())
		limits := corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("2")}
		named := coretest.UnschedulablePod(coretest.PodOptions{
			ResourceRequirements: corev1.ResourceRequirements{Requests: limits, Limits: limits},
			NodeSelector:         map[string]string{v1alpha1.LabelInstanceGPUName: "NVIDIA-A30"},
		})
		tc.provision(named)
		Expect(nodeOf(named).Labels).To(And(
			HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p2.16c_64g_2xa30"), HaveKeyWithValue(v1alpha1.LabelInstanceGPUCount, "2")))
		Expect(serverOf(named).Flavor.Name).To(Equal("p2.16c_64g_2xa30"))
	})
	It("should be limited by the NodePool in GPUs", func() {
		pool := unit.NodePool()
		pool.Spec.Limits = karpv1.Limits{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}
		applied(pool)
		limits := corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("2")}
		greedy := coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: corev1.ResourceRequirements{Requests: limits, Limits: limits}})
		tc.provision(greedy)
		expectations.ExpectNotScheduled(ctx, env.Client, greedy)
		Expect(env.Servers()).To(BeEmpty())
	})
})
