// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/cost"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// unread is a catalog that was not read yet.
type unread struct{ catalog.Provider }

func (unread) Snapshot() (*catalog.Snapshot, error) { return nil, catalog.ErrNotReady }

var _ = Describe("Cost per hour", func() {
	var controller *cost.Controller
	var pool *karpv1.NodePool
	BeforeEach(func() {
		controller = cost.NewController(env.APIReader, env.CloudProvider)
		pool = unit.NodePool()
		expectations.ExpectApplied(ctx, env.Client, pool)
	})
	launched := func(requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
		GinkgoHelper()
		claim, err := env.NodeClaim(ctx, pool, requirements...)
		Expect(err).ToNot(HaveOccurred())
		stored, err := env.Launch(ctx, claim)
		Expect(err).ToNot(HaveOccurred())
		return stored
	}
	priceOf := func(claim *karpv1.NodeClaim) float64 {
		GinkgoHelper()
		types, err := env.CloudProvider.GetInstanceTypes(ctx, pool)
		Expect(err).ToNot(HaveOccurred())
		for _, it := range types {
			for _, offering := range it.Offerings {
				if it.Name == claim.Labels[corev1.LabelInstanceTypeStable] && offering.Zone() == claim.Labels[corev1.LabelTopologyZone] {
					return offering.Price
				}
			}
		}
		return 0
	}
	// reported is the cost of the pool in the zone, and whether there is a series at all.
	reported := func(zone string) (float64, bool) {
		metric, found := expectations.FindMetricWithLabelValues("karpenter_bizfly_cost_vnd_per_hour", map[string]string{
			"nodepool": pool.Name, "zone": zone, "billing_plan": "on_demand",
		})
		return metric.GetGauge().GetValue(), found
	}
	reckoned := func() {
		GinkgoHelper()
		Expect(controller.Reconcile(ctx)).To(HaveField("RequeueAfter", ttl.Cost))
	}
	in := func(zone string) karpv1.NodeSelectorRequirementWithMinValues {
		return unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone)
	}

	It("should sum the prices of the claims by NodePool and zone", func() {
		a, b, c := launched(in("HN1")), launched(in("HN1"), unit.Requirement(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpIn, "8")), launched(in("HN2"))
		reckoned()
		first, _ := reported("HN1")
		Expect(first).To(BeNumerically("~", priceOf(a)+priceOf(b), 0.01))
		second, _ := reported("HN2")
		Expect(second).To(BeNumerically("~", priceOf(c), 0.01))
		Expect(priceOf(a)).To(BeNumerically(">", 0))
		Expect(priceOf(b)).To(BeNumerically(">", priceOf(a)))
	})
	It("should count a stopped server at a fifth of its CPU and memory, and its disk in full", func() {
		claim := launched(in("HN1"), unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
		node := coretest.Node(coretest.NodeOptions{ProviderID: claim.Status.ProviderID})
		expectations.ExpectApplied(ctx, env.Client, node)
		claim.Status.NodeName = node.Name
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		const disk = 40 * 5.0
		reckoned()
		running, _ := reported("HN1")
		Expect(running).To(BeNumerically("~", 2*412.5+4*137.5+disk, 0.01))
		condition := func(reason string) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.ConditionTypeServerRunning, Status: corev1.ConditionFalse, Reason: reason}}
			Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
			reckoned()
		}
		condition(v1alpha1.ReasonServerStopped)
		stopped, _ := reported("HN1")
		Expect(stopped).To(BeNumerically("~", (2*412.5+4*137.5)/1.5*0.3+disk, 0.01))
		condition(v1alpha1.ReasonServerFailed)
		failed, _ := reported("HN1")
		Expect(failed).To(Equal(running), "only what is stopped is documented to cost less")
	})
	It("should count what a server was delivered with, whatever its NodeClass has become", func() {
		claim := launched(in("HN1"), unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
		claim.Annotations[v1alpha1.AnnotationDelivered] = `{"billingPlan":"on_demand","disks":{"root":{"gib":40,"type":"SSD"}}}`
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		reckoned()
		before, _ := reported("HN1")
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass)).To(Succeed())
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("400Gi"))}
		nodeClass.Spec.BillingPlan = v1alpha1.BillingPlanSavingPlan
		Expect(env.Client.Update(ctx, nodeClass)).To(Succeed())
		reckoned()
		after, found := reported("HN1")
		Expect(found).To(BeTrue())
		Expect(after).To(BeNumerically("~", before, 0.01))

		By("counting what its NodeClass says where the record lacks a data disk")
		claim.Annotations[v1alpha1.AnnotationDelivered] = `{"billingPlan":"on_demand","disks":{"root":{"gib":40,"type":"SSD"}},"dataDisks":1}`
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		reckoned()
		expected := priceOf(claim)
		Expect(expected).To(BeNumerically(">", 0))
		metric, _ := expectations.FindMetricWithLabelValues("karpenter_bizfly_cost_vnd_per_hour", map[string]string{
			"nodepool": pool.Name, "zone": "HN1", "billing_plan": "saving_plan",
		})
		Expect(metric.GetGauge().GetValue()).To(BeNumerically("~", expected, 0.01))
	})
	It("should end the series of what costs nothing any more", func() {
		claim := launched(in("HN1"))
		reckoned()
		_, found := reported("HN1")
		Expect(found).To(BeTrue())
		expectations.ExpectFinalizersRemoved(ctx, env.Client, claim)
		expectations.ExpectDeleted(ctx, env.Client, claim)
		reckoned()
		_, found = reported("HN1")
		Expect(found).To(BeFalse())
	})
	It("should not count a claim that has no server", func() {
		_, err := env.NodeClaim(ctx, pool, in("HN1"))
		Expect(err).ToNot(HaveOccurred())
		reckoned()
		_, found := reported("HN1")
		Expect(found).To(BeFalse())
	})
	It("should be added up again soon where instance types are unknown, with claims not priced", func() {
		launched(in("HN1"))
		config := env.CloudProviderConfig
		config.Flavors = flavor.NewDefaultProvider(unread{}, env.Capacity, env.Bootstrap, env.Client, env.Settings)
		controller = cost.NewController(env.APIReader, cloudprovider.New(config))
		reckoned()
		metric, _ := expectations.FindMetricWithLabelValues("karpenter_bizfly_unpriced_nodeclaims", nil)
		Expect(metric.GetGauge().GetValue()).To(BeEquivalentTo(1))
	})
	It("should count the claims that it cannot price", func() {
		claim := launched(in("HN1"))
		claim.Labels[corev1.LabelInstanceTypeStable] = "unheard-of"
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		reckoned()
		_, found := reported("HN1")
		Expect(found).To(BeFalse())
		metric, found := expectations.FindMetricWithLabelValues("karpenter_bizfly_unpriced_nodeclaims", nil)
		Expect(found).To(BeTrue())
		Expect(metric.GetGauge().GetValue()).To(BeEquivalentTo(1))
	})
})
