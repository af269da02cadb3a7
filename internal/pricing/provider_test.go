// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package pricing_test

import (
	"os"

	"math/rand/v2"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var base = pricing.Item{
	Category: "premium", CPU: 6, MemoryMiB: 24 * 1024,
	BillingPlan: v1alpha1.BillingPlanOnDemand,
}

func with(change func(*pricing.Item)) pricing.Item {
	item := base
	change(&item)
	return item
}

// withDisk is the item with one more disk.
func withDisk(gib int, medium v1alpha1.DiskMedium) func(*pricing.Item) {
	return func(i *pricing.Item) { i.Disks = append(slices.Clone(i.Disks), pricing.Disk{GiB: gib, Type: medium}) }
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

var _ = Describe("Pricing", func() {
	var prices *pricing.Table

	BeforeEach(func() { prices = pricing.DefaultTable() })
	price := func(item pricing.Item) float64 {
		GinkgoHelper()
		vnd, ok := prices.Price(item)
		Expect(ok).To(BeTrue(), "no price for %+v", item)
		return vnd
	}

	It("should meet the published price of 6 vCPUs and 24 GB", func() { Expect(price(base)).To(Equal(5775.0)) })
	It("should add every disk with its own medium", func() {
		Expect(price(with(withDisk(40, v1alpha1.DiskMediumSSD)))).To(Equal(5775.0 + 40*5))
		Expect(price(with(withDisk(40, v1alpha1.DiskMediumHDD)))).To(Equal(5775.0 + 40*2.5))
		Expect(price(with(func(i *pricing.Item) {
			i.Disks = []pricing.Disk{{GiB: 40, Type: v1alpha1.DiskMediumSSD}, {GiB: 100, Type: v1alpha1.DiskMediumHDD}, {GiB: 10, Type: v1alpha1.DiskMediumSSD}}
		}))).To(Equal(5775.0 + 40*5 + 100*2.5 + 10*5))
	})
	It("should charge the subscription with the published factors", func() {
		Expect(price(with(func(i *pricing.Item) { i.BillingPlan = v1alpha1.BillingPlanSavingPlan }))).To(BeNumerically("~", 5775/1.5, 0.01))
		Expect(price(with(func(i *pricing.Item) {
			i.BillingPlan = v1alpha1.BillingPlanSavingPlan
			withDisk(130, v1alpha1.DiskMediumSSD)(i)
		}))).To(BeNumerically("~", 5775/1.5+100*5, 0.01))
	})
	It("should order the categories", func() {
		prices := lo.Map([]string{"basic", "premium", "enterprise", "dedicated"}, func(category string, _ int) float64 {
			return price(with(func(i *pricing.Item) { i.Category = category }))
		})
		for i := range prices[1:] {
			Expect(prices[i+1]).To(BeNumerically(">", prices[i]))
		}
		Expect(price(with(func(i *pricing.Item) { i.Category = "quantum" }))).To(BeNumerically(">=", prices[3]), "what is not known is not preferred")
	})
	DescribeTable("should know a GPU by any word of its name",
		func(name string, expected float64) {
			Expect(price(with(func(i *pricing.Item) { i.GPUName = name; i.GPUCount = 1 })) - price(base)).To(BeNumerically("~", expected, 0.001))
		},
		Entry("as the API says it", "NVIDIA A30", 18000.0),
		Entry("as the label says it", "NVIDIA-A30", 18000.0),
		Entry("with its memory", "Tesla T4 16GB", 9000.0),
		Entry("unknown", "Frobnicator 9", 45000.0),
		Entry("called like the fallback", "default", 45000.0),
		Entry("without a name", "", 45000.0),
	)
	DescribeTable("should not price what it cannot",
		func(change func(*pricing.Item)) {
			_, ok := prices.Price(with(change))
			Expect(ok).To(BeFalse())
		},
		Entry("no CPU", func(i *pricing.Item) { i.CPU = 0 }),
		Entry("no memory", func(i *pricing.Item) { i.MemoryMiB = 0 }),
		Entry("a negative disk", withDisk(-1, v1alpha1.DiskMediumSSD)),
		Entry("a disk of an unknown medium", withDisk(10, "TAPE")),
		Entry("an unknown billing plan", func(i *pricing.Item) { i.BillingPlan = "spot_instance" }),
	)
	It("should grow strictly with CPU, memory, GPUs and disk, whatever else it is", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		for range 5000 {
			item := pricing.Item{
				Category:    pick(random, []string{"basic", "premium", "enterprise", "dedicated", "other"}),
				Generation:  pick(random, []string{"", "2", "4a"}),
				CPU:         1 + random.IntN(128),
				MemoryMiB:   512 + random.IntN(1<<20),
				GPUName:     pick(random, []string{"", "NVIDIA A30", "other"}),
				GPUCount:    random.IntN(9),
				Disks:       []pricing.Disk{{GiB: random.IntN(16384), Type: pick(random, []v1alpha1.DiskMedium{v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD})}},
				BillingPlan: pick(random, []v1alpha1.BillingPlan{v1alpha1.BillingPlanOnDemand, v1alpha1.BillingPlanSavingPlan}),
			}
			less := price(item)
			Expect(less).To(BeNumerically(">", 0))
			for name, change := range map[string]func(*pricing.Item){
				"CPU":    func(i *pricing.Item) { i.CPU++ },
				"memory": func(i *pricing.Item) { i.MemoryMiB++ },
				"GPU":    func(i *pricing.Item) { i.GPUCount++ },
				"disk":   withDisk(1, v1alpha1.DiskMediumHDD),
			} {
				more := item
				change(&more)
				Expect(price(more)).To(BeNumerically(">", less), "one more %s of %+v", name, item)
			}
		}
	})
	It("should never make a GPU server the cheapest of its size", func() {
		Expect(price(with(func(i *pricing.Item) { i.GPUCount = 1; i.GPUName = "T4" }))).To(BeNumerically(">", 1.5*price(base)))
	})
	It("should be those of another table, where one is given", func() {
		table := lo.Must(pricing.ParseTable(lo.Must(os.ReadFile("table.yaml"))))
		table.Categories["premium"] = pricing.ComputeRates{CPU: 1, MemoryGiB: 1}
		table.Generations = map[string]float64{"4a": 2}
		prices = table
		Expect(price(base)).To(Equal(30.0))
		Expect(price(with(func(i *pricing.Item) { i.Generation = "4a" }))).To(Equal(60.0))
	})
	It("should take from the built-in table what another one does not give", func() {
		table := lo.Must(pricing.ParseTable([]byte("categories: {premium: {cpu: 400}}\ngpus: {b200: 200000}\ndisks: {SSD: 4}")))
		builtIn := pricing.DefaultTable()
		Expect(table.Categories).To(Equal(lo.Assign(builtIn.Categories, map[string]pricing.ComputeRates{
			"premium": {CPU: 400, MemoryGiB: builtIn.Categories["premium"].MemoryGiB},
		})))
		Expect(table.GPUs).To(Equal(lo.Assign(builtIn.GPUs, map[string]float64{"b200": 200000})))
		Expect(table.Disks).To(Equal(map[v1alpha1.DiskMedium]float64{v1alpha1.DiskMediumSSD: 4, v1alpha1.DiskMediumHDD: builtIn.Disks[v1alpha1.DiskMediumHDD]}))
		Expect(table.BillingPlans).To(Equal(builtIn.BillingPlans))
		Expect(builtIn.Categories["premium"].CPU).To(Equal(412.5), "the built-in table is shared")
	})
	DescribeTable("should reject a table that would break comparison, naming the field",
		func(text, message string) {
			Expect(pricing.ParseTable([]byte(text))).Error().To(MatchError(ContainSubstring(message)))
		},
		Entry("not YAML", "{", "parsing the price table"),
		Entry("no table", "5", "parsing the price table"),
		Entry("an empty table", "", "remove it to use the built-in one"),
		Entry("a field that does not exist", "cpus: 1", `unknown field "cpus"`),
		Entry("a field that does not exist inside", "categories: {basic: {gpu: 1}}", `unknown field "categories.basic.gpu"`),
		Entry("a field in other letters", "Disks: {SSD: 4}", `unknown field "Disks"`),
		Entry("a field in other letters inside", "categories: {premium: {CPU: 450}}", `unknown field "categories.premium.CPU"`),
		Entry("a field that is given twice", "disks: {SSD: 4}\ndisks: {HDD: 2}", `"disks" already set`),
		Entry("a category that no flavor has", "categories: {Premium: {cpu: 1, memoryGiB: 1}}", `categories has ["Premium"], by which nothing is priced`),
		Entry("a generation that no flavor has", "generations: {'4A': 1.1}", `generations has ["4A"], by which nothing is priced`),
		Entry("a GPU in capital letters", "gpus: {A100: 5}", `gpus has ["A100"], by which nothing is priced`),
		Entry("a GPU by several words", "gpus: {a100-80gb: 5}", `gpus has ["a100-80gb"], by which nothing is priced`),
		Entry("a medium that no disk has", "disks: {ssd: 4}", `disks has ["ssd"], by which nothing is priced: use SSD or HDD`),
		Entry("a plan that no server has", "billingPlans: {on_demand: {compute: 1, disk: 1}}", `billingPlans has ["on_demand"]`),
		Entry("a rate of 0", "categories: {basic: {cpu: 0, memoryGiB: 1}}", "categories.basic.cpu is 0"),
		Entry("half a category that the built-in table does not know", "categories: {quantum: {cpu: 1}}", "categories.quantum.memoryGiB is 0"),
		Entry("a rate that is no number", "categories: {basic: {cpu: 1, memoryGiB: .nan}}", "NaN"),
		Entry("text in place of a section", "categories: many", "categories"),
		Entry("a negative factor", "generations: {'4a': -1}", "generations.4a is -1"),
		Entry("a free GPU", "gpus: {a30: 0}", "gpus.a30 is 0"),
		Entry("a free medium", "disks: {SSD: 0}", "disks.SSD is 0"),
		Entry("a plan without a factor", "billingPlans: {"+string(v1alpha1.BillingPlanSavingPlan)+": {compute: 0}}",
			"billingPlans."+string(v1alpha1.BillingPlanSavingPlan)+".compute is 0"),
	)
})
