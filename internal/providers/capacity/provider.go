// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// maxGrowth is by how much the mark of an offering that keeps failing grows: to 24 minutes with the default of
	// three.
	maxGrowth = 8
	// maxScopes bounds what is remembered: more than any catalog has flavors times zones.
	maxScopes = 8192
	// weight is that of the newest launch in the average: one slow server does not decide, and what was slow yesterday
	// is soon forgotten.
	weight = 0.3
)

// DefaultProvider keeps marks in memory: a restart forgets them, and the next launches show again what is unavailable.
// It is safe for concurrent use and its reads are cheap.
type DefaultProvider struct {
	clock clock.WithDelayedExecution
	// state is replaced and never changed, so that reads take no lock and allocate nothing.
	state atomic.Pointer[state]

	mu        sync.Mutex
	histories map[Offering]history
}

// state is immutable.
type state struct {
	seq   uint64
	marks map[Offering]mark
}

type mark struct {
	reason string
	until  time.Time
}

// history is what is known of the launches of one offering.
type history struct {
	// failures are those with less than ttl.OfferingFailures between them, and failed is when the last one was.
	failures int
	failed   time.Time
	// seconds is the moving average of how long launches took until their nodes had registered, and registered is when
	// the last one has.
	seconds    float64
	registered time.Time
}

// recentFailures is the count, unless the last failure is too long ago.
func (h history) recentFailures(now time.Time) int {
	return lo.Ternary(now.Sub(h.failed) < ttl.OfferingFailures, h.failures, 0)
}

// recentSeconds is the average, and 0 without a launch in the last day.
func (h history) recentSeconds(now time.Time) float64 {
	return lo.Ternary(now.Sub(h.registered) < ttl.LaunchTimes, h.seconds, 0)
}

// NewDefaultProvider returns a provider without marks. The clock also ends the marks, in time and not at the next read,
// since the sequence number invalidates cached answers.
func NewDefaultProvider(clk clock.WithDelayedExecution) *DefaultProvider {
	p := &DefaultProvider{clock: clk, histories: map[Offering]history{}}
	p.state.Store(&state{seq: 1})
	return p
}

// Unavailable reports whether any mark covers the offering, and the reason of one that does.
func (p *DefaultProvider) Unavailable(offering Offering) (reason string, unavailable bool) {
	marks := p.state.Load().marks
	if len(marks) == 0 {
		return "", false
	}
	if offering.NodeClass != "" {
		for _, scope := range [...]Offering{offering, {NodeClass: offering.NodeClass}} {
			if found, ok := marks[scope]; ok {
				return found.reason, true
			}
		}
		offering.NodeClass = ""
	}
	// From the exact offering to the account: bit by bit a field is widened to "any".
	for wide := range 8 {
		scope := offering
		if wide&1 != 0 {
			scope.BillingPlan = ""
		}
		if wide&2 != 0 {
			scope.Zone = ""
		}
		if wide&4 != 0 {
			scope.Flavor = ""
		}
		if found, ok := marks[scope]; ok {
			return found.reason, true
		}
	}
	return "", false
}

// MarkFailed counts a launch of exactly this offering that was sent at this time and has failed, and marks the offering
// unavailable for period or, where it grows, for that doubled for each failure before it, up to eight times period. It
// returns for how long.
func (p *DefaultProvider) MarkFailed(ctx context.Context, offering Offering, sent time.Time, reason string,
	period time.Duration, grows bool) time.Duration {
	if count := p.RecordFailure(offering, sent); grows {
		period *= time.Duration(min(maxGrowth, 1<<(min(count, maxGrowth)-1)))
	}
	p.MarkAll(ctx, []Offering{offering}, reason, period)
	return period
}

// MarkUnavailable marks the scope unavailable for a while. A mark that is renewed is not prolonged beyond period from
// now, and one that exists with a later end keeps it.
func (p *DefaultProvider) MarkUnavailable(ctx context.Context, scope Offering, reason string, period time.Duration) {
	p.MarkAll(ctx, []Offering{scope}, reason, period)
}

