// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("A configuration that changes", func() {
	const name = "p2.2c_4g"
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass

	BeforeEach(func() {
		r = newRoom(newHandmade(newFlavor(name), newFlavor("p2.4c_8g")), env.Client)
		nodeClass = newNodeClass("HN1", "HN2")
	})
	hide := func(names ...string) { r.tune(func(o *options.Options) { o.HiddenFlavors = names }) }

	It("should be applied by the next List", func(ctx context.Context) {
		first := r.list(ctx, nodeClass)[name]
		r.tune(func(o *options.Options) { o.MemoryOverheadPercent = 0.25 })
		second := r.list(ctx, nodeClass)[name]
		Expect(second.Capacity.Memory().Value()).To(BeEquivalentTo(3072 << 20))
		Expect(first.Capacity.Memory().Value()).To(BeNumerically(">", 3072<<20), "what was returned is never edited")
	})
	It("should leave a hidden flavor out until it is shown again", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)
		hide(name)
		after := r.list(ctx, nodeClass)
		Expect(after).NotTo(HaveKey(name))
		Expect(after["p2.4c_8g"]).To(Equal(before["p2.4c_8g"]), "another flavor has changed")
		hide()
		Expect(r.list(ctx, nodeClass)[name].Offerings.Available()).To(HaveLen(2))
	})
	It("should close a zone until it is opened again, and keep what is listed and its price", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)[name]
		r.tune(func(o *options.Options) { o.ClosedZones = []string{"HN1", "elsewhere"} })
		closed := r.list(ctx, nodeClass)[name]
		Expect(closed.Offerings).To(HaveLen(2))
		Expect(closed.Requirements.Get(corev1.LabelTopologyZone).Values()).To(ConsistOf("HN1", "HN2"))
		Expect(closed.Offerings.Available()).To(HaveExactElements(HaveField("Zone()", "HN2")))
		Expect(closed.Offerings[0].Price).To(Equal(before.Offerings[0].Price))
		r.tune(func(o *options.Options) { o.ClosedZones = nil })
		Expect(r.list(ctx, nodeClass)[name].Offerings.Available()).To(HaveLen(2))
	})
	It("should keep a hidden flavor that a claim runs on, unavailable and at its price", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(env.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{}))).To(Succeed())
		})
		before := r.list(ctx, nodeClass)[name]
		Expect(env.Client.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelInstanceTypeStable: name, corev1.LabelTopologyZone: "HN2"}},
			Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClass.Name}},
		}))).To(Succeed())
		hide(name)
		after := r.list(ctx, nodeClass)[name]
		Expect(after).NotTo(BeNil(), "core replaces nodes whose type has vanished")
		Expect(after.Offerings.Available()).To(BeEmpty())
		price, ok := after.OfferingPrice("HN2", karpv1.CapacityTypeOnDemand)
		Expect(ok).To(BeTrue())
		Expect(price).To(Equal(before.Offerings[1].Price))
		Expect(after.Capacity).To(Equal(before.Capacity))
		_, known := r.Category(name)
		Expect(known).To(BeTrue())
	})
	It("should go on with a name that the cloud does not list", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)
		hide("elsewhere")
		Expect(r.list(ctx, nodeClass)).To(HaveLen(len(before)))
	})
})
