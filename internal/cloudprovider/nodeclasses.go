// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxFailures is with how many different offerings, of more than one flavor, NodeClaims of one NodeClass may fail before the NodeClass itself
// is suspected.
const maxFailures = 3

// nodeClasses marks NodeClasses unavailable whose launches fail. Nodes that do not register cost money until that is known, so a
// NodeClass with such nodes is half-open after its pause: one launch at a time is tried; its node's registration ends the
// pause, its failure prolongs it. It is in memory: after a restart, three failures show again what is wrong.
type nodeClasses struct {
	clock    clock.Clock
	marks    *capacity.DefaultProvider
	recorder karpevents.Recorder

	mu sync.Mutex
	// known is by NodeClassKey, so that a changed spec or image starts from zero.
	known *cache.Cache
}

// launches is what is remembered of the launches of one NodeClass. It is replaced, never changed.
type launches struct {
	// failures are those that accuse the NodeClass, one for each NodeClaim.
	failures map[types.UID]failedLaunch
	// last is why the NodeClass was marked last, and until when it is.
	last  failure
	until time.Time
	// suspected is true for a mark that only follows from failures of several offerings: a node that registers ends it.
	suspected bool
	// pauses is how often launches paused since a node registered last, and trial the NodeClaim that is tried after the last pause.
	pauses int
	trial  types.UID
}

type failedLaunch struct {
	offering capacity.Offering
	// counts is until when it counts.
	counts time.Time
	// notRegistered is true for a node that did not register.
	notRegistered bool
}

// of returns what is remembered of the NodeClass as it is now; the caller holds the lock.
func (n *nodeClasses) of(nodeClass *v1alpha1.BizflyNodeClass) (launches, capacity.Offering) {
	key := capacity.NodeClassKey(nodeClass)
	known, _ := n.known.Get(key)
	l, _ := known.(launches)
	return l, capacity.Offering{NodeClass: key}
}

// failed counts a failure that accuses the NodeClass, and marks the NodeClass when offerings of several NodeClaims have failed. The period is that
// of the offering's mark.
func (n *nodeClasses) failed(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim types.UID, offering capacity.Offering, f failure,
	period time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, scope := n.of(nodeClass)
	now, notRegistered := n.clock.Now(), f.reason == ReasonNotRegistered
	l.failures = lo.PickBy(l.failures, func(_ types.UID, failed failedLaunch) bool { return now.Before(failed.counts) })
	if _, counted := l.failures[claim]; !counted || notRegistered {
		counts := now.Add(lo.Ternary(notRegistered, ttl.NotRegistered, ttl.NodeClassFailures))
		l.failures[claim] = failedLaunch{offering, counts, notRegistered}
	}
	all := lo.Values(l.failures)
	unregistered, others := lo.FilterReject(all, func(failed failedLaunch, _ int) bool { return failed.notRegistered })
	if l.pauses > 0 {
		all = others // nodes that did not register have led to trials: with them, each single failure would end one
	}
	switch {
	case notRegistered && (l.pauses == 0 && accuse(unregistered) || l.pauses > 0 && l.trial == claim):
		period = min(ttl.FirstPause<<min(l.pauses, 8), ttl.MaxLaunchPause)
		l.pauses++
	case !accuse(all), oneOfSeveralZones(nodeClass, all):
		n.known.SetDefault(scope.NodeClass, l)
		return
	default:
		// Shorter than the marks of the offerings that failed, so that the next launches try others. Counted anew, or the first of these that fails
		// would pause it again.
		period = min(period/3, ttl.MaxLaunchPause)
		l.failures = lo.PickBy(l.failures, func(_ types.UID, failed failedLaunch) bool { return failed.notRegistered })
	}
	n.pause(ctx, nodeClass, claim, f, l, period, true)
}

// accuse reports whether the failures have in common only their NodeClass. One flavor alone, in however many zones, is itself at fault.
func accuse(failures []failedLaunch) bool {
	offerings := lo.UniqMap(failures, func(failed failedLaunch, _ int) capacity.Offering { return failed.offering })
	flavors := lo.UniqMap(offerings, func(offering capacity.Offering, _ int) string { return offering.Flavor })
	return len(offerings) >= maxFailures && len(flavors) > 1
}

