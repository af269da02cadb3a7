// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

var _ = Describe("What follows from a failed launch", func() {
	const (
		offering = 3 * time.Minute
		account  = time.Minute
	)
	of := func(class bizfly.Class, scope bizfly.ErrorScope) error {
		return &bizfly.APIError{Class: class, Scope: scope}
	}

	DescribeTable("should be in one table", func(err error, known bool, wanted consequence) {
		Expect(consequenceOf(classify(err, known), periods{offering: offering, account: account})).To(Equal(wanted))
	},
		func(err error, known bool, wanted consequence) string {
			return fmt.Sprintf("%.60v (flavor known: %v) makes %v unavailable for %s", err, known, wanted.scopes, wanted.period)
		},
		Entry(nil, of(bizfly.ClassBalance, bizfly.ScopeAccount), true,
			consequence{scopes: []scope{bizfly.ScopeAccount}, reason: capacity.ReasonBalanceExhausted, period: account}),
		Entry(nil, of(bizfly.ClassAuth, bizfly.ScopeAccount), true,
			consequence{scopes: []scope{bizfly.ScopeAccount}, reason: ReasonLaunchAuthenticationFailed, period: account}),
		Entry(nil, of(bizfly.ClassQuota, bizfly.ScopeSize), true,
			consequence{scopes: []scope{bizfly.ScopeSize}, reason: capacity.ReasonQuotaExceeded, period: ttl.RejectedSize}),
		Entry(nil, of(bizfly.ClassQuota, bizfly.ScopeSize), false,
			consequence{scopes: []scope{bizfly.ScopeNodeClass}, reason: capacity.ReasonQuotaExceeded, period: offering}),
		Entry(nil, of(bizfly.ClassQuota, bizfly.ScopeNodeClass), true,
			consequence{scopes: []scope{bizfly.ScopeNodeClass}, reason: capacity.ReasonQuotaExceeded, period: offering}),
		Entry(nil, of(bizfly.ClassInvalid, bizfly.ScopeNetwork), true,
			consequence{scopes: []scope{bizfly.ScopeNodeClass}, reason: ReasonLaunchRequestInvalid, period: offering}),
		Entry(nil, fmt.Errorf("%w: the template fails", instance.ErrNotPrepared), true,
			consequence{scopes: []scope{bizfly.ScopeNodeClass}, reason: ReasonLaunchNotPrepared, period: offering}),

		Entry(nil, of(bizfly.ClassCapacity, bizfly.ScopeOffering), true, consequence{scopes: []scope{bizfly.ScopeOffering},
			reason: capacity.ReasonInsufficientCapacity, period: offering, grows: true, next: true}),
		Entry(nil, of(bizfly.ClassCapacity, bizfly.ScopeZone), true, consequence{scopes: []scope{bizfly.ScopeZone, bizfly.ScopeOffering},
			reason: capacity.ReasonInsufficientCapacity, period: offering, grows: true, next: true}),
		Entry(nil, of(bizfly.ClassCapacity, bizfly.ScopePlan), true, consequence{scopes: []scope{bizfly.ScopePlan, bizfly.ScopeOffering},
			reason: capacity.ReasonInsufficientCapacity, period: offering, grows: true, next: true}),
		Entry(nil, of(bizfly.ClassCapacity, bizfly.ScopeCategory), true, consequence{scopes: []scope{bizfly.ScopeCategory,
			bizfly.ScopeOffering},
			reason: capacity.ReasonInsufficientCapacity, period: offering, grows: true, next: true}),
		Entry(nil, of(bizfly.ClassCapacity, bizfly.ScopeCategory), false, consequence{scopes: []scope{bizfly.ScopeOffering},
			reason: capacity.ReasonInsufficientCapacity, period: offering, grows: true, next: true}),

		Entry(nil, of(bizfly.ClassConflict, bizfly.ScopeOffering), true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchConflict, period: offering, grows: true, accuses: true, next: true}),
		Entry(nil, of(bizfly.ClassConflict, bizfly.ScopeZone), true, consequence{scopes: []scope{bizfly.ScopeZone, scopeOwn},
			reason: ReasonLaunchConflict, period: offering, grows: true, accuses: true, next: true}),
		Entry(nil, of(bizfly.ClassInvalid, bizfly.ScopeNodeClass), true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchRequestInvalid, period: offering, grows: true, accuses: true}),
		Entry(nil, of(bizfly.ClassPermission, bizfly.ScopeNodeClass), true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchPermissionDenied, period: offering, grows: true, accuses: true}),
		Entry(nil, of(bizfly.ClassNotFound, bizfly.ScopeNodeClass), true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchResourceNotFound, period: offering, grows: true, accuses: true}),
		Entry(nil, errors.New("words that nothing recognises"), true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchFailed, period: offering, grows: true, accuses: true, next: true}),
		Entry(nil, instance.ErrOutcomeUnknown, true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonLaunchOutcomeUnknown, period: offering, grows: true, accuses: true, next: true}),
		Entry(nil, ErrNotRegistered, true, consequence{scopes: []scope{scopeOwn},
			reason: ReasonNotRegistered, period: ttl.NotRegistered, accuses: true, next: true}),
	)
	It("should make something unavailable for every class and scope, and name a reason", func() {
		classes := []bizfly.Class{bizfly.ClassUnknown}
		for class := range classReasons {
			classes = append(classes, class)
		}
		for _, class := range classes {
			for _, reach := range []scope{bizfly.ScopeOffering, bizfly.ScopePlan, bizfly.ScopeZone,
				bizfly.ScopeCategory,
				bizfly.ScopeNetwork, bizfly.ScopeSize, bizfly.ScopeNodeClass, bizfly.ScopeAccount} {
				for _, known := range []bool{true, false} {
					got := consequenceOf(classify(of(class, reach), known), periods{offering: offering, account: account})
					Expect(got.scopes).ToNot(BeEmpty(), "%v %v", class, reach)
					Expect(got.period).To(BeNumerically(">", 0), "%v %v", class, reach)
					Expect(got.reason).ToNot(BeEmpty(), "%v %v", class, reach)
				}
			}
		}
	})
})
