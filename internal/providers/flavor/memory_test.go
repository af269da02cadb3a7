/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package flavor_test

import (
	"context"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Memory", func() {
	const image = "11111111-0000-4000-8000-000000000001"
	var source *handmade
	var r *room
	var nodeClass *v1alpha1.BizflyNodeClass
	BeforeEach(func() {
		source = newHandmade(newFlavor("p2.2c_4g"), newFlavor("p2.4c_8g", withSize(4, 8192)))
		r = newRoom(source, env.Client)
		nodeClass = newNodeClass("HN1", "HN2", "HN3")
		nodeClass.Status.Image = &v1alpha1.ImageStatus{ID: image}
	})
	memory := func(it *cloudprovider.InstanceType) string {
		quantity := it.Capacity[corev1.ResourceMemory]
		return quantity.String()
	}
	sees := func(ctx context.Context, image, name string, advertised int, reported string) bool {
		_, credible := r.SeeMemory(ctx, image, name, advertised, resource.MustParse(reported))
		return credible
	}

	It("should be estimated too low rather than too high until a node was seen", func(ctx context.Context) {
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3788Mi"))
	})
	It("should be what a node of the flavor and image has reported, in whole MiB", func(ctx context.Context) {
		before := r.list(ctx, nodeClass)
		Expect(sees(ctx, image, "p2.2c_4g", 4096, "4030500Ki")).To(BeTrue())
		after := r.list(ctx, nodeClass)
		Expect(memory(after["p2.2c_4g"])).To(Equal("3936Mi"))
		allocatable, was := after["p2.2c_4g"].Allocatable()[corev1.ResourceMemory], before["p2.2c_4g"].Allocatable()[corev1.ResourceMemory]
		gained := allocatable.DeepCopy()
		gained.Sub(was)
		Expect(gained.String()).To(Equal("148Mi"))
		Expect(after["p2.4c_8g"]).To(BeIdenticalTo(before["p2.4c_8g"]), "another flavor was made anew")
		Expect(memory(before["p2.2c_4g"])).To(Equal("3788Mi"), "what was given away has changed")
	})
	It("should be the least that was ever seen", func(ctx context.Context) {
		for _, reported := range []string{"3936Mi", "3900Mi", "3990Mi"} {
			Expect(sees(ctx, image, "p2.2c_4g", 4096, reported)).To(BeTrue())
		}
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3900Mi"))
	})
	It("should be estimated again for another image, and known again after a roll-back", func(ctx context.Context) {
		Expect(sees(ctx, image, "p2.2c_4g", 4096, "3936Mi")).To(BeTrue())
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3936Mi"))
		nodeClass.Status.Image = &v1alpha1.ImageStatus{ID: "another"}
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3788Mi"))
		nodeClass.Status.Image = &v1alpha1.ImageStatus{ID: image}
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3936Mi"))
	})
	It("should never be more than is advertised", func(ctx context.Context) {
		Expect(sees(ctx, image, "p2.2c_4g", 4096, "5Gi")).To(BeTrue())
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("4Gi"))
	})
	DescribeTable("should not be learned from what is not credible", func(ctx context.Context, reported string) {
		Expect(sees(ctx, image, "p2.2c_4g", 4096, reported)).To(BeFalse())
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3788Mi"))
	},
		Entry("nothing", "0"),
		Entry("less than half", "2047Mi"),
	)
	It("should survive a restart by the record on the NodeClass", func(ctx context.Context) {
		record, changed := flavor.MemoryRecord{}.With(image, "p2.2c_4g", 3936*1024)
		Expect(changed).To(BeTrue())
		nodeClass.Annotations = map[string]string{v1alpha1.AnnotationMemorySeen: record.String()}
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3936Mi"))
	})
	It("should be estimated when the record is damaged", func(ctx context.Context) {
		nodeClass.Annotations = map[string]string{v1alpha1.AnnotationMemorySeen: "{"}
		Expect(memory(r.list(ctx, nodeClass)["p2.2c_4g"])).To(Equal("3788Mi"))
	})
	It("should never leave a negative reserve, however little a node sees", func(ctx context.Context) {
		source.change(func(s *catalog.Snapshot) { s.Flavors = append(s.Flavors, newFlavor("p2.1c_512m", withSize(1, 512))) })
		Expect(sees(ctx, image, "p2.1c_512m", 512, "257Mi")).To(BeTrue())
		it := r.list(ctx, nodeClass)["p2.1c_512m"]
		Expect(memory(it)).To(Equal("257Mi"))
		for name, quantity := range it.Allocatable() {
			Expect(quantity.Sign()).To(BeNumerically(">=", 0), name)
		}
	})

	Describe("recorded", func() {
		It("should keep the least of each flavor and change for nothing else", func() {
			record, changed := flavor.MemoryRecord{}.With(image, "a", 100)
			Expect(changed).To(BeTrue())
			_, changed = record.With(image, "a", 100)
			Expect(changed).To(BeFalse())
			_, changed = record.With(image, "a", 101)
			Expect(changed).To(BeFalse())
			record, changed = record.With(image, "a", 99)
			Expect(changed).To(BeTrue())
			record, _ = record.With(image, "b", 7)
			Expect(record).To(Equal(flavor.MemoryRecord{{Image: image, KiB: map[string]int64{"a": 99, "b": 7}}}))
		})
		It("should remember three images, the last one first", func() {
			var record flavor.MemoryRecord
			for _, image := range []string{"1", "2", "3", "4"} {
				record, _ = record.With(image, "a", 100)
			}
			Expect(record).To(HaveExactElements(HaveField("Image", "4"), HaveField("Image", "3"), HaveField("Image", "2")))
			Expect(record.Has("2")).To(BeTrue())
			Expect(record.Has("1")).To(BeFalse())
		})
		It("should not outgrow its annotation", func() {
			var record flavor.MemoryRecord
			for _, f := range manyFlavors(2000) {
				record, _ = record.With(image, f.Name, 1<<30)
			}
			Expect(len(record.String())).To(BeNumerically("<", 64<<10))
		})
	})
})

// withSize sets the vCPUs and the MiB of memory of a flavor.
func withSize(cpu, memoryMiB int) func(*gobizfly.ServerFlavorResponse) {
	return func(f *gobizfly.ServerFlavorResponse) { f.VCPUs, f.RAM = cpu, memoryMiB }
}
