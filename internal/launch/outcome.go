// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
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

// handleRejection reports an attempt that failed before its request was accepted. It reports whether
// the next offering may be tried.
func (l *Launcher) handleRejection(ctx context.Context, launch *Launch, key capacity.Offering, sent time.Time,
	err error) (next bool) {
	tried, _ := flavor.Find(launch.Types, key.Flavor, key.Zone)
	f := classify(err, tried != nil)
	next = l.applyConsequence(ctx, launch, key, sent, f)
	switch {
	case !f.lacksResources():
		l.config.Recorder.Publish(events.LaunchRejected(launch.NodeClaim, key.Flavor, key.Zone, f.reason, err))
	case next:
		l.config.Recorder.Publish(events.OfferingUnavailable(launch.NodeClaim, key.Flavor, key.Zone, f.reason, err))
	}
	return next
}

// handleFailure reports a launch that failed after its request was accepted, or whose outcome is
// unknown.
func (l *Launcher) handleFailure(ctx context.Context, launch *Launch, err error) (reason string) {
	intent := launch.record.intent
	key := capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan}
	tried, _ := flavor.Find(launch.Types, key.Flavor, key.Zone)
	f := classify(err, tried != nil)
	switch f.reason {
	case ReasonLaunchOutcomeUnknown: // core's event of the NodeClaim that ends says it
	case ReasonNotRegistered:
		l.config.Recorder.Publish(events.NodeNotRegistered(launch.NodeClaim, intent.Name, intent.Flavor, intent.Zone))
	default:
		l.config.Recorder.Publish(events.LaunchFailed(launch.NodeClaim, intent.Name, intent.Flavor, intent.Zone, err))
	}
	l.records.change(launch.NodeClaim.UID, func(r *record) { r.ended = f.reason })
	if errors.Is(err, instance.ErrFormRejected) {
		return f.reason // the next launch of the same offering is in another form
	}
	switch {
	case launch.NodeClass == nil:
	case ofEarlierSpec(launch.NodeClaim, intent, launch.NodeClass):
		// The user may have corrected what was wrong: it accuses neither the present NodeClass nor the offering.
		launch.NodeClass = nil
	default:
		key.NodeClass = capacity.NodeClassKey(launch.NodeClass)
	}
	sent := lo.Ternary(launch.record.sent.IsZero(), intent.RequestedAt, launch.record.sent)
	l.applyConsequence(ctx, launch, key, sent, f)
	return f.reason
}

// applyConsequence makes unavailable what the failed launch of an offering shows to be, and reports whether another
// offering may be tried. The NodeClass is nil, and not in the key, where it cannot be read any more, or has changed
// since the launch: then only what others meet too is marked.
func (l *Launcher) applyConsequence(ctx context.Context, launch *Launch, key capacity.Offering, sent time.Time,
	f failure) (next bool) {
	launchFailuresTotal.Inc(map[string]string{"reason": f.reason})
	l.logLaunch(ctx, messageLaunchFailed, launch, "", f.reason)
	settings := l.config.Settings.Load()
	c := consequenceOf(f, periods{offering: settings.UnavailableOfferingTTL, account: settings.AccountPause})
	for _, scope := range c.scopes {
		l.markScope(ctx, launch, key, scope, c, f)
	}
	if c.covers(bizfly.ScopeOffering) {
		key.NodeClass = ""
		l.config.Capacity.MarkFailed(ctx, key, sent, c.reason, c.period, c.grows)
	}
	if launch.NodeClass == nil {
		return c.next && !c.accuses
	}
	period := c.period
	switch {
	case c.covers(scopeOwn):
		period = l.config.Capacity.MarkFailed(ctx, key, sent, capacity.ReasonLaunchFailed, c.period, c.grows)
	case c.covers(bizfly.ScopeSize), c.covers(bizfly.ScopeNodeClass):
		// Counted for the NodeClass alone: its next launch tries another offering, and marks for others do not grow.
		l.config.Capacity.RecordFailure(key, sent)
	}
	if c.covers(bizfly.ScopeNodeClass) || c.accuses {
		l.pauses.handle(ctx, launch.NodeClass, event{kind: launchFailed, claim: launch.NodeClaim.UID, offering: key,
			failure: f, accuses: c.accuses, period: period})
	}
	return c.next
}

