// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// This file answers what follows from a launch that failed. Whatever BizFly Cloud says, its offering is unavailable for a
// while, unless the failure is proved to be the account's, the quota's or the NodeClass's; words can only add to that.
//
//	what failed                           unavailable is                        for
//	no balance, rejected credentials      everything                            accountPause (1m)
//	quota of vCPUs or memory              flavors of that size and bigger       ttl.RejectedSize (5m)
//	another quota, no address left        the NodeClass                         unavailableOfferingTTL (3m)
//	user data or join token               the NodeClass                         the same
//	no capacity                           the offering                          the same, doubled each time up to eight times
//	  ... of a zone, category or plan     beside it, that zone, category, plan  unavailableOfferingTTL
//	anything else                         the offering, to this NodeClass       the same, doubled each time up to eight times
//	  ... the name of an old flavor       nothing; it tries old flavors last    ttl.OfferingFailures (2h), or until the family is launched
//	  ... with three different offerings  beside it, the NodeClass, unless all  a third of the offering's, up to ttl.MaxLaunchPause (5m),
//	                                      are of one flavor, or in one of its   or until one of its nodes registers
//	                                      several zones
//	a node that did not register          the offering, to this NodeClass       ttl.NotRegistered (1h)
//	  ... with three different offerings  beside it, the NodeClass, unless all  ttl.FirstPause (1m), then one trial at a time
//	                                      are of one flavor
//
// A request that the cloud's rate limit, the connection or the API server held back marks nothing: it is sent again. A failure counts once
// for each NodeClaim, so that one NodeClaim alone never makes a NodeClass unavailable by trying several offerings. One with an earlier spec or
// image of the NodeClass accuses neither the present ones nor the offering: the user may have corrected what was wrong.

// Reasons of the Launched condition and of failed launches, stable because users and alerts match them. Core's schema
// takes CamelCase only.
const (
	ReasonAwaitingServerID           = "AwaitingServerID"
	ReasonLaunchOutcomeUnknown       = "LaunchOutcomeUnknown"
	ReasonLaunchIntentUnreadable     = "LaunchIntentUnreadable"
	ReasonNodeClassUnresolved        = "NodeClassUnresolved"
	ReasonNodeClassNotReady          = "NodeClassNotReady"
	ReasonNodeClassReadinessUnknown  = "NodeClassReadinessUnknown"
	ReasonCapacityTypeUnsupported    = "CapacityTypeUnsupported"
	ReasonInstanceTypesUnavailable   = "InstanceTypeResolutionFailed"
	ReasonLaunchNotPrepared          = "LaunchNotPrepared"
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
	ReasonFailedOver = "FailedOver"          // a cheaper offering, or one as cheap, was rejected before
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
	class  bizfly.Class
	scope  bizfly.ErrorScope
}

