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

// flavors are some of the shapes that BizFly Cloud sells, in zones, at prices like its own.
func flavors(zones ...string) (bins []packing.Bin) {
	for _, zone := range zones {
		for _, shape := range [][2]int64{{1, 1}, {1, 2}, {2, 2}, {2, 4}, {4, 4}, {4, 8}, {8, 8}, {8, 16}, {16, 32}, {32, 64}} {
			allocatable := list(shape[0]*1000-100, shape[1]*1024-400)
			allocatable[corev1.ResourcePods] = resource.MustParse("110")
			bins = append(bins, packing.Bin{
				Name: fmt.Sprintf("%dc_%dg", shape[0], shape[1]), Zone: zone,
				VNDPerHour: 150 + 300*float64(shape[0]) + 130*float64(shape[1]), Allocatable: allocatable,
			})
		}
	}
	return bins
}

// instance is a random problem.
type instance struct {
	items    []packing.Item
	bins     []packing.Bin
	existing []packing.Existing
}

func random(seed uint64, count int, limits bool) instance {
	r := rand.New(rand.NewPCG(seed, 7))
	made := instance{bins: flavors("HN1", "HN2")}
	for i := range count {
		item := packing.Item{Name: fmt.Sprint(i), Requests: list(50+r.Int64N(1500), 64+r.Int64N(3000))}
		if limits {
			switch r.IntN(6) {
			case 0:
				item.Groups, item.Limits = []string{"apart"}, packing.Apart("apart")
			case 1:
				item.Groups = []string{"quiet"}
			case 2:
				item.Limits = []packing.Limit{{Group: "quiet", Max: 0}}
			case 3:
				item.Allowed = func(b packing.Bin) bool { return b.Zone == "HN2" }
			}
		}
		made.items = append(made.items, item)
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
			item := in.items[i]
			for name, amount := range item.Requests {
				sum := used[name]
				sum.Add(amount)
				used[name] = sum
			}
			if item.Allowed != nil && !item.Allowed(node.Bin) {
				faults = append(faults, fmt.Sprintf("item %d may not be on %s in %s", i, node.Bin.Name, node.Bin.Zone))
			}
			for _, limit := range item.Limits {
				members := 0
				for _, j := range node.Items {
					if slices.Contains(in.items[j].Groups, limit.Group) {
						members++
					}
				}
				if members > limit.Max {
					faults = append(faults, fmt.Sprintf("node %d has %d of group %s, item %d allows %d", n, members, limit.Group, i, limit.Max))
				}
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
		if times != 1 && (times != 0 || !slices.Contains(p.Unplaced, i)) {
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
	It("should place each item once where it may run and fits, at no less than the lower bound", func() {
		for seed := range uint64(60) {
			in := random(seed, 1+int(seed), true)
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 200})
			Expect(broken(in, p)).To(BeEmpty(), "seed %d", seed)
			Expect(p.Unplaced).To(BeEmpty(), "seed %d", seed)
			bound := packing.Bound(in.items, in.bins)
			Expect(bound).To(BeNumerically(">", 0))
			Expect(bound).To(BeNumerically("<=", p.VNDPerHour*(1+1e-9)), "seed %d", seed)
		}
	})

	It("should be the cheapest of all where all can be tried", func() {
		for seed := range uint64(40) {
			in := random(seed, 2+int(seed%6), false)
			in.bins = in.bins[:len(in.bins)/2]
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 3000})
			Expect(p.VNDPerHour).To(BeNumerically("~", exhaustive(in), 1e-6), "seed %d", seed)
			Expect(packing.Bound(in.items, in.bins)).To(BeNumerically("<=", p.VNDPerHour*(1+1e-9)), "seed %d", seed)
		}
	})

	It("should never cost more than the best single flavor", func() {
		for seed := range uint64(20) {
			in := random(seed, 30, false)
			single := math.Inf(1)
			for _, bin := range in.bins {
				single = min(single, singleFlavor(in, bin))
			}
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 1})
			Expect(p.VNDPerHour).To(BeNumerically("<=", single+1e-6), "seed %d", seed)
		}
	})

	It("should be near the bound for many items", func() {
		in := random(1, 200, false)
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 300})
		Expect(p.VNDPerHour / packing.Bound(in.items, in.bins)).To(BeNumerically("<", 1.05))
	})

	It("should be the same for the same seed", func() {
		in := random(3, 40, true)
		one := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: 5, Iterations: 300})
		Expect(packing.Best(ctx, in.items, in.bins, packing.Options{Seed: 5, Iterations: 300})).To(Equal(one))
	})

	It("should bound its steps by the number of items, not by the time", func() {
		Expect([]int{packing.Steps(0), packing.Steps(1), packing.Steps(200), packing.Steps(2000), packing.Steps(1_000_000)}).
			To(Equal([]int{4000, 4000, 4000, 400, 50}))
		in := random(4, 60, true)
		packed := func(iterations int) *packing.Packing {
			return packing.Best(ctx, in.items, in.bins, packing.Options{Seed: 1, Iterations: iterations})
		}
		found := packed(0)
		Expect(packed(packing.Steps(60))).To(Equal(found))
		Expect(packed(10).VNDPerHour).To(BeNumerically(">", found.VNDPerHour))
	})

	It("should name the items that fit nowhere", func() {
		in := random(3, 3, false)
		in.items = append(in.items, packing.Item{Requests: list(500_000, 1)}, packing.Item{Allowed: func(packing.Bin) bool { return false }})
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 10})
		Expect(p.Unplaced).To(Equal([]int{3, 4}))
		Expect(broken(in, p)).To(BeEmpty())
	})

	It("should place nothing at no price", func() {
		Expect(packing.Best(ctx, nil, flavors("HN1"), packing.Options{}).Nodes).To(BeEmpty())
		Expect(packing.Bound(nil, flavors("HN1"))).To(BeZero())
	})

	It("should limit the number of pods of a node", func() {
		bin := flavors("HN1")[9]
		bin.Allocatable[corev1.ResourcePods] = resource.MustParse("3")
		items := make([]packing.Item, 7)
		Expect(packing.Best(ctx, items, []packing.Bin{bin}, packing.Options{Iterations: 50}).Nodes).To(HaveLen(3))
		Expect(packing.Bound(items, []packing.Bin{bin})).To(BeNumerically("~", bin.VNDPerHour*7/3, 1e-6))
	})

	It("should count the nodes that anti-affinity needs in the bound", func() {
		items := make([]packing.Item, 5)
		for i := range items {
			items[i] = packing.Item{Requests: list(10, 10), Groups: []string{"db"}, Limits: packing.Apart("db")}
		}
		Expect(packing.Bound(items, flavors("HN1"))).To(BeNumerically("~", 5*flavors("HN1")[0].VNDPerHour, 1e-6))
		Expect(packing.Best(ctx, items, flavors("HN1"), packing.Options{Iterations: 50}).Nodes).To(HaveLen(5))
	})

	It("should end with the context, and still answer", func() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		in := random(3, 40, false)
		p := packing.Best(ended, in.items, in.bins, packing.Options{Iterations: math.MaxInt})
		Expect(broken(in, p)).To(BeEmpty())
	})
})