// oneOfSeveralZones reports whether all failures were in one zone, which is then at fault, of a NodeClass that has others.
func oneOfSeveralZones(nodeClass *v1alpha1.BizflyNodeClass, failures []failedLaunch) bool {
	zones := lo.UniqMap(failures, func(failed failedLaunch, _ int) string { return failed.offering.Zone })
	return len(zones) == 1 && len(nodeClass.Status.Zones) > 1
}

// mark marks the NodeClass unavailable for a failure that is known to be its own.
func (n *nodeClasses) mark(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim types.UID, f failure, period time.Duration) {
	if nodeClass == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l, _ := n.of(nodeClass)
	n.pause(ctx, nodeClass, claim, f, l, period, false)
}

// pause marks the NodeClass and reports it once, although launches that were under way fail in the same way; the caller holds the lock.
func (n *nodeClasses) pause(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim types.UID, f failure, l launches, period time.Duration,
	suspected bool) {
	scope := capacity.Offering{NodeClass: capacity.NodeClassKey(nodeClass)}
	if l.trial == claim {
		// The trial's mark is longer, and would end with its NodeClaim: nothing would be left of this one.
		l.trial, l.until = "", time.Time{}
		n.marks.MarkAvailable(scope)
	}
	news := n.marks.MarkAll(ctx, []capacity.Offering{scope}, f.reason, period)
	l.last, l.until, l.suspected = f, lo.Latest(l.until, n.clock.Now().Add(period)), suspected && (news || l.suspected)
	n.known.SetDefault(scope.NodeClass, l)
	if news {
		n.recorder.Publish(events.LaunchesPaused(nodeClass, f.reason, period, f.err))
	}
}

// admit returns an error where launches with the NodeClass pause, and reports whether this one is the trial after a pause.
func (n *nodeClasses) admit(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) (trial bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, scope := n.of(nodeClass)
	if reason, marked := n.marks.Unavailable(capacity.Offering{}); marked {
		return false, fmt.Errorf("all launches pause: %s", reason)
	}
	if _, marked := n.marks.Unavailable(scope); marked && l.last.err != nil {
		return false, fmt.Errorf("launches with BizflyNodeClass %q pause: %w", nodeClass.Name, l.last.err)
	}
	if l.pauses == 0 {
		return false, nil
	}
	l.trial = claim
	n.hold(scope, l, lifecycle.LaunchTimeout+time.Minute)
	return true, nil
}

// hold keeps every other launch away while the trial is under way; the caller holds the lock.
func (n *nodeClasses) hold(scope capacity.Offering, l launches, period time.Duration) {
	n.marks.MarkUnavailable(context.Background(), scope, capacity.ReasonTrial, period)
	n.known.SetDefault(scope.NodeClass, l)
}

// launched allows the trial that has its server the time to register.
func (n *nodeClasses) launched(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l, scope := n.of(nodeClass); l.trial == claim {
		n.hold(scope, l, ttl.TrialRegistration)
	}
}

// registered forgets the failures of the NodeClass, and ends the mark that only follows from them: a node that registers shows that the
// NodeClass works, and so that the offerings are at fault. A pause after unregistered nodes ends when the node is the trial's.
func (n *nodeClasses) registered(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, scope := n.of(nodeClass)
	switch {
	case l.pauses > 0 && l.trial == claim:
		n.marks.MarkAvailable(scope)
		n.known.Delete(scope.NodeClass)
	case l.pauses == 0 && (len(l.failures) > 0 || l.suspected):
		if l.suspected {
			n.marks.MarkAvailable(scope)
			l.suspected, l.until = false, time.Time{}
		}
		l.failures = nil
		n.known.SetDefault(scope.NodeClass, l)
	}
}

// release lets another NodeClaim be the trial when this one ended without a result.
func (n *nodeClasses) release(claim types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, item := range n.known.Items() {
		if l := item.Object.(launches); l.trial == claim {
			l.trial = ""
			n.known.SetDefault(key, l)
			n.marks.MarkAvailable(capacity.Offering{NodeClass: key})
		}
	}
}

// blocked returns why launches with the NodeClass pause and until when, and a nil cause while they do not.
func (n *nodeClasses) blocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, _ := n.of(nodeClass)
	if l.pauses == 0 && !n.clock.Now().Before(l.until) {
		return "", time.Time{}, nil
	}
	return l.last.reason, l.until, l.last.err
}
