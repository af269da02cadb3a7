// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

var _ = Describe("The log", func() {
	// lines are what a controller logs that exits because of its password.
	lines := func() []string {
		GinkgoHelper()
		ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
		defer cancel()
		output, err := neverReached().RunController(ctx, map[string]string{"BIZFLY_CLOUD_PASSWORD": markedWrong})
		Expect(err).To(MatchError("exit status 1"), output)
		return lo.Filter(strings.Split(strings.TrimSpace(output), "\n"), func(line string, _ int) bool { return !strings.Contains(line, "cannot start") })
	}

	It("should be JSON, and begin with what is being started", func() {
		logged := lines()
		for _, line := range logged {
			Expect(json.Valid([]byte(line))).To(BeTrue(), line)
		}
		Expect(logged).To(ContainElement(And(ContainSubstring(`"starting karpenter-provider-bizflycloud"`), ContainSubstring(`"version":`),
			ContainSubstring(`"revision":`))))
	})
})
