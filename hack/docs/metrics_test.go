// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

var _ = Describe("The page of metrics", func() {
	It("should have what an operator of a cluster looks for, each with its type and labels", func() {
		page, err := metricsPage()
		Expect(err).NotTo(HaveOccurred())
		for _, line := range []string{
			"| `karpenter_bizfly_api_request_duration_seconds` | histogram | `route`, `method`, `status`, `outcome` |",
			"| `karpenter_bizfly_api_admission_wait_seconds` | histogram | `class` |",
			"| `karpenter_bizfly_api_logins_total` | counter | `outcome` |",
			"| `karpenter_bizfly_api_outage` | gauge |  |",
			"| `karpenter_bizfly_build_info` | gauge | `version`, `commit`, `goversion` |",
			"| `karpenter_bizfly_catalog_age_seconds` | gauge |  |",
			"| `karpenter_cloudprovider_instance_type_offering_price_estimate` | gauge | `nodeclass`, `instance_type`, `zone`, `capacity_type`, `source` |",
		} {
			Expect(page).To(ContainSubstring(line))
		}
	})
	It("should be the same each time", func() {
		first, err := metricsPage()
		Expect(err).NotTo(HaveOccurred())
		Expect(metricsPage()).To(Equal(first))
	})
	It("should complain about a label without a description", func() {
		_, err := labelRows([]metric{{name: "karpenter_bizfly_new", labels: []string{"mystery"}}})
		Expect(err).To(MatchError(ContainSubstring("label mystery of karpenter_bizfly_new has no description")))
	})
	It("should read quotes and labels as they are described", func() {
		Expect(parse(`Desc{fqName: "a_b", help: "says \"x\" | y, or {z}", constLabels: {}, variableLabels: {l1,l2}}`)).
			To(Equal(metric{name: "a_b", help: `says "x" \| y, or {z}`, labels: []string{"l1", "l2"}}))
	})
	It("should know every package that counts", func(ctx context.Context) {
		counts := regexp.MustCompile(`(prometheus|opmetrics|factory)\.New(Prometheus)?(Counter|Gauge|Histogram|Summary|Desc)|\bmetrics\.(Counter|Gauge|Histogram)\(`)
		var counting []string
		root := filepath.Join("..", "..")
		Expect(filepath.WalkDir(filepath.Join(root, "internal"), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if counts.Match(content) {
				relative, _ := filepath.Rel(root, filepath.Dir(path))
				counting = append(counting, "github.com/bizflycloud/karpenter-provider-bizflycloud/"+filepath.ToSlash(relative))
			}
			return err
		})).To(Succeed())
		Expect(counting).NotTo(BeEmpty())
		output, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(string(output))).To(ContainElements(lo.ToAnySlice(lo.Uniq(counting))...), "import what is missing in metrics.go")
	})
})