// markScope marks a scope that is wider than the offering.
func (l *Launcher) markScope(ctx context.Context, launch *Launch, key capacity.Offering, scope scope, c consequence,
	f failure) {
	tried, _ := flavor.Find(launch.Types, key.Flavor, key.Zone)
	var marked []capacity.Offering
	switch scope {
	case bizfly.ScopeAccount:
		marked = []capacity.Offering{{}}
		// Longer than the pause, so that the condition stays while launches keep being rejected.
		l.rejected.Store(&heldBack{reason: c.reason, description: f.err.Error(),
			until: l.config.Clock.Now().Add(2 * c.period)})
		l.config.Recorder.Publish(events.AccountLimitReached(launch.NodeClaim, c.reason, c.period, f.err))
	case bizfly.ScopeSize:
		cpu, memoryMiB := sizeOf(tried)
		marked = flavorsIn("", launch.Types, atLeast(cpu, memoryMiB))
		l.config.Recorder.Publish(events.QuotaTooSmall(launch.NodeClaim, cpu, memoryMiB, c.period, f.err))
	case bizfly.ScopeZone:
		marked = []capacity.Offering{{Zone: key.Zone}}
	case bizfly.ScopePlan:
		marked = []capacity.Offering{{Flavor: key.Flavor, BillingPlan: key.BillingPlan}}
	case bizfly.ScopeCategory:
		marked = flavorsIn(key.Zone, launch.Types,
			func(it *cloudprovider.InstanceType) bool { return categoryOf(it) == categoryOf(tried) })
	}
	l.config.Capacity.MarkAll(ctx, marked, c.reason, c.period)
}

