// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
)

var _ = Describe("The metrics of offerings", func() {
	// gathered is the value by flavor and zone of a family.
	gathered := func(name string) map[[2]string]float64 {
		GinkgoHelper()
		samples, err := metrics.Gather(crmetrics.Registry, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(samples).ToNot(BeEmpty(), name)
		reported := map[[2]string]float64{}
		for _, sample := range samples {
			reported[[2]string{sample.Labels["instance_type"], sample.Labels["zone"]}] = sample.Value
		}
		return reported
	}

	// named is a NodeClass with a name, and exist a reader that has it.
	named := func(name string, zones ...string) *v1alpha1.BizflyNodeClass {
		nodeClass := newNodeClass(zones...)
		nodeClass.Name = name
		return nodeClass
	}
	exist := func(names ...string) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithLists(&v1alpha1.BizflyNodeClassList{
			Items: lo.Map(names, func(name string, _ int) v1alpha1.BizflyNodeClass { return *named(name) }),
		}).Build()
	}

	It("should report nothing of a NodeClass that is gone", func(ctx context.Context) {
		kube := exist("default", "gone")
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), kube)
		r.list(ctx, named("default", "HN1"))
		r.list(ctx, named("gone", "HN1", "HN2"))
		Expect(gathered("karpenter_cloudprovider_instance_type_offering_available")).To(HaveLen(2))
		Expect(kube.Delete(ctx, named("gone"))).To(Succeed())
		Expect(gathered("karpenter_cloudprovider_instance_type_offering_available")).To(HaveLen(1))
	})
	It("should count the launched NodeClaims whose price is not known", func(ctx context.Context) {
		kube := exist("default")
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), kube)
		claim := func(name, flavor, providerID string) {
			GinkgoHelper()
			object := &karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: flavor, corev1.LabelTopologyZone: "HN1"}},
				Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"}},
				Status:     karpv1.NodeClaimStatus{ProviderID: providerID},
			}
			Expect(kube.Create(ctx, object)).To(Succeed())
		}
		claim("known", "p2.2c_4g", "bizflycloud://1")
		claim("waiting", "p2.9c_9g", "")
		r.list(ctx, named("default", "HN1"))
		Expect(gathered("karpenter_bizfly_unpriced_nodeclaims")).To(HaveKeyWithValue([2]string{}, 0.0))
		claim("unknown", "p2.9c_9g", "bizflycloud://2")
		Expect(gathered("karpenter_bizfly_unpriced_nodeclaims")).To(HaveKeyWithValue([2]string{}, 1.0))
	})
	It("should let a scrape end while the cache does not answer", func(ctx context.Context) {
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), interceptor.NewClient(exist("default"), interceptor.Funcs{
			List: func(ctx context.Context, kube client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*v1alpha1.BizflyNodeClassList); !ok {
					return kube.List(ctx, list, opts...)
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}))
		r.list(ctx, named("default", "HN1"))
		_, err := crmetrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(time.Minute))
	It("should ask for nothing before an instance type was listed", func(ctx context.Context) {
		newRoom(newHandmade(newFlavor("p2.2c_4g")), interceptor.NewClient(exist(), interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				defer GinkgoRecover()
				Fail(fmt.Sprintf("listed %T", list))
				return nil
			},
		}))
		_, err := crmetrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
	})
	It("should report each offering's price once, also when a NodeClass was made again", func(ctx context.Context) {
		r := newRoom(newHandmade(manyFlavors(3)...), exist("default", "other"))
		for range 2 {
			_, err := r.List(ctx, named("default", "HN1", "HN2"))
			Expect(err).NotTo(HaveOccurred())
		}
		types := r.list(ctx, named("default", "HN1", "HN2"))

		expected := map[[2]string]float64{}
		for name, it := range types {
			for _, offering := range it.Offerings {
				expected[[2]string{name, offering.Zone()}] = offering.Price
			}
		}
		Expect(expected).NotTo(BeEmpty())
		Expect(gathered("karpenter_cloudprovider_instance_type_offering_price_estimate")).To(Equal(expected))
		Expect(gathered("karpenter_bizfly_instance_types")).To(Equal(map[[2]string]float64{{"", ""}: 3}))
	})
	It("should report what is unavailable", func(ctx context.Context) {
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), exist("default", "other"))
		r.marks.MarkUnavailable(ctx, capacity.Offering{Zone: "HN2"}, capacity.ReasonInsufficientCapacity, time.Minute)
		r.list(ctx, named("default", "HN1", "HN2"))
		Expect(gathered("karpenter_cloudprovider_instance_type_offering_available")).To(Equal(map[[2]string]float64{{"p2.2c_4g", "HN1"}: 1, {"p2.2c_4g", "HN2"}: 0}))
	})
	It("should report an instance type's size once, however many NodeClasses use it", func(ctx context.Context) {
		r := newRoom(newHandmade(newFlavor("p2.2c_4g")), exist("default", "other"))
		r.list(ctx, named("default", "HN1", "HN2"))
		r.list(ctx, named("other", "HN1"))
		Expect(gathered("karpenter_cloudprovider_instance_type_cpu_cores")).To(Equal(map[[2]string]float64{{"p2.2c_4g", ""}: 2}))
		Expect(gathered("karpenter_cloudprovider_instance_type_memory_bytes")).To(Equal(map[[2]string]float64{{"p2.2c_4g", ""}: 4 << 30}))
	})
})
