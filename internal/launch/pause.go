// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

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

// phase is whether launches with a NodeClass are sent.
type phase string

const (
	open   phase = ""
	paused phase = "paused"
	// trial is one launch that shows whether nodes of the NodeClass register again; all others wait for it.
	trial phase = "trial"
)

// state is what is remembered of the launches of one NodeClass. It is replaced, never changed.
type state struct {
	phase phase
	// until is when the pause, or the time of the trial, is over.
	until time.Time
	// cause is why launches paused last.
	cause failure
	// trialOf is the NodeClaim of the trial.
	trialOf types.UID
	// failedTrials counts the pauses since a node registered last that nodes led to which did not register. Such nodes
	// cost money until it is known, so that only a trial follows such a pause.
	failedTrials int
	// failures are those that accuse the NodeClass, one for each NodeClaim.
	failures map[types.UID]accusation
}

// accusation is one failure that may be the NodeClass's.
type accusation struct {
	offering capacity.Offering
	// until is how long it counts.
	until         time.Time
	notRegistered bool
}

// event is something that happens to the launches of a NodeClass.
type event struct {
	kind  eventKind
	now   time.Time
	claim types.UID
	// offering, failure, accuses and period are those of a failed launch, and severalZones is whether the NodeClass has
	// more than one.
	offering     capacity.Offering
	failure      failure
	accuses      bool
	period       time.Duration
	severalZones bool
}

type eventKind string

const (
	launchFailed   eventKind = "a launch fails"
	launchAdmitted eventKind = "a launch is admitted"
	serverLaunched eventKind = "the server has an id"
	nodeRegistered eventKind = "the node has registered"
	launchEnded    eventKind = "the launch has ended without a node"
)

// next returns the state after the event. It is the only place where a NodeClass pauses, tries and goes on.
//
//nolint:gocyclo // one case for each event
func next(s state, e event) state {
	if s.phase != open && !e.now.Before(s.until) {
		s.phase = open
	}
	ofTrial := s.trialOf != "" && s.trialOf == e.claim
	switch e.kind {
	case launchFailed:
		return nextAfterFailure(s, e, ofTrial)
	case launchAdmitted:
		if s.phase == open && s.failedTrials > 0 {
			s.phase, s.trialOf, s.until = trial, e.claim, e.now.Add(lifecycle.LaunchTimeout+time.Minute)
		}
	case serverLaunched:
		if ofTrial {
			s.phase, s.until = trial, e.now.Add(ttl.TrialRegistration)
		}
	case nodeRegistered:
		switch {
		case s.failedTrials > 0 && ofTrial:
			return state{}
		case s.failedTrials == 0:
			// The NodeClass works, so that the offerings are at fault. A quota is still exhausted.
			s.failures = nil
			if s.phase == paused && !s.cause.ofNodeClass() {
				s.phase = open
			}
		}
	case launchEnded:
		if ofTrial {
			s.phase, s.trialOf = open, ""
		}
	}
	return s
}

// nextAfterFailure counts a failure that accuses the NodeClass, and pauses for one that is its own or that others have
// confirmed.
func nextAfterFailure(s state, e event, ofTrial bool) state {
	period := e.period
	if e.accuses {
		s = accuse(s, e)
		registered, unregistered := splitAccusations(s.failures)
		switch {
		// Shorter than the marks of the offerings that failed, so that the next launches try others. Nodes that did not
		// register have led to trials: with them, each other failure would end one.
		case e.failure.reason == ReasonNotRegistered &&
			(ofTrial || s.failedTrials == 0 && onlyNodeClassInCommon(unregistered, e.severalZones)):
			period = min(ttl.FirstPause<<min(s.failedTrials, 8), ttl.MaxLaunchPause)
			s.failedTrials++
		case onlyNodeClassInCommon(registered, e.severalZones),
			s.failedTrials == 0 && onlyNodeClassInCommon(append(registered, unregistered...), e.severalZones):
			period = min(period/3, ttl.FirstPause)
			// Counted anew, or the first of the next ones that fails would pause it again.
			s.failures = lo.PickBy(s.failures, func(_ types.UID, a accusation) bool { return a.notRegistered })
		default:
			return s
		}
	}
	if ofTrial {
		s.phase, s.trialOf = open, ""
	}
	until := e.now.Add(period)
	if s.phase == open || s.phase == paused && s.until.Before(until) {
		s.phase, s.until, s.cause = paused, until, e.failure
	}
	return s
}

