// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
)

var _ = Describe("prices", func() {
	It("should print, offline, what the price list says of the table, and list the rest", func() {
		f := newFixture()
		f.reader = nil
		f.ResetRequests()
		Expect(f.run("prices", "--url", f.URL+"/api/v4/plans", "--region", "HN")).To(Equal(cli.ExitOK), f.err)
		table, err := pricing.ParseTable([]byte(f.out))
		Expect(err).ToNot(HaveOccurred())
		// The sandbox's own prices meet the one that is published, as the built-in table does.
		Expect(table.Categories["premium"].CPU).To(BeNumerically("~", pricing.DefaultTable().Categories["premium"].CPU, 0.001))
		Expect(table.Disks["HDD"]).To(BeNumerically("~", 2.5, 0.001))
		Expect(f.err).To(And(ContainSubstring("lines not used:"), ContainSubstring("data transfer_a_month (Data Transfer DF HaNoi)"),
			ContainSubstring("it is of another region")))
		Expect(f.Requests()).To(HaveLen(1))
		Expect(f.Requests()[0]).To(And(HaveField("Route", "/api/v4/plans"), HaveField("Status", 200)))
	})

	It("should print the ConfigMap that the controller reads", func() {
		f := newFixture()
		Expect(f.run("prices", "--from", "../prices/testdata/plans.json", "--region", "HN", "--configmap", "--controller-namespace", "system")).
			To(Equal(cli.ExitOK), f.err)
		var object corev1.ConfigMap
		Expect(yaml.UnmarshalStrict([]byte(f.out), &object)).To(Succeed())
		Expect(object.Name).To(Equal("karpenter-provider-bizflycloud-tuning"))
		Expect(object.Namespace).To(Equal("system"))
		Expect(pricing.ParseTable([]byte(object.Data["prices"]))).To(HaveField("Disks", HaveKeyWithValue(BeEquivalentTo("SSD"), BeNumerically("~", 4.69, 0.01))))
	})

	It("should fail where no line can be used, and list them", func() {
		f := newFixture()
		Expect(f.run("prices", "--from", written("plans.json", `[{"name": "p"}]`))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring("1 line not used:\n  p (of nothing that is named): it has no unit_prices"),
			ContainSubstring("no price that can be used. The price table of the controller stays as it is")))
	})

	DescribeTable("should fail with what remains and what can be done", func(said string, args ...string) {
		f := newFixture()
		Expect(f.run(append([]string{"prices"}, args...)...)).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring(said), ContainSubstring("The price table of the controller stays as it is"), ContainSubstring("--from")))
		Expect(f.out).To(BeEmpty())
	},
		Entry("where the host does not answer", "does not answer", "--url", "http://127.0.0.1:1/api/v4/plans"),
		Entry("where a file is missing", "no such file", "--from", "nowhere.json"),
	)
})