// failureOf classifies the error of a failed launch.
func failureOf(err error) failure {
	class := bizfly.ClassOf(err)
	f := failure{err: err, reason: lo.CoalesceOrEmpty(reasons[class], ReasonLaunchFailed), class: class, scope: bizfly.ScopeOf(err)}
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

// account reports whether every other launch would fail too.
func (f failure) account() bool { return f.class == bizfly.ClassBalance || f.class == bizfly.ClassAuth }

// accuses reports whether the NodeClass may be at fault: not for lack of capacity, quota or balance, which others meet too.
func (f failure) accuses() bool {
	return !f.account() && f.class != bizfly.ClassCapacity && f.class != bizfly.ClassQuota
}

// learn marks unavailable what a failed launch of an offering shows to be, and reports whether another offering may be tried for
// the same NodeClaim. The NodeClass is nil, and not in the key, where it cannot be read any more, or has changed since the launch.
func (c *CloudProvider) learn(ctx context.Context, l *launch, key capacity.Offering, f failure) (next bool) {
	launchFailuresTotal.Inc(map[string]string{"reason": f.reason})
	c.logLaunch(ctx, messageLaunchFailed, l, "", f.reason)
	period := c.Settings.Load().UnavailableOfferingTTL
	// Counted where the offering is not at fault: the next launch with the NodeClass tries another one, and marks for others do not grow.
	ofNodeClass := key
	key.NodeClass = ""
	rejected, _ := flavor.Find(l.types, key.Flavor, key.Zone)
	switch {
	case f.account():
		pause := c.Settings.Load().AccountPause
		c.Capacity.MarkUnavailable(ctx, capacity.Offering{}, f.reason, pause)
		c.Recorder.Publish(events.AccountLimitReached(l.claim, f.reason, pause, f.err))
		return false
	case f.scope == bizfly.ScopeSize && rejected != nil:
		c.Capacity.RecordFailure(ofNodeClass)
		// The API has no call that reads a quota.
		cpu, memoryMiB := sizeOf(rejected)
		c.Capacity.MarkAll(ctx, l.flavors("", atLeast(cpu, memoryMiB)), capacity.ReasonQuotaExceeded, ttl.RejectedSize)
		c.Recorder.Publish(events.QuotaTooSmall(l.claim, cpu, memoryMiB, ttl.RejectedSize, f.err))
		return false
	case f.class == bizfly.ClassQuota || f.scope == bizfly.ScopeNetwork || f.reason == ReasonLaunchNotPrepared:
		// Every other offering of the NodeClass meets the same.
		c.Capacity.RecordFailure(ofNodeClass)
		c.nodeClasses.mark(ctx, l.nodeClass, l.claim.UID, f, period)
		return false
	case f.scope == bizfly.ScopeZone:
		c.Capacity.MarkUnavailable(ctx, capacity.Offering{Zone: key.Zone}, f.reason, period)
	case f.scope == bizfly.ScopePlan:
		c.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: key.Flavor, BillingPlan: key.BillingPlan}, f.reason, period)
	case f.scope == bizfly.ScopeCategory && rejected != nil:
		sameCategory := func(it *cloudprovider.InstanceType) bool { return categoryOf(it) == categoryOf(rejected) }
		c.Capacity.MarkAll(ctx, l.flavors(key.Zone, sameCategory), f.reason, period)
	}
	reason := f.reason
	if f.accuses() {
		if l.nodeClass == nil {
			return false
		}
		reason, key = capacity.ReasonLaunchFailed, ofNodeClass
	}
	if f.reason == ReasonNotRegistered {
		// The next launch takes as long to fail: a shorter mark would be over by then, and two offerings would be tried in turn.
		c.Capacity.RecordFailure(key)
		c.Capacity.MarkUnavailable(ctx, key, reason, ttl.NotRegistered)
	} else {
		period = c.Capacity.MarkFailed(ctx, key, reason, period)
	}
	if f.accuses() {
		c.nodeClasses.failed(ctx, l.nodeClass, l.claim.UID, key, f, period)
	}
	return f.scope != bizfly.ScopeNodeClass
}

// flavors are those that meet the condition, in a zone or, where that is empty, in all.
func (l *launch) flavors(zone string, meets func(*cloudprovider.InstanceType) bool) []capacity.Offering {
	return lo.FilterMap(l.types, func(it *cloudprovider.InstanceType, _ int) (capacity.Offering, bool) {
		return capacity.Offering{Flavor: it.Name, Zone: zone}, meets(it)
	})
}

// atLeast reports whether a flavor needs at least as much of everything.
func atLeast(cpu, memoryMiB int) func(*cloudprovider.InstanceType) bool {
	return func(it *cloudprovider.InstanceType) bool {
		otherCPU, otherMemoryMiB := sizeOf(it)
		return otherCPU >= cpu && otherMemoryMiB >= memoryMiB
	}
}

// categoryOf is the category in which servers of the flavor are created.
func categoryOf(it *cloudprovider.InstanceType) string {
	return it.Requirements.Get(v1alpha1.LabelInstanceCategory).Any()
}