// MarkAll marks several scopes unavailable at once, like MarkUnavailable each.
func (p *DefaultProvider) MarkAll(ctx context.Context, scopes []Offering, reason string, period time.Duration) {
	if period <= 0 || len(scopes) == 0 {
		return
	}
	until := p.clock.Now().Add(period)
	changed := false
	p.mu.Lock()
	marks := lo.Assign(p.state.Load().marks)
	for _, scope := range scopes {
		existing, exists := marks[scope]
		if exists && !existing.until.Before(until) || !exists && len(marks) >= maxScopes {
			continue
		}
		marks[scope], changed = mark{reason: reason, until: until}, true
	}
	if changed {
		p.publish(marks)
	}
	p.mu.Unlock()
	if !changed {
		return
	}
	log.FromContext(ctx).WithValues("flavor", scopes[0].Flavor, "zone", scopes[0].Zone, "billing-plan",
		scopes[0].BillingPlan,
		"scopes", len(scopes), "reason", reason, "for", period).V(1).Info("marked offerings unavailable")
	// The timer gets its due time instead of reading the clock: a fake clock runs it while it holds its own lock.
	p.clock.AfterFunc(period, func() { p.expire(until) })
}

// MarkAvailable ends the mark of exactly this scope.
func (p *DefaultProvider) MarkAvailable(scope Offering) {
	p.mu.Lock()
	defer p.mu.Unlock()
	marks := maps.Clone(p.state.Load().marks)
	if _, marked := marks[scope]; marked {
		delete(marks, scope)
		p.publish(marks)
	}
}

// expire ends the marks that are due.
func (p *DefaultProvider) expire(due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	marks := maps.Clone(p.state.Load().marks)
	before := len(marks)
	maps.DeleteFunc(marks, func(_ Offering, m mark) bool { return !m.until.After(due) })
	// Nothing is due when the mark was prolonged or has ended; then no answer has changed either.
	if len(marks) != before {
		p.publish(marks)
	}
}

// publish replaces the state; the caller holds the lock.
func (p *DefaultProvider) publish(marks map[Offering]mark) {
	p.state.Store(&state{seq: p.state.Load().seq + 1, marks: marks})
	counts := map[string]int{
		ReasonInsufficientCapacity: 0, ReasonQuotaExceeded: 0, ReasonBalanceExhausted: 0, ReasonLaunchFailed: 0,
	}
	for _, m := range marks {
		counts[m.reason]++
	}
	unavailableOfferings.Reset()
	for reason, count := range counts {
		unavailableOfferings.Set(float64(count), map[string]string{"reason": reason})
	}
}

// RecordFailure counts a failed launch of exactly this offering, which MarkFailed does by itself, and returns how many
// there were without two hours in which none failed. One that was sent before the last one failed is not counted:
// launches at the same time meet one cause.
func (p *DefaultProvider) RecordFailure(offering Offering, sent time.Time) int {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.histories[offering]
	count := h.recentFailures(now)
	if count == 0 || !sent.Before(h.failed) {
		count++
		h.failures, h.failed = count, now
		p.remember(offering, h, now)
	}
	return count
}

// RecordSuccess remembers how long it took from the create request until the node had registered, and forgets the
// failures of the offering: its next one counts as the first.
func (p *DefaultProvider) RecordSuccess(offering Offering, took time.Duration) {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.histories[offering]
	h.failures = 0
	if seconds := took.Seconds(); seconds > 0 {
		if before := h.recentSeconds(now); before > 0 {
			seconds = weight*seconds + (1-weight)*before
		}
		h.seconds, h.registered = seconds, now
	}
	p.remember(offering, h, now)
	if offering.NodeClass != "" {
		offering.NodeClass = ""
		delete(p.histories, offering)
	}
}

// remember replaces the history of an offering; the caller holds the lock. A new one takes the place of those that say
// nothing any more, as of an earlier image, and is not remembered where there are too many all the same.
func (p *DefaultProvider) remember(offering Offering, h history, now time.Time) {
	if _, known := p.histories[offering]; !known {
		maps.DeleteFunc(p.histories, func(_ Offering, old history) bool {
			return old.recentFailures(now) == 0 && old.recentSeconds(now) == 0
		})
		if len(p.histories) >= maxScopes {
			return
		}
	}
	p.histories[offering] = h
}

// RecentFailures counts the failed launches of the offering without two hours in which none failed: those with its
// NodeClass, and those that are the offering's with any.
func (p *DefaultProvider) RecentFailures(offering Offering) int {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	count := p.histories[offering].recentFailures(now)
	if offering.NodeClass != "" {
		offering.NodeClass = ""
		count += p.histories[offering].recentFailures(now)
	}
	return count
}

// LaunchSeconds returns the moving average of what launches of the offering took, and 0 when none was seen in the last
// day.
func (p *DefaultProvider) LaunchSeconds(offering Offering) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.histories[offering].recentSeconds(p.clock.Now())
}

// SeqNum changes whenever the answer of Unavailable may have changed, the end of a mark included.
func (p *DefaultProvider) SeqNum() uint64 { return p.state.Load().seq }
