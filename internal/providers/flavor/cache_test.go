// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The answers that are kept", func() {
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass

	BeforeEach(func() {
		source = newHandmade(manyFlavors(30)...)
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2", "HN3")
	})
	get := func(ctx context.Context) []*cloudprovider.InstanceType {
		GinkgoHelper()
		return lo.Must(r.List(ctx, nodeClass))
	}

	It("should be the same slice without allocation while nothing changes", func(ctx context.Context) {
		first := get(ctx)
		Expect(&get(ctx)[0]).To(BeIdenticalTo(&first[0]))
		r.marks.MarkUnavailable(ctx, capacity.Offering{Zone: "HN3"}, capacity.ReasonInsufficientCapacity, time.Hour)
		get(ctx)
		Expect(testing.AllocsPerRun(100, func() {
			if _, err := r.List(ctx, nodeClass); err != nil {
				panic(err)
			}
		})).To(BeZero())
	})
	DescribeTable("should be made anew when",
		func(ctx context.Context, change func()) {
			first := get(ctx)
			change()
			Expect(&get(ctx)[0]).NotTo(BeIdenticalTo(&first[0]))
		},
		Entry("the NodeClass's spec changes", func() { nodeClass.Generation++ }),
		Entry("its zones change", func() { nodeClass.Status.Zones = []string{"HN1", "HN2"} }),
		Entry("it is another of the same name", func() { nodeClass = newNodeClass("HN1", "HN2", "HN3") }),
		Entry("the catalog changes", func() { source.change(func(*catalog.Snapshot) {}) }),
		Entry("prices change", func() {
			table := lo.Must(pricing.ParseTable(lo.Must(os.ReadFile("../../pricing/table.yaml"))))
			r.tune(func(o *options.Options) { o.Prices = table })
		}),
		Entry("a mark begins", func() {
			r.marks.MarkUnavailable(context.Background(), capacity.Offering{Flavor: "none"}, capacity.ReasonLaunchFailed, time.Minute)
		}),
	)
	It("should show a mark at once and its end in time, and on its types alone", func(ctx context.Context) {
		before := get(ctx)
		marked := before[7]
		r.marks.MarkUnavailable(ctx, capacity.Offering{Flavor: marked.Name, Zone: "HN2", BillingPlan: "on_demand"}, capacity.ReasonInsufficientCapacity, time.Minute)
		during := get(ctx)
		for i, it := range during {
			if i != 7 {
				Expect(it.Offerings).To(Equal(before[i].Offerings))
			}
		}
		Expect(during[7]).NotTo(BeIdenticalTo(marked))
		Expect(lo.Map(during[7].Offerings, func(o *cloudprovider.Offering, _ int) bool { return o.Available })).To(Equal([]bool{true, false, true}))
		Expect(lo.Map(marked.Offerings, func(o *cloudprovider.Offering, _ int) bool { return o.Available })).To(HaveEach(true), "what was returned is never edited")
		Expect(during[7].Offerings[1].Price).To(Equal(marked.Offerings[1].Price))
		Expect(during[7].AllocatableOfferingsList()[0].Offerings).To(HaveLen(2))
		r.clock.Step(time.Minute)
		Expect(get(ctx)[7].Offerings.Available()).To(HaveLen(3))
	})
	It("should show a mark on the whole account on every type", func(ctx context.Context) {
		r.marks.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonBalanceExhausted, time.Minute)
		for _, it := range get(ctx) {
			Expect(it.Offerings).To(HaveLen(3))
			Expect(it.Offerings.Available()).To(BeEmpty())
		}
	})
	It("should ignore a mark on another plan", func(ctx context.Context) {
		r.marks.MarkUnavailable(ctx, capacity.Offering{BillingPlan: "saving_plan"}, capacity.ReasonQuotaExceeded, time.Minute)
		Expect(get(ctx)[0].Offerings.Available()).To(HaveLen(3))
	})
	It("should be kept by NodeClass and bounded in number", func(ctx context.Context) {
		first := get(ctx)
		for i := range 300 {
			other := newNodeClass("HN1")
			other.Name = fmt.Sprintf("other-%d", i)
			r.list(ctx, other)
		}
		Expect(&get(ctx)[0]).NotTo(BeIdenticalTo(&first[0]), "it was forgotten for others")
	})
	It("should be one for all who ask at once, while marks come and go", func(ctx context.Context) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				defer GinkgoRecover()
				for j := range 50 {
					r.marks.MarkUnavailable(ctx, capacity.Offering{Flavor: get(ctx)[(i*j)%30].Name}, capacity.ReasonLaunchFailed, time.Duration(1+j%3)*time.Second)
					for _, it := range get(ctx) {
						Expect(it.Allocatable()).NotTo(BeEmpty())
					}
					r.clock.Step(500 * time.Millisecond)
				}
			})
		}
		all.Wait()
		r.clock.Step(time.Minute)
		for _, it := range get(ctx) {
			Expect(it.Offerings.Available()).To(HaveLen(3))
		}
	})
})

