// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestPacking(t *testing.T) { suite.Run(t, "Packing") }

// list is CPU in millicores and memory in MiB.
func list(cpu, memory int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(memory<<20, resource.BinarySI),
	}
}

// flavors are some of the shapes that BizFly Cloud sells, at prices like its own.
func flavors() (bins []packing.Bin) {
	for _, shape := range [][2]int64{{1, 1}, {1, 2}, {2, 2}, {2, 4}, {4, 4}, {4, 8}, {8, 8}, {8, 16}, {16, 32}, {32, 64}} {
		allocatable := list(shape[0]*1000-100, shape[1]*1024-400)
		allocatable[corev1.ResourcePods] = resource.MustParse("110")
		bins = append(bins, packing.Bin{
			Name:       fmt.Sprintf("%dc_%dg", shape[0], shape[1]),
			VNDPerHour: 150 + 300*float64(shape[0]) + 130*float64(shape[1]), Allocatable: allocatable,
		})
	}
	return bins
}

// instance is a random problem.
type instance struct {
	items []packing.Item
	bins  []packing.Bin
}

func random(seed uint64, count int) instance {
	r := rand.New(rand.NewPCG(seed, 7))
	made := instance{bins: flavors()}
	for i := range count {
		made.items = append(made.items, packing.Item{Name: fmt.Sprint(i), Requests: list(50+r.Int64N(1500), 64+r.Int64N(3000))})
	}
	return made
}

// exhaustive is the price of the cheapest packing, by trying every partition. It knows resources only.
func exhaustive(in instance) float64 {
	best := math.Inf(1)
	price := func(set []int) float64 {
		least := math.Inf(1)
		for _, bin := range in.bins {
			cpu, memory := bin.Allocatable.Cpu().MilliValue(), bin.Allocatable.Memory().Value()
			for _, i := range set {
				cpu -= in.items[i].Requests.Cpu().MilliValue()
				memory -= in.items[i].Requests.Memory().Value()
			}
			if cpu >= 0 && memory >= 0 {
				least = min(least, bin.VNDPerHour)
			}
		}
		return least
	}
	var place func(i int, sets [][]int)
	place = func(i int, sets [][]int) {
		if i == len(in.items) {
			sum := 0.0
			for _, set := range sets {
				sum += price(set)
			}
			best = min(best, sum)
			return
		}
		for at := range sets {
			next := slices.Clone(sets)
			next[at] = append(slices.Clone(sets[at]), i)
			place(i+1, next)
		}
		place(i+1, append(slices.Clone(sets), []int{i}))
	}
	place(0, nil)
	return best
}

var _ = Describe("The bound", func() {
	It("should be below the cheapest of all packings where all can be tried, and near it", func() {
		for seed := range uint64(40) {
			in := random(seed, 2+int(seed%6))
			bound, cheapest := packing.Bound(in.items, in.bins), exhaustive(in)
			Expect(bound).To(And(BeNumerically("<=", cheapest*(1+1e-9)), BeNumerically(">", cheapest/2)), "seed %d", seed)
		}
	})
	It("should leave out what fits nowhere", func() {
		in := random(3, 3)
		bound := packing.Bound(in.items, in.bins)
		Expect(packing.Bound(append(in.items, packing.Item{Requests: list(500_000, 1)}), in.bins)).To(Equal(bound))
		Expect(packing.Bound(nil, flavors())).To(BeZero())
	})
	It("should know the limit of pods of a node", func() {
		bin := flavors()[9]
		bin.Allocatable[corev1.ResourcePods] = resource.MustParse("3")
		Expect(packing.Bound(make([]packing.Item, 7), []packing.Bin{bin})).To(BeNumerically("~", bin.VNDPerHour*7/3, 1e-6))
	})
})
