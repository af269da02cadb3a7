// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package tuning_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	"github.com/samber/lo"
)

func TestTuning(t *testing.T) { suite.Run(t, "Tuning") }

// table is a price table in which a GPU of the newest kind costs this.
func table(gpu float64) string {
	return strings.Replace(string(lo.Must(os.ReadFile("../../pricing/table.yaml"))), "h100: 90000", fmt.Sprintf("h100: %g", gpu), 1)
}
