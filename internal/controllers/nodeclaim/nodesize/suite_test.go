// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodesize_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/nodesize"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestNodeSize(t *testing.T) { suite.Run(t, "NodeClaim/NodeSize") }

var _ = unit.Suite(ctx, &env, unit.WithNodeClass)

var _ = Describe("Learning the size of nodes", func() {
	var claim *karpv1.NodeClaim
	BeforeEach(func() { claim = lo.Must(env.Launched(ctx)) })
	nodeClass := func() *v1alpha1.BizflyNodeClass {
		GinkgoHelper()
		live := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, live)).To(Succeed())
		return live
	}
	// registered gives the claim a node that reports the memory, and reconciles it.
	registered := func(claim *karpv1.NodeClaim, memoryReported string) {
		GinkgoHelper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}}
		Expect(client.IgnoreAlreadyExists(env.Client.Create(ctx, node))).To(Succeed())
		node.Status.Capacity, node.Status.Allocatable = claim.Status.Capacity.DeepCopy(), claim.Status.Allocatable.DeepCopy()
		node.Status.Capacity[corev1.ResourceMemory] = resource.MustParse(memoryReported)
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
		claim.Status.NodeName = node.Name
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
	}
	reconciled := func(claim *karpv1.NodeClaim) {
		GinkgoHelper()
		Expect(nodesize.NewController(env.APIReader, env.Flavors, env.Recorder).Reconcile(ctx, claim)).To(BeZero())
	}
	// promised is the memory in MiB that the flavor of the claim promises now.
	promised := func() int64 {
		GinkgoHelper()
		types := lo.Must(env.Flavors.List(ctx, nodeClass()))
		for _, it := range types {
			if it.Name == claim.Labels[corev1.LabelInstanceTypeStable] {
				quantity := it.Capacity[corev1.ResourceMemory]
				return quantity.Value() >> 20
			}
		}
		return 0
	}
	advertised := func() string {
		GinkgoHelper()
		Expect(claim.Labels).To(HaveKey(v1alpha1.LabelInstanceMemory))
		return claim.Labels[v1alpha1.LabelInstanceMemory] + "Mi"
	}

	It("should promise what a registered node reports", func() {
		all := resource.MustParse(advertised())
		less := resource.NewQuantity(all.Value()/100*97, resource.BinarySI)
		Expect(promised()).To(BeNumerically("<", less.Value()>>20))
		registered(claim, less.String())
		reconciled(claim)
		Expect(promised()).To(Equal(less.Value() >> 20))
	})
	It("should learn it again from the nodes that exist after a restart", func() {
		registered(claim, advertised())
		reconciled(claim)
		known := promised()
		env.Restart(ctx)
		Expect(promised()).To(BeNumerically("<", known))
		reconciled(claim)
		Expect(promised()).To(Equal(known))
	})
	It("should not learn from an image that new servers are not made from", func() {
		registered(claim, advertised())
		before := promised()
		claim.Status.ImageID = "00000000-0000-4000-8000-00000000dead"
		reconciled(claim)
		Expect(promised()).To(Equal(before))
	})
	It("should not learn from a node of an earlier spec", func() {
		registered(claim, advertised())
		before := promised()
		claim.Annotations[v1alpha1.AnnotationNodeClassHash] = "earlier"
		reconciled(claim)
		Expect(promised()).To(Equal(before))
	})
	It("should not learn for a spec whose hash is not written yet", func() {
		registered(claim, advertised())
		changed := nodeClass()
		changed.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("100Gi"))}
		Expect(env.Client.Update(ctx, changed)).To(Succeed())
		before := promised()
		reconciled(claim)
		Expect(promised()).To(Equal(before))
	})
	It("should not learn before the node has registered", func() {
		before := promised()
		reconciled(claim)
		Expect(promised()).To(Equal(before))
	})
	It("should believe a node that lost most of its memory down to the floor, and say so once", func() {
		before := promised()
		registered(claim, "100Mi")
		reconciled(claim)
		reconciled(claim)
		Expect(promised()).To(Equal(before * 60 / 100))
		Expect(env.Recorder.Calls("NodeSmallerThanPlanned")).To(Equal(1))
	})
	It("should keep a delisted flavor listed that a NodeClaim without labels runs on", func() {
		name := claim.Labels[corev1.LabelInstanceTypeStable]
		delete(claim.Labels, corev1.LabelInstanceTypeStable)
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		listed := func() bool {
			types := lo.Must(env.Flavors.List(ctx, nodeClass()))
			return lo.ContainsBy(types, func(it *cloudprovider.InstanceType) bool { return it.Name == name })
		}
		env.Sandbox.Edit(func(c *cloud.Catalog) {
			for region := range c.Flavors {
				c.Flavors[region] = lo.Reject(c.Flavors[region], func(f cloud.Flavor, _ int) bool { return f.Name == name })
			}
		})
		Expect(env.Catalog.Refresh(ctx)).To(Succeed())
		Eventually(listed).Should(BeFalse())
		claim.Labels[corev1.LabelInstanceTypeStable] = name
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		Eventually(func() bool {
			reconciled(claim)
			return listed()
		}).Should(BeTrue())
	})
	It("should do nothing without the NodeClass or the node", func() {
		registered(claim, advertised())
		before := promised()
		orphan := claim.DeepCopy()
		orphan.Spec.NodeClassRef.Name = "gone"
		reconciled(orphan)
		nodeless := claim.DeepCopy()
		nodeless.Status.NodeName = "gone"
		reconciled(nodeless)
		Expect(promised()).To(Equal(before))
	})
})
