// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"context"
	"fmt"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("The size of nodes", func() {
	const image = "11111111-0000-4000-8000-000000000001"
	const name = "p2.2c_4g"
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass
	BeforeEach(func() {
		source = newHandmade(newFlavor(name), newFlavor("p2.4c_8g", withSize(4, 8192)))
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2", "HN3")
		nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: image}}
	})
	memory := func(ctx context.Context) string { return r.list(ctx, nodeClass)[name].Capacity.Memory().String() }
	list := func(pairs ...string) corev1.ResourceList {
		of := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			of[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return of
	}
	// observe lets a node of the flavor report; what is not said is as it was promised.
	observe := func(ctx context.Context, node string, capacity, allocatable corev1.ResourceList) (short bool) {
		GinkgoHelper()
		promised := r.list(ctx, nodeClass)[name]
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelInstanceTypeStable: name}}}
		claim.Status.Capacity, claim.Status.Allocatable = promised.Capacity, promised.Allocatable()
		return r.Observe(ctx, nodeClass, claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
			Capacity: lo.Assign(promised.Capacity, capacity), Allocatable: lo.Assign(promised.Allocatable(), allocatable),
		}})
	}
	sees := func(ctx context.Context, node, reported string) (short bool) {
		GinkgoHelper()
		return observe(ctx, node, list("memory", reported), nil)
	}
	offers := func(ctx context.Context, resources ...corev1.ResourceName) []string {
		GinkgoHelper()
		return lo.Map(resources, func(of corev1.ResourceName, _ int) string {
			quantity := r.list(ctx, nodeClass)[name].Allocatable()[of]
			return quantity.String()
		})
	}
	fits := func(it *cloudprovider.InstanceType, offered corev1.ResourceList) {
		GinkgoHelper()
		for of, quantity := range offered {
			promised := it.Allocatable()[of]
			Expect(promised.Cmp(quantity)).To(BeNumerically("<=", 0), "more %s is promised (%s) than there is (%s)", of, &promised, &quantity)
		}
	}

	It("should be estimated too low rather than too high until a node was seen", func(ctx context.Context) {
		Expect(memory(ctx)).To(Equal("3788Mi"))
	})
	It("should be the memory that a node of the flavor and image has reported, in whole MiB", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)
		Expect(sees(ctx, "a", "4030500Ki")).To(BeFalse())
		after := r.list(ctx, nodeClass)
		Expect(after[name].Capacity.Memory().String()).To(Equal("3936Mi"))
		Expect(after["p2.4c_8g"].Capacity).To(Equal(before["p2.4c_8g"].Capacity), "another flavor has changed")
		Expect(before[name].Capacity.Memory().String()).To(Equal("3788Mi"), "what was given away has changed")
	})
	It("should be what a kubelet leaves to pods: CPU, memory, storage and how many they are", func(ctx context.Context) {
		capacity := list("memory", "4030500Ki", "ephemeral-storage", "40000000Ki", "pods", "100")
		allocatable := list("cpu", "1800m", "memory", "2500000Ki", "ephemeral-storage", "34000000Ki", "pods", "100")
		Expect(observe(ctx, "a", capacity, allocatable)).To(BeFalse())
		it := r.list(ctx, nodeClass)[name]
		fits(it, allocatable)
		offered := it.Allocatable()
		Expect(offered.Cpu().String()).To(Equal("1800m"))
		Expect(offered.Pods().Value()).To(BeEquivalentTo(100))
		Expect(offered.Memory().Value() >> 20).To(BeNumerically("~", 2500000>>10, 1))
		Expect(offered.StorageEphemeral().Value() >> 20).To(BeNumerically("~", 34000000>>10, 1))
	})
	It("should be what one node says at once, and be reported where that differs much", func(ctx context.Context) {
		less := list("cpu", "1300m", "memory", "2000Mi")
		Expect(observe(ctx, "a", nil, less)).To(BeTrue(), "it is reported")
		Expect(observe(ctx, "a", nil, less)).To(BeFalse(), "it is reported once")
		Expect(offers(ctx, "cpu", "memory")).To(Equal([]string{"1300m", "2000Mi"}))
		Expect(observe(ctx, "b", nil, less)).To(BeFalse())
		Expect(offers(ctx, "cpu", "memory")).To(Equal([]string{"1300m", "2000Mi"}))
	})
	It("should be the least of the last two nodes, so that two others make up for a broken one", func(ctx context.Context) {
		for i, reported := range []struct{ reported, believed string }{
			{"3936Mi", "3936Mi"}, {"3936Mi", "3936Mi"}, {"3500Mi", "3500Mi"}, {"3936Mi", "3500Mi"}, {"3936Mi", "3936Mi"},
		} {
			Expect(sees(ctx, fmt.Sprint(i), reported.reported)).To(Equal(reported.reported == "3500Mi"))
			Expect(memory(ctx)).To(Equal(reported.believed), "node %d", i)
		}
	})
	It("should stay the least while nodes differ by little", func(ctx context.Context) {
		for i, reported := range []string{"3936Mi", "3930Mi"} {
			sees(ctx, fmt.Sprint(i), reported)
		}
		known := r.list(ctx, nodeClass)[name]
		for i := range 20 {
			sees(ctx, fmt.Sprint("later/", i), fmt.Sprint(3931+i%6, "Mi"))
		}
		Expect(r.list(ctx, nodeClass)[name]).To(BeIdenticalTo(known))
	})
	It("should forget what was true of older nodes once two newer ones say otherwise", func(ctx context.Context) {
		sees(ctx, "old/1", "3600Mi")
		sees(ctx, "old/2", "3600Mi")
		Expect(memory(ctx)).To(Equal("3600Mi"))
		for i := range 2 {
			sees(ctx, fmt.Sprint(i), "3936Mi")
		}
		Expect(memory(ctx)).To(Equal("3936Mi"))
	})
	Context("with huge pages, which the kubelet takes out of the memory for pods,", func() {
		less := func(allocatable, pages corev1.ResourceList) corev1.ResourceList {
			memory := allocatable[corev1.ResourceMemory].DeepCopy()
			for _, quantity := range pages {
				memory.Sub(quantity)
			}
			return lo.Assign(allocatable, pages, corev1.ResourceList{corev1.ResourceMemory: memory})
		}
		// reports lets a node report pages; overlay are those that a NodeOverlay promised it.
		reports := func(ctx context.Context, node string, overlay, pages corev1.ResourceList) (short bool) {
			GinkgoHelper()
			promised := r.list(ctx, nodeClass)[name]
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelInstanceTypeStable: name}}}
			claim.Status.Capacity, claim.Status.Allocatable = promised.Capacity, promised.Allocatable()
			if overlay != nil {
				claim.Status.Capacity, claim.Status.Allocatable = lo.Assign(promised.Capacity, overlay), less(promised.Allocatable(), overlay)
			}
			return r.Observe(ctx, nodeClass, claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
				Capacity:    lo.Assign(promised.Capacity, list("memory", "3936Mi"), pages),
				Allocatable: less(lo.Assign(promised.Allocatable(), list("memory", "3800Mi")), pages),
			}})
		}
		for _, size := range []string{"2Mi", "1Gi"} {
			pages := list("hugepages-"+size, "1Gi")

			It("should be that without those of an overlay of "+size+", which another NodePool does not have", func(ctx context.Context) {
				Expect(reports(ctx, "a", pages, pages)).To(BeFalse())
				Expect(offers(ctx, "memory")).To(Equal([]string{"3800Mi"}))
				Expect(r.list(ctx, nodeClass)[name].Capacity).ToNot(HaveKey(HavePrefix("hugepages-")))
				Expect(reports(ctx, "b", nil, nil)).To(BeFalse())
				Expect(offers(ctx, "memory")).To(Equal([]string{"3800Mi"}))
			})
			It("should be less those of "+size+" that image or user data make, which are published", func(ctx context.Context) {
				reports(ctx, "a", nil, pages)
				Expect(offers(ctx, "memory", corev1.ResourceName("hugepages-"+size))).To(Equal([]string{"2776Mi", "1Gi"}))
				Expect(reports(ctx, "b", nil, pages)).To(BeFalse())
				Expect(offers(ctx, "memory", corev1.ResourceName("hugepages-"+size))).To(Equal([]string{"2776Mi", "1Gi"}))
			})
			It("should be all where only some nodes have those of "+size, func(ctx context.Context) {
				reports(ctx, "a", nil, nil)
				reports(ctx, "b", nil, pages)
				Expect(offers(ctx, "memory")).To(Equal([]string{"3800Mi"}))
				Expect(r.list(ctx, nodeClass)[name].Capacity).ToNot(HaveKey(HavePrefix("hugepages-")))
			})
		}
	})
	It("should be estimated again for another image, and known again after a roll-back", func(ctx context.Context) {
		sees(ctx, "a", "3936Mi")
		Expect(memory(ctx)).To(Equal("3936Mi"))
		nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: "another"}}
		Expect(memory(ctx)).To(Equal("3788Mi"))
		nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: image}}
		Expect(memory(ctx)).To(Equal("3936Mi"))
	})
	It("should be estimated again for another root disk", func(ctx context.Context) {
		observe(ctx, "a", list("ephemeral-storage", "35Gi"), list("ephemeral-storage", "30Gi"))
		Expect(offers(ctx, "ephemeral-storage")).To(Equal([]string{"30Gi"}))
		nodeClass.Generation++
		nodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("100Gi"))}
		disk := r.list(ctx, nodeClass)[name].Allocatable()[corev1.ResourceEphemeralStorage]
		Expect(disk.Value() >> 30).To(BeNumerically(">", 80))
	})
	It("should never be more than is advertised", func(ctx context.Context) {
		sees(ctx, "a", "5Gi")
		sees(ctx, "b", "5Gi")
		Expect(memory(ctx)).To(Equal("4Gi"))
	})
	It("should not be learned from nothing, which a kubelet says before it knows", func(ctx context.Context) {
		before := offers(ctx, "cpu", "memory", "ephemeral-storage", "pods")
		none := list("cpu", "0", "memory", "0", "ephemeral-storage", "0", "pods", "0")
		Expect(observe(ctx, "a", none, none)).To(BeFalse())
		Expect(observe(ctx, "b", none, none)).To(BeFalse())
		Expect(offers(ctx, "cpu", "memory", "ephemeral-storage", "pods")).To(Equal(before))
	})
	It("should leave out an operator's overhead above the default, whatever nodes report", func(ctx context.Context) {
		sees(ctx, "a", "3936Mi")
		r.tune(func(o *options.Options) { o.MemoryOverheadPercent = 0.25 })
		Expect(memory(ctx)).To(Equal("3Gi"))
		r.tune(func(o *options.Options) { o.MemoryOverheadPercent = 0.02 })
		Expect(memory(ctx)).To(Equal("3936Mi"))
	})
	It("should leave out the operator's reserve of the worker image, whatever nodes report", func(ctx context.Context) {
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{MaxPods: lo.ToPtr(int32(30)), SystemReserved: map[string]string{"memory": "2Gi"},
			KubeReserved: map[string]string{"memory": "0", "cpu": "500m"}}
		Expect(offers(ctx, "cpu", "memory", "pods")).To(Equal([]string{"1480m", "1640Mi", "30"}), "3788Mi less 2Gi and 100Mi")
		for _, node := range []string{"a", "b"} {
			observe(ctx, node, list("pods", "110"), list("cpu", "1900m", "memory", "3000Mi", "pods", "110"))
		}
		Expect(offers(ctx, "cpu", "memory", "pods")).To(Equal([]string{"1480m", "1640Mi", "30"}))
		for _, node := range []string{"c", "d"} {
			observe(ctx, node, nil, list("memory", "1Gi"))
		}
		Expect(offers(ctx, "memory")).To(Equal([]string{"1Gi"}), "nodes keep even more")
	})
	It("should not fall below 60 % of the estimate, nor below a third of it for pods", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)[name]
		all := before.Allocatable()
		for _, node := range []string{"a", "b", "c"} {
			observe(ctx, node, nil, nil)
		}
		lie := list("cpu", "1m", "memory", "1Ki", "ephemeral-storage", "1Ki", "pods", "1")
		for round := range 2 {
			for n := range 3 {
				node := fmt.Sprintf("evil/%d/%d", round, n)
				Expect(observe(ctx, node, lie, lie)).To(BeTrue(), node)
				Expect(observe(ctx, node, lie, lie)).To(BeFalse(), "it is reported once")
			}
			after := r.list(ctx, nodeClass)[name]
			for _, of := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "pods"} {
				was, is := all[of], after.Allocatable()[of]
				Expect(is.AsApproximateFloat64()).To(BeNumerically(">=", 0.32*was.AsApproximateFloat64()), "%s", of)
			}
			Expect(after.Capacity.Memory().AsApproximateFloat64()).To(BeNumerically(">=", 0.59*before.Capacity.Memory().AsApproximateFloat64()))
			// A NodeClaim that was promised less does not lower it further.
		}
	})
	It("should never leave a negative reserve, however little a node sees", func(ctx context.Context) {
		source.change(func(s *catalog.Snapshot) { s.Flavors = append(s.Flavors, newFlavor("p2.1c_256m", withSize(1, 256))) })
		for _, node := range []string{"a", "b"} {
			observe(ctx, node, list("memory", "257Mi"), list("cpu", "1m", "memory", "1Mi"))
		}
		for _, it := range r.list(ctx, nodeClass) {
			for of, quantity := range it.Allocatable() {
				Expect(quantity.Sign()).To(BeNumerically(">=", 0), "%s of %s", of, it.Name)
			}
		}
	})
})

// withSize sets the vCPUs and the MiB of memory of a flavor.
func withSize(cpu, memoryMiB int) func(*gobizfly.ServerFlavorResponse) {
	return func(f *gobizfly.ServerFlavorResponse) { f.VCPUs, f.RAM = cpu, memoryMiB }
}
