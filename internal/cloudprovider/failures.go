/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cloudprovider

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the Launched condition and of failed launches, stable because users and alerts match them. Core's schema
// takes CamelCase only.
const (
	ReasonAwaitingServerID           = "AwaitingServerID"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeClassNotReady          = "NodeClassNotReady"
	ReasonNodeClassReadinessUnknown  = "NodeClassReadinessUnknown"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonInstanceTypesUnavailable   = "InstanceTypeResolutionFailed"
	ReasonLaunchRequestInvalid       = "LaunchRequestInvalid"
	ReasonLaunchPermissionDenied     = "LaunchPermissionDenied"
	ReasonLaunchAuthenticationFailed = "LaunchAuthenticationFailed"
	ReasonLaunchResourceNotFound     = "LaunchResourceNotFound"
	ReasonLaunchConflict             = "LaunchConflict"
	ReasonLaunchFailed               = "LaunchFailed"
	ReasonLaunchNotSent              = "LaunchNotSent"
)

// Reasons of the audit log's lines beside those of failures.
const (
	ReasonCheapest   = "Cheapest"            // the offering was the cheapest that fits and is available
	ReasonFailedOver = "FailedOver"          // a cheaper offering, or one as cheap, was rejected just before
	ReasonFound      = "Found"               // the server is that of an earlier create request, whose answer was lost
	ReasonNoOffering = "NoOfferingAvailable" // no request was sent, because nothing that fits is available

	ReasonNotRegistered = "NotRegistered" // the node did not join in time
	ReasonExpired       = "Expired"       // the node had reached its NodePool's expireAfter
	ReasonDeleted       = "Deleted"       // a user or another controller deleted the NodeClaim, the Node or the NodePool
)

// ErrNotRegistered is the failure of a launch whose server came up and whose node did not register in time.
var ErrNotRegistered = errors.New("the node did not register within core's registration timeout of 15 minutes")

// reasons name the classes of errors; any other is a launch that failed.
var reasons = map[bizfly.Class]string{
	bizfly.ClassCapacity:   capacity.ReasonInsufficientCapacity,
	bizfly.ClassQuota:      capacity.ReasonQuotaExceeded,
	bizfly.ClassBalance:    capacity.ReasonBalanceExhausted,
	bizfly.ClassInvalid:    ReasonLaunchRequestInvalid,
	bizfly.ClassPermission: ReasonLaunchPermissionDenied,
	bizfly.ClassAuth:       ReasonLaunchAuthenticationFailed,
	bizfly.ClassNotFound:   ReasonLaunchResourceNotFound,
	bizfly.ClassConflict:   ReasonLaunchConflict,
}

// failure is a failed launch, classified.
type failure struct {
	err    error
	reason string
	scope  bizfly.ErrorScope
	// noCapacity is true for lack of capacity, quota or balance: every NodeClass meets the same, and this one is not at fault.
	noCapacity bool
}

// failureOf classifies the error of a failed launch.
func failureOf(err error) failure {
	class, scope := bizfly.ClassOf(err), bizfly.ScopeOf(err)
	f := failure{err: err, reason: lo.CoalesceOrEmpty(reasons[class], ReasonLaunchFailed), scope: scope,
		noCapacity: class == bizfly.ClassCapacity || scope == bizfly.ScopeAccount || scope == bizfly.ScopeSize}
	switch {
	case errors.Is(err, instance.ErrOutcomeUnknown):
		f.reason = ReasonLaunchOutcomeUnknown
	case errors.Is(err, ErrNotRegistered):
		f.reason = ReasonNotRegistered
	}
	return f
}

// retryable reports whether nothing is known to be wrong with a launch that was not sent: a failure of the Kubernetes API,
// of our own rate limit or of the connection, or the cloud's rate limit.
func retryable(err error) bool {
	var apiError *bizfly.APIError
	return !errors.As(err, &apiError) || bizfly.IsRetryable(err)
}

// createError keeps the NodeClaim: core shows reason and message, of at most 300 characters, on it and calls Create again.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, lo.Ellipsis(err.Error(), 300))
}

// insufficientCapacity makes core delete the NodeClaim and plan anew.
func insufficientCapacity(format string, args ...any) error {
	return cloudprovider.NewInsufficientCapacityError(fmt.Errorf(format, args...))
}

// launchFailuresTotal counts launches that failed.
var launchFailuresTotal = metrics.Counter("launch_failures_total",
	"Launches that BizFly Cloud rejected, failed to build or left without an answer, whose node did not register, or that were not sent, by reason.",
	metrics.Enum("reason", append(lo.Values(reasons), ReasonLaunchFailed, ReasonLaunchOutcomeUnknown, ReasonNotRegistered, ReasonNodeClassNotReady,
		ReasonLaunchNotSent)...))

