// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestDocs(t *testing.T) { suite.Run(t, "Docs") }

var _ = Describe("docs", func() {
	It("should print a page", func() {
		Expect(page([]string{"reference/options"})).To(ContainSubstring("## Tuning keys"))
	})
	It("should print the catalog that the kubectl plugin embeds", func() {
		embedded, err := os.ReadFile("../../cmd/kubectl-bizfly/internal/offline/catalog.json")
		Expect(err).NotTo(HaveOccurred())
		Expect(page([]string{"catalog"})).To(MatchJSON(embedded), "make generate writes it")
	})
	It("should list the pages", func() {
		for _, args := range [][]string{nil, {"other"}, {"reference/options", "other"}} {
			_, err := page(args)
			Expect(err).To(MatchError(ContainSubstring("reference/options")))
		}
	})
})