var _ = Describe("Types that live claims run on", func() {
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass

	BeforeEach(func(ctx context.Context) {
		source = newHandmade(manyFlavors(8)...)
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2")
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(env.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{}))).To(Succeed())
		})
	})
	// claim is what core would have made of the type and the offering, with the labels that the cloud provider returns.
	claim := func(ctx context.Context, it *cloudprovider.InstanceType, zone, nodeClassName string) *karpv1.NodeClaim {
		GinkgoHelper()
		labels := map[string]string{corev1.LabelTopologyZone: zone}
		for key, requirement := range it.Requirements {
			if values := requirement.Values(); len(values) == 1 && key != corev1.LabelTopologyZone {
				labels[key] = values[0]
			}
		}
		nodeClaim := coretest.NodeClaim(karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClassName},
		}})
		Expect(env.Client.Create(ctx, nodeClaim)).To(Succeed())
		return nodeClaim
	}
	delist := func(name string) {
		source.change(func(s *catalog.Snapshot) {
			s.Flavors = lo.Reject(s.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) bool { return f.Name == name })
		})
	}

	It("should stay, unavailable and at their price, when delisted, also after a restart", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		before := r.list(ctx, nodeClass)[name]
		claim(ctx, before, "HN2", nodeClass.Name)
		delist(name)
		for _, started := range []*room{r, newRoom(source, env.Client)} {
			after := started.list(ctx, nodeClass)[name]
			Expect(after).NotTo(BeNil())
			Expect(after.Offerings.Available()).To(BeEmpty())
			price, ok := after.OfferingPrice("HN2", karpv1.CapacityTypeOnDemand)
			Expect(ok).To(BeTrue())
			Expect(price).To(Equal(before.Offerings[1].Price))
			Expect(after.Capacity).To(Equal(before.Capacity))
			Expect(after.Allocatable()).To(Equal(before.Allocatable()))
			Expect(zonesOf(after)).To(BeEmpty(), "no topology domain of a type that cannot be launched")
		}
	})
	It("should stay for all of their claims when the labels of one were edited", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		it := r.list(ctx, nodeClass)[name]
		for range 3 {
			claim(ctx, it, "HN1", nodeClass.Name)
		}
		claims := &karpv1.NodeClaimList{}
		Expect(env.Client.List(ctx, claims)).To(Succeed())
		for _, edited := range []int{0, 2} {
			delete(claims.Items[edited].Labels, v1alpha1.LabelInstanceCPU)
			Expect(env.Client.Update(ctx, &claims.Items[edited])).To(Succeed())
		}
		delist(name)
		Expect(r.list(ctx, nodeClass)).To(HaveKey(name))
	})
	It("should be there once a claim runs on them that was under way when they went", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		it := r.list(ctx, nodeClass)[name]
		delist(name)
		Expect(r.list(ctx, nodeClass)).NotTo(HaveKey(name))
		nodeClaim := claim(ctx, it, "HN2", nodeClass.Name)
		r.Use(nodeClaim)
		types := r.list(ctx, nodeClass)
		Expect(types).To(HaveKey(name))
		Expect(types[name].Offerings.Available()).To(BeEmpty())
		r.Use(nodeClaim)
		Expect(r.list(ctx, nodeClass)[name]).To(BeIdenticalTo(types[name]), "what is listed is not made anew")
	})
	It("should go once no claim runs on them", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		nodeClaim := claim(ctx, r.list(ctx, nodeClass)[name], "HN2", nodeClass.Name)
		delist(name)
		Expect(r.list(ctx, nodeClass)).To(HaveKey(name))
		Expect(env.Client.Delete(ctx, nodeClaim)).To(Succeed())
		source.change(func(*catalog.Snapshot) {})
		Expect(r.list(ctx, nodeClass)).NotTo(HaveKey(name))
	})
	It("should go for a NodeClass whose claims do not run on them", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		claim(ctx, r.list(ctx, nodeClass)[name], "HN2", "another")
		delist(name)
		Expect(r.list(ctx, nodeClass)).NotTo(HaveKey(name))
	})
	It("should keep the offering of a zone that was left, but not as a topology domain", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		claim(ctx, r.list(ctx, nodeClass)[name], "HN2", nodeClass.Name)
		nodeClass.Status.Zones = []string{"HN1"}
		it := r.list(ctx, nodeClass)[name]
		Expect(zonesOf(it)).To(ConsistOf("HN1"))
		_, ok := it.OfferingPrice("HN2", karpv1.CapacityTypeOnDemand)
		Expect(ok).To(BeTrue())
		Expect(it.Offerings.Available()).To(HaveLen(1))
	})
	It("should stay when the plan or the zones of the flavor go", func(ctx context.Context) {
		name := source.snapshot.Flavors[5].Name
		claim(ctx, r.list(ctx, nodeClass)[name], "HN2", nodeClass.Name)
		source.change(func(s *catalog.Snapshot) {
			s.Flavors = lo.Map(s.Flavors, func(f *gobizfly.ServerFlavorResponse, i int) *gobizfly.ServerFlavorResponse {
				changed := *f
				changed.BillingPlans = []string{"saving_plan"}
				return &changed
			})
		})
		types := r.list(ctx, nodeClass)
		Expect(types).To(And(HaveLen(1), HaveKey(name)))
		Expect(types[name].Offerings.Available()).To(BeEmpty())
	})
	It("should fail rather than let a type vanish when the claims cannot be listed", func(ctx context.Context) {
		r = newRoom(source, broken{env.Client})
		Expect(r.List(ctx, nodeClass)).Error().To(MatchError(ContainSubstring("listing the NodeClaims")))
	})
})

// broken is a reader whose cache has not synced.
type broken struct{ client.Client }

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the cache is not started")
}
