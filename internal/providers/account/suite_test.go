// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/account"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestAccount(t *testing.T) { suite.Run(t, "Account") }

// api answers what is set, and counts.
type api struct {
	unpaid string
	err    error
	asked  int
}

// Account implements account.API.
func (a *api) Account(context.Context) (bizfly.Account, error) {
	a.asked++
	return bizfly.Account{Unpaid: a.unpaid}, a.err
}

var _ = Describe("What is unpaid", func() {
	const debt = "the account's balance is negative"
	var (
		ctx      = context.Background()
		asked    *api
		clk      *clocktesting.FakeClock
		provider *account.Provider
	)
	BeforeEach(func() {
		asked, clk = &api{unpaid: debt}, clocktesting.NewFakeClock(time.Now())
		provider = account.NewProvider(asked, clk)
	})
	It("should be asked once a minute for all who want to know", func() {
		for range 20 {
			Expect(provider.Unpaid(ctx)).To(Equal(debt))
		}
		Expect(asked.asked).To(Equal(1))
		asked.unpaid = ""
		clk.Step(ttl.Account)
		Expect(provider.Unpaid(ctx)).To(BeEmpty())
	})
	It("should be asked less often at rest, as long as nothing is unpaid", func() {
		asked.unpaid = ""
		for range 5 {
			Expect(provider.UnpaidAtRest(ctx)).To(BeEmpty())
			clk.Step(ttl.Account)
		}
		Expect(asked.asked).To(Equal(1))
		asked.unpaid = debt
		Expect(provider.UnpaidAtRest(ctx)).To(Equal(debt))
		clk.Step(ttl.Account)
		asked.unpaid = ""
		Expect(provider.UnpaidAtRest(ctx)).To(BeEmpty())
	})
	It("should stay known, with an error, while the account cannot be asked", func() {
		Expect(provider.Unpaid(ctx)).To(Equal(debt))
		asked.unpaid, asked.err = "", errors.New("down")
		clk.Step(ttl.Account)
		unpaid, err := provider.Unpaid(ctx)
		Expect(unpaid).To(Equal(debt))
		Expect(err).To(MatchError(ContainSubstring("down")))
	})
	It("should be nothing where the account was never asked with success", func() {
		asked.err = errors.New("down")
		unpaid, err := provider.Unpaid(ctx)
		Expect(unpaid).To(BeEmpty())
		Expect(err).To(HaveOccurred())
	})
})