// maxFailures is how many different offerings may fail with one NodeClass before its launches pause.
const maxFailures = 3

// launchPauses pauses the launches of NodeClasses whose launches fail with different offerings, since then the NodeClass itself
// may be the cause. A pause ends half-open: one launch at a time is tried; its success ends the pause, its failure prolongs it.
// Pauses are in memory: after a restart, three failures show again what is wrong.
type launchPauses struct {
	clock clock.Clock
	mu    sync.Mutex
	cache *cache.Cache
}

// pause is what is remembered of one NodeClass. It is replaced, never changed.
type pause struct {
	// key is the NodeClassKey: a changed spec or image starts from zero.
	key string
	// failures are the last failures, by offering, and until when they count; last is the newest.
	failures map[capacity.Offering]time.Time
	last     failure
	// count is how often launches were paused since the last success; until is when the last of these pauses ends.
	count int
	until time.Time
	// trial is the NodeClaim that is tried after a pause, and trialUntil is when the next one may be tried.
	trial      types.UID
	trialUntil time.Time
}

// of returns what is remembered of the NodeClass as it is now.
func (p *launchPauses) of(nodeClass *v1alpha1.BizflyNodeClass) pause {
	if known, ok := p.cache.Get(string(nodeClass.UID)); ok && known.(pause).key == capacity.NodeClassKey(nodeClass) {
		return known.(pause)
	}
	return pause{key: capacity.NodeClassKey(nodeClass)}
}

// failed counts the failure of an offering, and returns for how long launches pause when they do so from now on.
func (p *launchPauses) failed(nodeClass *v1alpha1.BizflyNodeClass, offering capacity.Offering, claim types.UID, f failure) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of(nodeClass)
	now := p.clock.Now()
	known.failures = lo.PickBy(known.failures, func(_ capacity.Offering, until time.Time) bool { return now.Before(until) })
	known.failures[offering] = now.Add(lo.Ternary(f.reason == ReasonNotRegistered, ttl.NotRegistered, ttl.NodeClassFailures))
	known.last = f
	var length time.Duration
	if known.count == 0 && len(known.failures) >= maxFailures || known.count > 0 && known.trial == claim {
		length = min(ttl.FirstPause<<min(known.count, 8), ttl.MaxLaunchPause)
		known.count, known.until, known.trial = known.count+1, now.Add(length), ""
	}
	p.cache.SetDefault(string(nodeClass.UID), known)
	return length
}

// admit returns nil when the NodeClaim may be launched, which makes it the trial after a pause.
func (p *launchPauses) admit(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of(nodeClass)
	if known.count == 0 || known.trial == claim {
		return nil
	}
	if p.blocks(known) {
		return fmt.Errorf("launches with BizflyNodeClass %q keep failing and are tried one at a time: %w", nodeClass.Name, known.last.err)
	}
	known.trial, known.trialUntil = claim, p.clock.Now().Add(lifecycle.LaunchTimeout+time.Minute)
	p.cache.SetDefault(string(nodeClass.UID), known)
	return nil
}

// tries reports whether the NodeClaim is the trial of its NodeClass.
func (p *launchPauses) tries(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) bool {
	return p.of(nodeClass).trial == claim
}

// launched allows the trial that has its server the time to register.
func (p *launchPauses) launched(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of(nodeClass); known.trial == claim {
		known.trialUntil = p.clock.Now().Add(ttl.TrialRegistration)
		p.cache.SetDefault(string(nodeClass.UID), known)
	}
}

// succeeded ends the pause when its trial has registered; without a pause it forgets the failures.
func (p *launchPauses) succeeded(nodeClass *v1alpha1.BizflyNodeClass, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of(nodeClass); known.count == 0 || known.trial == claim {
		p.cache.Delete(string(nodeClass.UID))
	}
}

// release lets another NodeClaim be the trial when this one ended without a result.
func (p *launchPauses) release(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, item := range p.cache.Items() {
		if known := item.Object.(pause); known.trial == claim {
			known.trial = ""
			p.cache.SetDefault(uid, known)
		}
	}
}

// active reports whether nothing can be launched with the NodeClass at the moment.
func (p *launchPauses) active(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return p.blocks(p.of(nodeClass))
}

func (p *launchPauses) blocks(known pause) bool {
	now := p.clock.Now()
	return known.count > 0 && (now.Before(known.until) || known.trial != "" && now.Before(known.trialUntil))
}
