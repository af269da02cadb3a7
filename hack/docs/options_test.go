// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

var _ = Describe("The page of options", func() {
	It("should have every variable with its flag, default and meaning, ours and core's", func() {
		page, err := optionsPage()
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{
			"| `LAUNCH_TIMEOUT` | `3m` |", "| `CREATE_PROVIDER_CONFIG` | `true` |", "| `BIZFLY_CLOUD_REGION_LABEL`, `--region-label` | - |",
			"| `CLUSTER_NAME` | - |", "| `BKE_CLUSTER_TOKEN` |",
			"- `BATCH_IDLE_DURATION=1s`\n", "- `DISABLE_LEADER_ELECTION=false`\n",
		} {
			Expect(page).To(ContainSubstring(text))
		}
	})
	It("should have a complete row for every tuning key, with the option that has its default", func() {
		page, err := optionsPage()
		Expect(err).NotTo(HaveOccurred())
		for _, setting := range options.Table() {
			if setting.Key != "" {
				Expect(page).To(MatchRegexp("(?m)^\\| `%s`(, `%s`)? (\\| [^|]+ ){3}\\|$", setting.Key, setting.Variable))
			}
		}
	})
})