// accuse counts the failure once for each NodeClaim, so that one alone never pauses a NodeClass by trying several
// offerings.
func accuse(s state, e event) state {
	s.failures = lo.PickBy(s.failures, func(_ types.UID, a accusation) bool { return e.now.Before(a.until) })
	notRegistered := e.failure.reason == ReasonNotRegistered
	// Launches that were under way when the NodeClass paused meet what paused it.
	if _, counted := s.failures[e.claim]; notRegistered || !counted && s.phase != paused {
		counts := lo.Ternary(notRegistered, ttl.NotRegistered, ttl.NodeClassFailures)
		s.failures[e.claim] = accusation{offering: e.offering, until: e.now.Add(counts), notRegistered: notRegistered}
	}
	return s
}

func splitAccusations(all map[types.UID]accusation) (others, unregistered []accusation) {
	return lo.FilterReject(lo.Values(all), func(a accusation, _ int) bool { return !a.notRegistered })
}

// accusers is with how many different offerings launches must fail before their NodeClass pauses.
const accusers = 3

// onlyNodeClassInCommon reports whether several offerings have failed, of at least two flavors and, where the NodeClass
// has several zones, in two of them. Otherwise the flavor or the zone is at fault.
func onlyNodeClassInCommon(failures []accusation, severalZones bool) bool {
	offerings := lo.UniqMap(failures, func(a accusation, _ int) capacity.Offering { return a.offering })
	flavors := lo.UniqMap(offerings, func(o capacity.Offering, _ int) string { return o.Flavor })
	zones := lo.UniqMap(offerings, func(o capacity.Offering, _ int) string { return o.Zone })
	return len(offerings) >= accusers && len(flavors) >= 2 && (!severalZones || len(zones) >= 2)
}

// pauses are the states of NodeClasses, and the marks by which core learns of them. They are in memory: after a
// restart, three failures show again what is wrong.
type pauses struct {
	clock    clock.Clock
	marks    *capacity.DefaultProvider
	recorder karpevents.Recorder

	mu sync.Mutex
	// states are by capacity.NodeClassKey, so that a changed spec or image starts from zero.
	states *cache.Cache
}

// handle moves the NodeClass to its next state, and reports a pause once, although launches that were under way fail in
// the same way.
func (p *pauses) handle(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.now, e.severalZones = p.clock.Now(), len(nodeClass.Status.Zones) > 1
	key := capacity.NodeClassKey(nodeClass)
	before := p.stateOf(key)
	after := p.setState(ctx, key, before, next(before, e))
	if after.phase == paused && before.phase != paused {
		p.recorder.Publish(events.LaunchesPaused(nodeClass, after.cause.reason, after.until.Sub(e.now), after.cause.err))
	}
}

// admit returns an error where launches with the NodeClass pause. The first launch after a pause for nodes that did not
// register is its trial.
func (p *pauses) admit(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := capacity.NodeClassKey(nodeClass)
	before := p.stateOf(key)
	if before.phase != open {
		return fmt.Errorf("launches with BizflyNodeClass %q pause: %w", nodeClass.Name, before.cause.err)
	}
	p.setState(ctx, key, before, next(before, event{kind: launchAdmitted, now: p.clock.Now(), claim: claim}))
	return nil
}

// endTrial lets another NodeClaim be the trial when this one ends without a result.
func (p *pauses) endTrial(ctx context.Context, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.states.Items() {
		if before := p.stateOf(key); before.trialOf == claim {
			p.setState(ctx, key, before, next(before, event{kind: launchEnded, now: p.clock.Now(), claim: claim}))
		}
	}
}

// isTrial reports whether the launch is the trial of the NodeClass: what keeps all others away is no reason for it.
func (p *pauses) isTrial(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stateOf(capacity.NodeClassKey(nodeClass)).trialOf == claim
}

// blocked returns why launches with the NodeClass pause and until when, and a nil cause while they do not.
func (p *pauses) blocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stateOf(capacity.NodeClassKey(nodeClass))
	if s.phase == open && s.failedTrials == 0 {
		return "", time.Time{}, nil
	}
	return s.cause.reason, s.until, s.cause.err
}

// stateOf returns the state as it is now; the caller holds the lock.
func (p *pauses) stateOf(key string) state {
	known, _ := p.states.Get(key)
	s, _ := known.(state)
	if s.phase != open && !p.clock.Now().Before(s.until) {
		s.phase = open
	}
	return s
}

// setState remembers the state, and makes the NodeClass unavailable or available as it says; the caller holds the lock.
func (p *pauses) setState(ctx context.Context, key string, before, after state) state {
	p.states.SetDefault(key, after)
	scope := capacity.Offering{NodeClass: key}
	if before.phase != open && (after.phase == open || after.until.Before(before.until)) {
		p.marks.MarkAvailable(scope)
	}
	if after.phase != open && (before.phase != after.phase || !before.until.Equal(after.until)) {
		reason := lo.Ternary(after.phase == trial, capacity.ReasonTrial, after.cause.reason)
		p.marks.MarkUnavailable(ctx, scope, reason, after.until.Sub(p.clock.Now()))
	}
	return after
}