var _ = Describe("The best packing of nodes that exist", func() {
	// occupied has some items on nodes of flavors that are too large for them.
	occupied := func(seed uint64, count int, limits bool) instance {
		in := random(seed, count, limits)
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 1})
		for n, node := range p.Nodes {
			if n%3 == 0 {
				node.Bin.VNDPerHour *= 2
			}
			in.existing = append(in.existing, packing.Existing{Bin: node.Bin, Items: node.Items})
		}
		return in
	}

	It("should keep or replace whole nodes, and never cost more than they do", func() {
		for seed := range uint64(40) {
			in := occupied(seed, 5+int(seed), true)
			before := 0.0
			for _, e := range in.existing {
				before += e.Bin.VNDPerHour
			}
			p := packing.Best(ctx, in.items, in.bins, packing.Options{Seed: seed, Iterations: 100, Existing: in.existing})
			Expect(broken(in, p)).To(BeEmpty(), "seed %d", seed)
			Expect(p.VNDPerHour).To(BeNumerically("<=", before+1e-6), "seed %d", seed)
			for _, node := range p.Nodes {
				if node.Existing >= 0 {
					Expect(node.Items).To(ContainElements(in.existing[node.Existing].Items), "seed %d", seed)
				}
			}
		}
	})

	It("should keep every node where a replacement saves less than it must", func() {
		in := occupied(4, 30, false)
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 200, Existing: in.existing, ReplaceVNDPerHour: 1e6})
		Expect(p.Nodes).To(HaveLen(len(in.existing)))
		Expect(p.Nodes).To(HaveEach(HaveField("Existing", BeNumerically(">=", 0))))
	})

	It("should leave an item that can run on no new node where it is", func() {
		in := occupied(5, 20, false)
		in.items[0].Allowed = func(packing.Bin) bool { return false }
		home := slices.IndexFunc(in.existing, func(e packing.Existing) bool { return slices.Contains(e.Items, 0) })
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 200, Existing: in.existing})
		Expect(p.Unplaced).To(BeEmpty())
		Expect(p.Nodes).To(ContainElement(HaveField("Existing", home)))
	})

	DescribeTable("should find the exchange that core's consolidation cannot make", func(pods int, each corev1.ResourceList, today []string, expected []string) {
		byName := map[string]packing.Bin{}
		for _, bin := range flavors("HN1") {
			byName[bin.Name] = bin
		}
		in := instance{bins: flavors("HN1")}
		for i := range pods {
			in.items = append(in.items, packing.Item{Name: fmt.Sprint(i), Requests: each})
		}
		for n, name := range today {
			e := packing.Existing{Bin: byName[name]}
			for i := n * pods / len(today); i < (n+1)*pods/len(today); i++ {
				e.Items = append(e.Items, i)
			}
			in.existing = append(in.existing, e)
		}
		p := packing.Best(ctx, in.items, in.bins, packing.Options{Iterations: 500, Existing: in.existing})
		var names []string
		for _, node := range p.Nodes {
			names = append(names, node.Bin.Name)
		}
		Expect(names).To(Equal(expected))
	},
		Entry("one larger by two cheaper", 3, list(3800, 3500), []string{"16c_32g"}, []string{"4c_4g", "8c_8g"}),
		Entry("two by one cheaper", 2, list(900, 1500), []string{"4c_8g", "4c_8g"}, []string{"2c_4g"}),
		Entry("three by two", 6, list(1900, 1700), []string{"4c_8g", "4c_8g", "4c_8g"}, []string{"4c_4g", "8c_8g"}),
	)
})
