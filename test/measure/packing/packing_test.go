// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package packing_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/packing"
)

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

// broken says what is wrong with a packing; empty if nothing is.
func broken(in instance, p *packing.Packing) (faults []string) {
	seen := make([]int, len(in.items))
	price := 0.0
	for n, node := range p.Nodes {
		price += node.Bin.VNDPerHour
		used := corev1.ResourceList{}
		for _, i := range node.Items {
			seen[i]++
			for name, amount := range in.items[i].Requests {
				sum := used[name]
				sum.Add(amount)
				used[name] = sum
			}
		}
		for name, amount := range used {
			if available := node.Bin.Allocatable[name]; amount.Cmp(available) > 0 {
				faults = append(faults, fmt.Sprintf("node %d (%s) has %s of %s requested", n, node.Bin.Name, amount.String(), name))
			}
		}
		if len(node.Items) > int(node.Bin.Allocatable.Pods().Value()) {
			faults = append(faults, fmt.Sprintf("node %d has %d items", n, len(node.Items)))
		}
	}
	for i, times := range seen {
		if times != 1 {
			faults = append(faults, fmt.Sprintf("item %d is on %d nodes", i, times))
		}
	}
	if math.Abs(price-p.VNDPerHour) > 1e-6 {
		faults = append(faults, fmt.Sprintf("the nodes cost %f and the packing says %f", price, p.VNDPerHour))
	}
	return faults
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

// singleFlavor is the price of first fit in the order of size, into nodes of one flavor; infinite if an item does not fit.
func singleFlavor(in instance, bin packing.Bin) float64 {
	items := slices.Clone(in.items)
	slices.SortStableFunc(items, func(a, b packing.Item) int { return b.Requests.Cpu().Cmp(*a.Requests.Cpu()) })
	type left struct{ cpu, memory int64 }
	var nodes []left
	for _, item := range items {
		cpu, memory := item.Requests.Cpu().MilliValue(), item.Requests.Memory().Value()
		at := slices.IndexFunc(nodes, func(l left) bool { return l.cpu >= cpu && l.memory >= memory })
		if at < 0 {
			at = len(nodes)
			nodes = append(nodes, left{bin.Allocatable.Cpu().MilliValue(), bin.Allocatable.Memory().Value()})
		}
		nodes[at].cpu -= cpu
		nodes[at].memory -= memory
		if nodes[at].cpu < 0 || nodes[at].memory < 0 {
			return math.Inf(1)
		}
	}
	return float64(len(nodes)) * bin.VNDPerHour
}

var ctx = context.Background()

var _ = Describe("The best packing", func() {
	It("should place each item once where it fits, at no less than the lower bound", func() {
		for seed := range uint64(60) {
			in := random(seed, 1+int(seed))
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 200})
			Expect(broken(in, p)).To(BeEmpty(), "seed %d", seed)
			bound := packing.Bound(in.items, in.bins)
			Expect(bound).To(BeNumerically(">", 0))
			Expect(bound).To(BeNumerically("<=", p.VNDPerHour*(1+1e-9)), "seed %d", seed)
		}
	})
	It("should be the cheapest of all where all can be tried", func() {
		for seed := range uint64(40) {
			in := random(seed, 2+int(seed%6))
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 3000})
			Expect(p.VNDPerHour).To(BeNumerically("~", exhaustive(in), 1e-6), "seed %d", seed)
			Expect(packing.Bound(in.items, in.bins)).To(BeNumerically("<=", p.VNDPerHour*(1+1e-9)), "seed %d", seed)
		}
	})
	It("should never cost more than the best single flavor", func() {
		for seed := range uint64(20) {
			in := random(seed, 30)
			single := math.Inf(1)
			for _, bin := range in.bins {
				single = min(single, singleFlavor(in, bin))
			}
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 1})
			Expect(p.VNDPerHour).To(BeNumerically("<=", single+1e-6), "seed %d", seed)
		}
	})
	It("should be near the bound for many items", func() {
		in := random(1, 200)
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 300})
		Expect(p.VNDPerHour / packing.Bound(in.items, in.bins)).To(BeNumerically("<", 1.05))
	})
	It("should be the same for the same seed", func() {
		in := random(3, 40)
		one := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: 5, Iterations: 300})
		Expect(packing.Best(ctx, in.items, in.bins, packing.Options{Seed: 5, Iterations: 300})).To(Equal(one))
	})
	It("should leave out the items that fit nowhere", func() {
		in := random(3, 3)
		p := packing.Best(ctx, append(slices.Clone(in.items), packing.Item{Requests: list(500_000, 1)}), in.bins, packing.Options{Iterations: 10})
		Expect(broken(in, p)).To(BeEmpty())
	})
	It("should place nothing at no price", func() {
		Expect(packing.Best(ctx, nil, flavors(), packing.Options{}).Nodes).To(BeEmpty())
		Expect(packing.Bound(nil, flavors())).To(BeZero())
	})
	It("should limit the number of pods of a node", func() {
		bin := flavors()[9]
		bin.Allocatable[corev1.ResourcePods] = resource.MustParse("3")
		items := make([]packing.Item, 7)
		Expect(packing.Best(ctx, items, []packing.Bin{bin}, packing.Options{Iterations: 50}).Nodes).To(HaveLen(3))
		Expect(packing.Bound(items, []packing.Bin{bin})).To(BeNumerically("~", bin.VNDPerHour*7/3, 1e-6))
	})
	It("should end with the context, and still answer", func() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		in := random(3, 40)
		p := packing.Best(ended, in.items, in.bins, packing.Options{Iterations: math.MaxInt})
		Expect(broken(in, p)).To(BeEmpty())
	})
})