// sizeOf is the advertised size of the flavor.
func sizeOf(it *cloudprovider.InstanceType) (cpu, memoryMiB int) {
	cpu, _ = strconv.Atoi(it.Requirements.Get(v1alpha1.LabelInstanceCPU).Any())
	memoryMiB, _ = strconv.Atoi(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Any())
	return cpu, memoryMiB
}

// learnRejection reports and learns from a launch that failed before its request was accepted, and reports whether the next offering
// may be tried.
func (c *CloudProvider) learnRejection(ctx context.Context, l *launch, key capacity.Offering, err error) (next bool) {
	f := failureOf(err)
	next = c.learn(ctx, l, key, f)
	switch {
	case f.accuses():
		c.Recorder.Publish(events.LaunchRejected(l.claim, key.Flavor, key.Zone, f.reason, err))
	case next:
		c.Recorder.Publish(events.OfferingUnavailable(l.claim, key.Flavor, key.Zone, f.reason, err))
	}
	return next
}

// learnFailure reports and learns from a launch that failed after its request was accepted, or whose outcome is unknown.
func (c *CloudProvider) learnFailure(ctx context.Context, l *launch, err error) (reason string) {
	f, intent := failureOf(err), l.record.Intent
	switch f.reason {
	case ReasonLaunchOutcomeUnknown: // core's event of the NodeClaim that ends says it
	case ReasonNotRegistered:
		c.Recorder.Publish(events.NodeNotRegistered(l.claim, intent.Name, intent.Flavor, intent.Zone))
	default:
		c.Recorder.Publish(events.LaunchFailed(l.claim, intent.Name, intent.Flavor, intent.Zone, err))
	}
	c.intents.change(l.claim.UID, func(r *launchRecord) { r.Ended = f.reason })
	if errors.Is(err, instance.ErrFormRejected) {
		return f.reason // the next launch of the same offering is in another form
	}
	key := capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan}
	switch {
	case l.nodeClass == nil:
	case ofEarlierSpec(l.claim, intent, l.nodeClass):
		l.nodeClass = nil
	default:
		key.NodeClass = capacity.NodeClassKey(l.nodeClass)
	}
	c.learn(ctx, l, key, f)
	return f.reason
}

// LaunchFailed learns from a server that was launched and failed afterwards, or whose node did not register
// (ErrNotRegistered). It returns the reason.
func (c *CloudProvider) LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, err error) string {
	l := &launch{claim: claim, record: launchRecord{Intent: intent}}
	var readErr error
	if l.nodeClass, readErr = c.nodeClass(ctx, claim.Spec.NodeClassRef); readErr == nil {
		l.types, readErr = c.Flavors.List(ctx, l.nodeClass)
	}
	if readErr != nil {
		// Only what others meet, too, is then marked.
		log.FromContext(ctx).Error(readErr, "resolving the NodeClass of a failed launch")
	}
	return c.learnFailure(ctx, l, err)
}

// ofEarlierSpec reports whether the launch was with an earlier spec or image of the NodeClass, and says nothing of the present ones.
func ofEarlierSpec(claim *karpv1.NodeClaim, intent instance.Intent, nodeClass *v1alpha1.BizflyNodeClass) bool {
	return intent.ImageID != nodeClass.Status.ImageID() || staticDrift(claim, nodeClass)
}

// LaunchSucceeded remembers that the node of a launch has registered, and how long that took since its create request.
func (c *CloudProvider) LaunchSucceeded(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, took time.Duration) {
	c.Capacity.RecordLaunch(capacity.Launch{Flavor: intent.Flavor, Zone: intent.Zone, ImageID: intent.ImageID}, took)
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil || ofEarlierSpec(claim, intent, nodeClass) {
		return
	}
	c.Capacity.RecordSuccess(capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan,
		NodeClass: capacity.NodeClassKey(nodeClass)})
	c.nodeClasses.registered(nodeClass, claim.UID)
}