// flavorsIn are those that meet the condition, in a zone or, where that is empty, in all.
func flavorsIn(zone string, types cloudprovider.InstanceTypes,
	meets func(*cloudprovider.InstanceType) bool) []capacity.Offering {
	return lo.FilterMap(types, func(it *cloudprovider.InstanceType, _ int) (capacity.Offering, bool) {
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

// LaunchFailed reports a server that was launched and failed afterwards, or whose node did not register
// (ErrNotRegistered). It returns the reason.
func (l *Launcher) LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent,
	err error) string {
	known := l.records.remembered(claim.UID)
	launch := &Launch{NodeClaim: claim, record: record{intent: intent, sent: known.sent}}
	nodeClass, readErr := l.nodeClassOf(ctx, claim)
	if readErr == nil {
		launch.NodeClass = nodeClass
		launch.Types, readErr = l.config.Flavors.List(ctx, nodeClass)
	}
	if readErr != nil {
		// Only what others meet, too, is then marked.
		log.FromContext(ctx).Error(readErr, "resolving the NodeClass of a failed launch")
	}
	return l.handleFailure(ctx, launch, err)
}

// NodeRegistered remembers that the node of a launch has registered, and how long that took since its create request.
func (l *Launcher) NodeRegistered(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent,
	took time.Duration) {
	nodeClass, err := l.nodeClassOf(ctx, claim)
	if err != nil || ofEarlierSpec(claim, intent, nodeClass) {
		return
	}
	l.config.Capacity.RecordSuccess(capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone,
		BillingPlan: intent.BillingPlan, NodeClass: capacity.NodeClassKey(nodeClass)}, took)
	l.pauses.handle(ctx, nodeClass, event{kind: nodeRegistered, claim: claim.UID})
}

// LaunchEnded allows another trial with a NodeClass when this NodeClaim was one and ends before its node has
// registered.
func (l *Launcher) LaunchEnded(ctx context.Context, claim *karpv1.NodeClaim) {
	l.pauses.endTrial(ctx, claim.UID)
}

// ofEarlierSpec reports whether the launch was with an earlier spec or image of the NodeClass, and says nothing of the
// present ones.
func ofEarlierSpec(claim *karpv1.NodeClaim, intent instance.Intent, nodeClass *v1alpha1.BizflyNodeClass) bool {
	return intent.ImageID != nodeClass.Status.ImageID() || SpecChanged(claim, nodeClass)
}

// SpecChanged reports whether the hash of the NodeClass is another one than at the launch. Hashes of different versions
// are not compared: after an upgrade they are written anew first.
func SpecChanged(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) bool {
	wanted, got := nodeClass.Annotations, claim.Annotations
	version := wanted[v1alpha1.AnnotationNodeClassHashVersion]
	if version == "" || version != got[v1alpha1.AnnotationNodeClassHashVersion] {
		return false
	}
	return nodeClass.HashDiffers(got[v1alpha1.AnnotationNodeClassHash])
}

// EndOrKeep returns what core is to do with a NodeClaim whose launch returned an error. Core schedules no pods while a
// NodeClaim has no server. So one that no retry helps ends at once, and any other one shortly before core's launch
// timeout, which reports nothing. A process that was overtaken during its launch does not end what the next leader
// has launched: then the NodeClaim is returned as that leader left it.
func (l *Launcher) EndOrKeep(ctx context.Context, claim *karpv1.NodeClaim, err error) (*karpv1.NodeClaim, error) {
	if !ends(err) && l.TimeLeft(claim) <= max(ttl.CoreRetry, retryAfter(err)) {
		err = l.EndOutOfTime(ctx, claim, err)
	}
	if !l.records.recordOf(claim).mayHaveServer() {
		l.records.reserve(claim.UID, capacity.Offering{})
		l.LaunchEnded(ctx, claim)
	}
	if ends(err) {
		if live, readErr := l.records.live(ctx, claim); readErr == nil && live.Status.ProviderID != "" {
			return live, nil
		}
	}
	return nil, err
}

// EndOutOfTime ends a NodeClaim for which core would call Create too late to launch anything: its next call comes up to
// a minute after this one. Nothing is known to be wrong, so nothing is marked.
func (l *Launcher) EndOutOfTime(ctx context.Context, claim *karpv1.NodeClaim, err error) error {
	reason := ReasonLaunchOutcomeUnknown
	if !l.records.recordOf(claim).mayHaveServer() {
		age := l.config.Clock.Since(claim.CreationTimestamp.Time).Round(time.Second)
		reason, err = ReasonLaunchNotSent, fmt.Errorf(
			"no create request was accepted in time, at an age of the NodeClaim of %s by the "+
				"controller's clock: %w", age, err)
	}
	launchFailuresTotal.Inc(map[string]string{"reason": reason})
	return l.End(ctx, reason, err)
}

// End ends a NodeClaim: core deletes it, and plans another one for its pods. Core reports reason and error of
// insufficient capacity on the NodeClaim and on its pods.
func (l *Launcher) End(ctx context.Context, reason string, err error) error {
	l.logLaunch(ctx, messageLaunchFailed, &Launch{}, "", reason)
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

// Keep keeps the NodeClaim: core shows reason and message, of at most 300 characters, on it and calls Create again.
func Keep(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, lo.Ellipsis(err.Error(), 300))
}

// retryable reports whether nothing is known to be wrong with a launch that was not sent, so that it is worth its
// NodeClaim's wait: the cloud's rate limit or our own, the connection, or an API server that is busy. Anything else
// would fail again.
func retryable(err error) bool {
	if _, ofCloud := errors.AsType[*bizfly.APIError](err); ofCloud {
		return bizfly.IsRetryable(err)
	}
	var network net.Error
	if errors.Is(err, errNotRecorded) || errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	return lo.SomeBy([]func(error) bool{
		apierrors.IsConflict, apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsTooManyRequests,
		apierrors.IsServiceUnavailable, apierrors.IsInternalError,
	}, func(is func(error) bool) bool { return is(err) })
}

// retryAfter is how long BizFly Cloud asked to wait; 0 where it did not.
func retryAfter(err error) time.Duration {
	of, _ := errors.AsType[*bizfly.APIError](err)
	return lo.FromPtr(of).RetryAfter
}

// messageLaunchFailed is the message of the log line of a launch that failed.
const messageLaunchFailed = "launching server failed"

// logLaunch writes the one log line of a launch, and returns its price, 0 where it is not known.
// docs/operate/monitoring.md explains the messages and keys, by which a program reads the history of a cluster. The
// logger of the context has the NodeClaim.
func (l *Launcher) logLaunch(ctx context.Context, message string, launch *Launch, serverID,
	reason string) (price float64) {
	intent, took := launch.record.intent, time.Duration(0)
	_, offering := flavor.Find(launch.Types, intent.Flavor, intent.Zone)
	price = lo.FromPtr(offering).Price
	if !intent.RequestedAt.IsZero() {
		took = l.config.Clock.Since(intent.RequestedAt)
	}
	log.FromContext(ctx).Info(message, "server-id", serverID, "flavor", intent.Flavor, "zone", intent.Zone,
		"capacity-type", karpv1.CapacityTypeOnDemand, "price-vnd-per-hour", math.Round(price*100)/100, "reason", reason,
		"seconds", math.Round(max(0, took.Seconds())*10)/10)
	return price
}

// launchFailuresTotal counts launches that failed.
var launchFailuresTotal = metrics.Counter("karpenter_bizfly_launch_failures_total",
	"Launches that BizFly Cloud rejected, failed to build or left without an answer, whose node did not register, "+
		"or that were not sent, by reason.",
	metrics.Enum("reason", append(lo.Values(classReasons), ReasonLaunchFailed, ReasonLaunchOutcomeUnknown,
		ReasonNotRegistered,
		ReasonNodeClassNotReady, ReasonLaunchNotPrepared, ReasonLaunchNotSent)...))
