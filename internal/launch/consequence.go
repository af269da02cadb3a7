// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"slices"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// ErrNotRegistered is the failure of a launch whose server came up and whose node did not register in time.
var ErrNotRegistered = errors.New("the node did not register within core's registration timeout of 15 minutes")

// classReasons name the classes of errors; any other is a launch that failed.
var classReasons = map[bizfly.Class]string{
	bizfly.ClassCapacity:   capacity.ReasonInsufficientCapacity,
	bizfly.ClassQuota:      capacity.ReasonQuotaExceeded,
	bizfly.ClassBalance:    capacity.ReasonBalanceExhausted,
	bizfly.ClassInvalid:    ReasonLaunchRequestInvalid,
	bizfly.ClassPermission: ReasonLaunchPermissionDenied,
	bizfly.ClassAuth:       ReasonLaunchAuthenticationFailed,
	bizfly.ClassNotFound:   ReasonLaunchResourceNotFound,
	bizfly.ClassConflict:   ReasonLaunchConflict,
}

// failure is a failed launch, classified. One that was not sent, or that the rate limit held back, is none: it is sent
// again.
type failure struct {
	err    error
	reason string
	class  bizfly.Class
	scope  bizfly.ErrorScope
	// flavorKnown is true where the flavor is in the catalog, so that its size and category are known.
	flavorKnown bool
}

// classify returns the failure of a launch.
func classify(err error, flavorKnown bool) failure {
	class := bizfly.ClassOf(err)
	f := failure{err: err, reason: lo.CoalesceOrEmpty(classReasons[class], ReasonLaunchFailed), class: class,
		scope: bizfly.ScopeOf(err), flavorKnown: flavorKnown}
	switch {
	case errors.Is(err, instance.ErrOutcomeUnknown):
		f.reason = ReasonLaunchOutcomeUnknown
	case errors.Is(err, instance.ErrNotPrepared):
		f.reason = ReasonLaunchNotPrepared
	case errors.Is(err, ErrNotRegistered):
		f.reason = ReasonNotRegistered
	}
	return f
}

// ofNodeClass reports whether every other offering of the NodeClass meets the same: a quota, a network without
// addresses, user data.
func (f failure) ofNodeClass() bool {
	return f.class == bizfly.ClassQuota || f.scope == bizfly.ScopeNetwork || f.reason == ReasonLaunchNotPrepared
}

// lacksResources reports whether the account or the cloud lacks something, so that nothing is wrong with the request.
func (f failure) lacksResources() bool {
	return f.ofAccount() || f.class == bizfly.ClassCapacity || f.class == bizfly.ClassQuota
}

// ofAccount reports whether every other launch would fail too.
func (f failure) ofAccount() bool {
	return f.class == bizfly.ClassBalance || f.class == bizfly.ClassAuth
}

// scope is what a failure makes unavailable, seen from the offering that was tried.
type scope = bizfly.ErrorScope

// scopeOwn is that offering, for its NodeClass alone.
const scopeOwn scope = "Own"

// consequence is what follows from a failed launch.
type consequence struct {
	// scopes are unavailable for the period, under the reason.
	scopes []scope
	reason string
	period time.Duration
	// grows is true where each failure in a row doubles the period of the offering.
	grows bool
	// accuses is true where the failure counts against the NodeClass: it may be at fault.
	accuses bool
	// next is true where another offering may be tried for the same NodeClaim.
	next bool
}

// covers reports whether the scope is one of them.
func (c consequence) covers(wanted scope) bool { return slices.Contains(c.scopes, wanted) }

// periods are those that a user may change.
type periods struct{ offering, account time.Duration }

// consequenceOf answers what follows from a launch that failed. Whatever BizFly Cloud says, the offering is unavailable
// for a while, unless the failure is proved to be the account's, the quota's or the NodeClass's; words can only add to
// that.
func consequenceOf(f failure, p periods) consequence {
	switch {
	case f.ofAccount():
		return consequence{scopes: []scope{bizfly.ScopeAccount}, reason: f.reason, period: p.account}
	case f.scope == bizfly.ScopeSize && f.flavorKnown:
		// The API has no call that reads a quota.
		return consequence{scopes: []scope{bizfly.ScopeSize}, reason: capacity.ReasonQuotaExceeded, period: ttl.RejectedSize}
	case f.ofNodeClass():
		return consequence{scopes: []scope{bizfly.ScopeNodeClass}, reason: f.reason, period: p.offering}
	}
	c := consequence{reason: f.reason, period: p.offering, grows: true, next: f.scope != bizfly.ScopeNodeClass}
	switch {
	case f.scope == bizfly.ScopeZone, f.scope == bizfly.ScopePlan, f.scope == bizfly.ScopeCategory && f.flavorKnown:
		c.scopes = []scope{f.scope}
	}
	if f.class == bizfly.ClassCapacity {
		c.scopes = append(c.scopes, bizfly.ScopeOffering)
		return c
	}
	c.scopes, c.accuses = append(c.scopes, scopeOwn), true
	if f.reason == ReasonNotRegistered {
		// The next launch takes as long to fail: a shorter mark would be over by then, and two offerings would be tried
		// in turn.
		c.period, c.grows = ttl.NotRegistered, false
	}
	return c
}