// LaunchEnded allows another trial with a NodeClass when this NodeClaim was one and ends before its node has registered.
func (c *CloudProvider) LaunchEnded(claim *karpv1.NodeClaim) { c.nodeClasses.release(claim.UID) }

// LaunchesBlocked returns the reason and the cause why launches with the NodeClass pause, until when none is sent, and a nil
// cause while they do not.
func (c *CloudProvider) LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	return c.nodeClasses.blocked(nodeClass)
}

// end ends a NodeClaim: core deletes it, and plans another one for its pods. Core reports reason and error of insufficient capacity on
// the NodeClaim and on its pods.
func (c *CloudProvider) end(ctx context.Context, reason string, err error) error {
	c.logLaunch(ctx, messageLaunchFailed, &launch{}, "", reason)
	if reason == ReasonNodeClassNotReady {
		launchFailuresTotal.Inc(map[string]string{"reason": reason})
		return cloudprovider.NewNodeClassNotReadyError(err)
	}
	return cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s: %w", reason, err))
}

// ends reports whether core deletes the NodeClaim because of the error.
func ends(err error) bool {
	return cloudprovider.IsInsufficientCapacityError(err) || cloudprovider.IsNodeClassNotReadyError(err)
}

// createError keeps the NodeClaim: core shows reason and message, of at most 300 characters, on it and calls Create again.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, lo.Ellipsis(err.Error(), 300))
}

// retryable reports whether nothing is known to be wrong with a launch that was not sent, so that it is worth its NodeClaim's wait: the
// cloud's rate limit or our own, the connection, or an API server that is busy. Anything else would fail again.
func retryable(err error) bool {
	if _, ofCloud := errors.AsType[*bizfly.APIError](err); ofCloud {
		return bizfly.IsRetryable(err)
	}
	var network net.Error
	return errors.Is(err, errNotRecorded) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		lo.SomeBy([]func(error) bool{
			apierrors.IsConflict, apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsTooManyRequests, apierrors.IsServiceUnavailable,
			apierrors.IsInternalError,
		}, func(is func(error) bool) bool { return is(err) })
}

// retryAfter is how long BizFly Cloud asked to wait; 0 where it did not.
func retryAfter(err error) time.Duration {
	of, _ := errors.AsType[*bizfly.APIError](err)
	return lo.FromPtr(of).RetryAfter
}

// messageLaunchFailed is the message of the log line of a launch that failed.
const messageLaunchFailed = "launching server failed"

// logLaunch writes the one log line of a launch, and returns its price, 0 where it is not known. docs/operate/monitoring.md explains the
// messages and keys, by which a program reads the history of a cluster. The logger of the context has the NodeClaim.
func (c *CloudProvider) logLaunch(ctx context.Context, message string, l *launch, serverID, reason string) (price float64) {
	intent, took := l.record.Intent, time.Duration(0)
	_, offering := flavor.Find(l.types, intent.Flavor, intent.Zone)
	price = lo.FromPtr(offering).Price
	if !intent.RequestedAt.IsZero() {
		took = c.Clock.Since(intent.RequestedAt)
	}
	log.FromContext(ctx).Info(message, "server-id", serverID, "flavor", intent.Flavor, "zone", intent.Zone, "capacity-type", karpv1.CapacityTypeOnDemand,
		"price-vnd-per-hour", math.Round(price*100)/100, "reason", reason, "seconds", math.Round(max(0, took.Seconds())*10)/10)
	return price
}

// launchFailuresTotal counts launches that failed.
var launchFailuresTotal = metrics.Counter("karpenter_bizfly_launch_failures_total",
	"Launches that BizFly Cloud rejected, failed to build or left without an answer, whose node did not register, or that were not sent, by reason.",
	metrics.Enum("reason", append(lo.Values(reasons), ReasonLaunchFailed, ReasonLaunchOutcomeUnknown, ReasonNotRegistered, ReasonNodeClassNotReady,
		ReasonLaunchNotPrepared, ReasonLaunchNotSent)...))
