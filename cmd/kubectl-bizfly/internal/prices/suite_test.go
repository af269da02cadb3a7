// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package prices_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/prices"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestPrices(t *testing.T) { suite.Run(t, "Prices") }

// read reads plans that are written down.
func read(text string, options prices.Options) *prices.Result {
	GinkgoHelper()
	plans, err := prices.Plans([]byte(text))
	Expect(err).ToNot(HaveOccurred())
	result, err := prices.Read(plans, options)
	Expect(err).ToNot(HaveOccurred())
	return result
}

var _ = Describe("A price list", func() {
	var list string
	BeforeEach(func() {
		saved, err := os.ReadFile("testdata/plans.json")
		Expect(err).ToNot(HaveOccurred())
		list = string(saved)
	})

	It("should become rates on demand, which the controller accepts and takes for derived", func() {
		result := read(list, prices.Options{Region: "HN", Per: "month"})
		// 180,000 a month are 250 an hour as a subscription and 375 on demand; 57,600 are 80 and 120; 2,600 are 3.61 and 4.69 for a disk.
		Expect(result.Prices).To(MatchYAML(`
categories:
  premium: {cpu: 375, memoryGiB: 150}
  basic: {cpu: 300, memoryGiB: 120}
disks: {SSD: 4.6944}
sources:
  categories.premium.cpu: derived
  categories.premium.memoryGiB: derived
  categories.basic.cpu: derived
  categories.basic.memoryGiB: derived
  disks.SSD: derived
`))
		table, err := pricing.ParseTable([]byte(result.Prices))
		Expect(err).ToNot(HaveOccurred())
		Expect(table.Categories["premium"]).To(Equal(pricing.ComputeRates{CPU: 375, MemoryGiB: 150}))
		Expect(table.Categories["dedicated"]).To(Equal(pricing.DefaultTable().Categories["dedicated"]), "what the list does not know stays")
	})

	It("should list every line that is not used, with the reason", func() {
		result := read(list, prices.Options{Region: "HaNoi"})
		Expect(lo.Map(result.Unused, func(l prices.Line, _ int) string { return l.String() })).To(HaveExactElements(
			"cpu_a_month (CPU PR HoChiMinh): it is of another region",
			"cpu_a_month (CPU BS HaNoi): the list has no categories.basic.memoryGiB, without which it is not used",
			"cpu_a_month (CPU ZZ HaNoi): its category is not known",
			"ram_a_month (RAM BS HaNoi): it does not say whether its price is per hour or per month (--per)",
			"hdd_tiers (HDD PR): 1300 VND per month for disks.HDD, for which another line has 1500 VND per month",
			"hdd_tiers (HDD EP): 1500 VND per month for disks.HDD, for which another line has 1300 VND per month",
			"data_transfer (Data Transfer DF): its product is none of CPU, RAM, HDD and SSD",
			"without_prices (CPU): it has no unit_prices",
			"strange (CPU DC): its price is not a number above 0: none",
			HavePrefix(`a plan without a name (of nothing that is named): it is written otherwise than expected: {"name": ["not"`),
		))
		Expect(result.Used).To(HaveLen(3))
	})

	It("should use nothing in which regions differ, where none is named", func() {
		result := read(list, prices.Options{})
		Expect(result.Prices).ToNot(ContainSubstring("categories.premium.cpu"))
		Expect(result.Unused).To(ContainElement(HaveField("Reason", ContainSubstring("190000 VND per month for categories.premium.cpu"))))
	})

	DescribeTable("should never be guessed", func(unit, reason string) {
		result := read(fmt.Sprintf(`{"plans": [{"name": "p", "product": {"name": "CPU"}, "unit_prices": [%s]}], "total": 1}`, unit), prices.Options{})
		Expect(result.Prices).To(BeEmpty())
		Expect(result.Unused).To(HaveExactElements(HaveField("Reason", ContainSubstring(reason))))
	},
		Entry("a price of zero", `{"category_code": "PR", "price": 0, "billing_cycle": "month"}`, "not a number above 0"),
		Entry("a price that is text", `{"category_code": "PR", "price": "a lot", "billing_cycle": "month"}`, "not a number above 0"),
		Entry("a price that is no finite number", `{"category_code": "PR", "price": "NaN", "billing_cycle": "month"}`, "not a number above 0"),
		Entry("a price without end", `{"category_code": "PR", "price": "Inf", "billing_cycle": "month"}`, "not a number above 0"),
		Entry("a cycle that is not public", `{"category_code": "PR", "price": 1, "billing_cycle": "year"}`, `per "year"`),
		Entry("a region that is not known", `{"category_code": "PR", "region_name": "Mars", "price": 1, "billing_cycle": "month"}`, "region is not known"),
		Entry("CPU without a category", `{"category_code": "DF", "price": 1, "billing_cycle": "month"}`, "it has no category"),
	)

	DescribeTable("should be a list", func(text string) {
		_, err := prices.Plans([]byte(text))
		Expect(err).To(HaveOccurred())
	},
		Entry("and no page of HTML", "<html>"), Entry("and no message", `{"message": "not found"}`), Entry("and not two lists", `{"a": [], "b": []}`),
	)

	It("should be for an hour or a month", func() {
		_, err := prices.Read(nil, prices.Options{Per: "week"})
		Expect(err).To(MatchError(ContainSubstring("week")))
		_, err = prices.Read(nil, prices.Options{Region: "Mars"})
		Expect(err).To(HaveOccurred())
	})

	It("should be read page by page, without a credential", func() {
		var headers []http.Header
		answer := func(http.ResponseWriter, string) {}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			headers = append(headers, r.Header)
			Expect(r.URL.Query().Get("embedded")).To(Equal(`["product","unit_prices"]`))
			answer(w, r.URL.Query().Get("page"))
		}))
		DeferCleanup(server.Close)
		page := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`{"name":"p"},`, n), ",") + "]" }
		fetch := func() ([]json.RawMessage, error) {
			return prices.Fetch(context.Background(), strings.Replace(server.URL, "://", "://user:password@", 1)+"/api/v4/plans")
		}
		answer = func(w http.ResponseWriter, p string) {
			_, _ = w.Write([]byte(page(map[string]int{"1": 100, "2": 7}[p])))
		}
		Expect(fetch()).To(HaveLen(107))
		answer = func(w http.ResponseWriter, _ string) { _, _ = w.Write([]byte(page(100))) }
		Expect(fetch()).To(HaveLen(100), "a service without pages")
		for _, header := range headers {
			Expect(lo.Keys(header)).To(ConsistOf("Accept", "Accept-Encoding", "User-Agent"))
		}
		answer = func(w http.ResponseWriter, p string) {
			_, _ = fmt.Fprintf(w, `[%s{"name":"%s"}]`, strings.Repeat(`{},`, 99), p)
		}
		_, err := fetch()
		Expect(err).To(MatchError(ContainSubstring("more than 50 pages")))
		for status, said := range map[int]string{http.StatusUnauthorized: "401", http.StatusFound: "302", http.StatusBadGateway: "502"} {
			answer = func(w http.ResponseWriter, _ string) {
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(status)
			}
			_, err = fetch()
			Expect(err).To(MatchError(ContainSubstring("the price list answers " + said)))
		}
		server.Close()
		_, err = fetch()
		Expect(err).To(MatchError(ContainSubstring("does not answer")))
		_, err = prices.Fetch(context.Background(), "file:///etc/passwd")
		Expect(err).To(MatchError(ContainSubstring("no URL")))
	})
})
