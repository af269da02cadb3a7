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
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Outcomes learns from launches: a failure marks what it shows to be unavailable and counts against the NodeClass, whose launches
// pause when they keep failing.
type Outcomes struct {
	*config
	records *launchRecords
	pauses  *launchPauses
}

// launchable returns the instance types as core may launch them now: with every offering unavailable while launches with the
// NodeClass pause or one of its networks has no address left. They keep existing, since core drifts nodes whose type has vanished
// and prices them at 0. The given ones are shared and not changed, and one that has been used must not be copied.
func (o *Outcomes) launchable(nodeClass *v1alpha1.BizflyNodeClass, instanceTypes []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if _, full := o.networkFull(nodeClass); !full && !o.pauses.active(nodeClass) {
		return instanceTypes
	}
	return lo.Map(instanceTypes, func(it *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
		return &cloudprovider.InstanceType{
			Name:                   it.Name,
			Requirements:           it.Requirements,
			Capacity:               it.Capacity,
			Overhead:               it.Overhead,
			VolumeAttachmentLimits: it.VolumeAttachmentLimits,
			Offerings: lo.Map(it.Offerings, func(offering *cloudprovider.Offering, _ int) *cloudprovider.Offering {
				return &cloudprovider.Offering{Requirements: offering.Requirements, Price: offering.Price}
			}),
		}
	})
}

// LaunchFailed learns from a server that was launched and failed afterwards, or whose node did not register
// (ErrNotRegistered). It returns the reason.
func (o *Outcomes) LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, err error) string {
	l := &launch{claim: claim}
	var readErr error
	if l.nodeClass, readErr = o.nodeClass(ctx, claim.Spec.NodeClassRef); readErr == nil {
		l.types, readErr = o.Flavors.List(ctx, l.nodeClass)
	}
	if readErr != nil {
		// The mark is then the offering's alone.
		log.FromContext(ctx).Error(readErr, "resolving the NodeClass of a failed launch")
	}
	return o.failed(ctx, l, intent, err).reason
}

// failed reports, marks and counts a launch that failed after its request was accepted, or whose outcome is unknown.
func (o *Outcomes) failed(ctx context.Context, l *launch, intent instance.Intent, err error) failure {
	f := failureOf(err)
	switch f.reason {
	case ReasonLaunchOutcomeUnknown:
		o.Recorder.Publish(events.LaunchOutcomeUnknown(l.claim, err))
	case ReasonNotRegistered:
		o.Recorder.Publish(events.NodeNotRegistered(l.claim, intent.Name, intent.Flavor, intent.Zone))
	default:
		o.Recorder.Publish(events.LaunchFailed(l.claim, intent.Name, intent.Flavor, intent.Zone, err))
	}
	o.records.change(l.claim.UID, func(r *launchRecord) { r.Failure = f.reason })
	o.learn(ctx, l, intent, f)
	return f
}

// rejected reports, marks and counts a create request that BizFly Cloud rejected, and reports whether the next offering may be
// tried. The intent is zero where the request was not worth sending.
func (o *Outcomes) rejected(ctx context.Context, l *launch, chosen candidate, intent instance.Intent, err error) (next bool) {
	intent.Flavor, intent.Zone, intent.BillingPlan = chosen.key.Flavor, chosen.key.Zone, chosen.key.BillingPlan
	f := failureOf(err)
	next = o.learn(ctx, l, intent, f)
	switch {
	case !f.noCapacity:
		o.Recorder.Publish(events.LaunchRejected(l.claim, intent.Flavor, intent.Zone, f.reason, err))
	case next:
		o.Recorder.Publish(events.OfferingUnavailable(l.claim, intent.Flavor, intent.Zone, f.reason, err))
	}
	return next
}

// unlaunchable ends a NodeClaim for which no request is worth sending.
func (o *Outcomes) unlaunchable(claim *karpv1.NodeClaim, reason string, err error) error {
	o.audit(&launch{claim: claim}, instance.Intent{}, reason)
	switch reason {
	case ReasonNodeClassNotReady:
		launchFailuresTotal.Inc(map[string]string{"reason": reason})
		return cloudprovider.NewNodeClassNotReadyError(err)
	case ReasonLaunchNotSent:
		launchFailuresTotal.Inc(map[string]string{"reason": reason})
		o.Recorder.Publish(events.LaunchNotSent(claim, err))
	case events.ReasonNodeClassUnresolved:
		o.Recorder.Publish(events.NodeClassUnresolved(claim, err))
	}
	return insufficientCapacity("%w", err)
}

// audit writes the line of a launch that failed.
func (o *Outcomes) audit(l *launch, intent instance.Intent, reason string) {
	o.Audit.LaunchFailed(o.recordOf(l, intent, reason))
}

// recordOf is the audit log's record of a launch.
func (c *config) recordOf(l *launch, intent instance.Intent, reason string) audit.Record {
	record := audit.Record{NodeClaim: l.claim.Name, Flavor: intent.Flavor, Zone: intent.Zone, Reason: reason}
	if _, offering := find(l.types, intent.Flavor, intent.Zone); offering != nil {
		record.Price = offering.Price
	}
	if !intent.RequestedAt.IsZero() {
		record.Took = c.Clock.Since(intent.RequestedAt)
	}
	return record
}

// learn audits a failed launch, marks what it shows to be unavailable, and counts it against the NodeClass. It reports whether
// another offering may be tried for the same NodeClaim.
func (o *Outcomes) learn(ctx context.Context, l *launch, intent instance.Intent, f failure) (next bool) {
	launchFailuresTotal.Inc(map[string]string{"reason": f.reason})
	o.audit(l, intent, f.reason)
	key := capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan}
	next = o.mark(ctx, l, key, f)
	if f.noCapacity || l.nodeClass == nil {
		return next
	}
	if pause := o.pauses.failed(l.nodeClass, key, l.claim.UID, f); pause > 0 {
		o.Recorder.Publish(events.LaunchesKeepFailing(l.nodeClass, maxFailures, pause, f.err))
	}
	return next
}

// mark marks the offering of a failed launch unavailable, and beyond it what the error names. What nothing recognises is
// marked for the NodeClass alone, since its image or network may be the cause as well as the offering. mark reports whether
// another offering may be tried at once.
func (o *Outcomes) mark(ctx context.Context, l *launch, key capacity.Offering, f failure) (next bool) {
	period := o.Settings.Load().UnavailableOfferingTTL
	switch f.scope {
	case bizfly.ScopeAccount:
		o.pauseAccount(ctx, l.claim, f)
		return false
	case bizfly.ScopeSize:
		o.learnQuota(ctx, l, key, f)
		return false
	case bizfly.ScopeNetwork:
		if o.markNetworks(ctx, l, key, f) {
			return false // every other offering of the NodeClass is in the same network
		}
	case bizfly.ScopeZone:
		o.Capacity.MarkUnavailable(ctx, capacity.Offering{Zone: key.Zone}, f.reason, period)
	case bizfly.ScopePlan:
		o.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: key.Flavor, BillingPlan: key.BillingPlan}, f.reason, period)
	case bizfly.ScopeCategory:
		category, _ := o.Flavors.Category(key.Flavor)
		o.Capacity.MarkAll(ctx, lo.FilterMap(l.types, func(it *cloudprovider.InstanceType, _ int) (capacity.Offering, bool) {
			other, known := o.Flavors.Category(it.Name)
			return capacity.Offering{Flavor: it.Name, Zone: key.Zone}, known && other == category
		}), f.reason, period)
	}
	reason := f.reason
	if !f.noCapacity {
		reason = capacity.ReasonLaunchFailed
		if l.nodeClass != nil {
			key.NodeClass = capacity.NodeClassKey(l.nodeClass)
		}
	}
	if f.reason == ReasonNotRegistered {
		// The next launch takes as long to fail: a shorter mark would be over by then, and two offerings would be tried in turn.
		o.Capacity.RecordFailure(key)
		o.Capacity.MarkUnavailable(ctx, key, reason, ttl.NotRegistered)
		return true
	}
	period = o.Capacity.MarkFailed(ctx, key, reason, period)
	log.FromContext(ctx).V(1).Info("a launch failed, its offering is unavailable", "flavor", key.Flavor, "zone", key.Zone, "reason", f.reason, "for", period)
	return f.scope != bizfly.ScopeNodeClass
}

// pauseAccount stops all launches for a while: every further one would be rejected too.
func (o *Outcomes) pauseAccount(ctx context.Context, claim *karpv1.NodeClaim, f failure) {
	pause := o.Settings.Load().AccountPause
	o.Capacity.MarkUnavailable(ctx, capacity.Offering{}, f.reason, pause)
	o.Recorder.Publish(events.AccountLimitReached(claim, f.reason, pause, f.err))
}

// markNetworks marks those networks of the NodeClass unavailable that the error names, and reports whether there are any. Where it
// names none, no server can be launched in all of these networks together, whichever of them has no address left.
func (o *Outcomes) markNetworks(ctx context.Context, l *launch, key capacity.Offering, f failure) bool {
	if l.nodeClass == nil {
		return false
	}
	ids := networkIDs(l.nodeClass)
	full, marks := ids, lo.Compact([]string{networkSetKey(ids)})
	if named := lo.Intersect(ids, bizfly.IDsIn(f.err)); len(named) > 0 {
		full, marks = named, named
	}
	if len(marks) == 0 {
		return false
	}
	scopes := lo.Map(marks, func(id string, _ int) capacity.Offering { return capacity.Offering{Network: id} })
	period := o.Settings.Load().UnavailableOfferingTTL
	o.Capacity.RecordFailure(key)
	// Launches that were under way fail in the same way: one event for each mark.
	if o.Capacity.MarkAll(ctx, scopes, f.reason, period) {
		names := lo.FilterMap(l.nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) (string, bool) {
			return fmt.Sprintf("%s (%s)", n.Name, n.ID), lo.Contains(full, n.ID)
		})
		o.Recorder.Publish(events.NetworkOutOfAddresses(l.nodeClass, names, period, f.err))
	}
	return true
}

// networkFull reports whether a network of the NodeClass, or all of them together, is marked unavailable for lack of addresses,
// and the reason of the mark.
func (c *config) networkFull(nodeClass *v1alpha1.BizflyNodeClass) (reason string, full bool) {
	ids := networkIDs(nodeClass)
	for _, id := range lo.Uniq(lo.Compact(append(ids, networkSetKey(ids)))) {
		if reason, full = c.Capacity.Unavailable(capacity.Offering{Network: id}); full {
			return reason, full
		}
	}
	return "", false
}

func networkIDs(nodeClass *v1alpha1.BizflyNodeClass) []string {
	return lo.Map(nodeClass.Status.Networks, func(network v1alpha1.NetworkStatus, _ int) string { return network.ID })
}

// networkSetKey is a mark's name for several networks of one server.
func networkSetKey(networks []string) string {
	return strings.Join(slices.Sorted(slices.Values(networks)), "+")
}

// learnQuota marks unavailable what is at least as big as what the quota has rejected.
func (o *Outcomes) learnQuota(ctx context.Context, l *launch, key capacity.Offering, f failure) {
	sizes := lo.SliceToMap(l.types, func(it *cloudprovider.InstanceType) (string, capacity.Size) { return it.Name, sizeOf(it) })
	rejected, known := sizes[key.Flavor]
	if !known {
		o.pauseAccount(ctx, l.claim, f)
		return
	}
	o.Capacity.RecordFailure(key)
	o.Capacity.LearnQuota(ctx, rejected, sizes, ttl.RejectedSize)
	o.Recorder.Publish(events.QuotaTooSmall(l.claim, rejected.CPU, rejected.MemoryMiB, ttl.RejectedSize, f.err))
}

func sizeOf(it *cloudprovider.InstanceType) capacity.Size {
	cpu, _ := strconv.Atoi(it.Requirements.Get(v1alpha1.LabelInstanceCPU).Any())
	memory, _ := strconv.Atoi(it.Requirements.Get(v1alpha1.LabelInstanceMemory).Any())
	return capacity.Size{CPU: cpu, MemoryMiB: memory}
}

// abandon deletes the NodeClaim, and only this one, and returns what Create returns. Core then plans a new one, whose server
// is another by its UID; what is left of this one's server is garbage collected.
func (o *Outcomes) abandon(ctx context.Context, claim *karpv1.NodeClaim, reason string, err error) error {
	deleteErr := o.KubeClient.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID})
	if deleteErr != nil && !apierrors.IsNotFound(deleteErr) && !apierrors.IsConflict(deleteErr) {
		return fmt.Errorf("deleting the NodeClaim (%s: %w): %w", reason, err, deleteErr)
	}
	o.records.change(claim.UID, func(r *launchRecord) { r.Abandoned = true })
	return createError(reason, err)
}

// removalReason is why the server of a NodeClaim is deleted, as far as its failed launch or the NodeClaim show.
func (o *Outcomes) removalReason(claim *karpv1.NodeClaim) string {
	if failure := o.records.remembered(claim.UID).Failure; failure != "" {
		return failure
	}
	conditions, after := claim.StatusConditions(), claim.Spec.ExpireAfter.Duration
	disruption := conditions.Get(karpv1.ConditionTypeDisruptionReason)
	switch {
	case disruption.IsTrue():
		return disruption.Reason
	case after != nil && claim.DeletionTimestamp != nil && claim.DeletionTimestamp.Sub(claim.CreationTimestamp.Time) >= *after:
		return ReasonExpired
	case !conditions.Get(karpv1.ConditionTypeRegistered).IsTrue():
		return ReasonNotRegistered
	}
	return ReasonDeleted
}

// LaunchSucceeded remembers that the node of a launch has registered, and how long that took since its create request.
func (o *Outcomes) LaunchSucceeded(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, took time.Duration) {
	o.Capacity.RecordLaunch(capacity.Launch{Flavor: intent.Flavor, Zone: intent.Zone, ImageID: intent.ImageID}, took)
	nodeClass, err := o.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		return
	}
	o.Capacity.RecordSuccess(capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan,
		NodeClass: capacity.NodeClassKey(nodeClass)})
	o.pauses.succeeded(nodeClass, claim.UID)
}

// LaunchEnded allows another trial of a paused NodeClass when this NodeClaim was one and ends before its node has registered.
func (o *Outcomes) LaunchEnded(claim *karpv1.NodeClaim) { o.pauses.release(claim.UID) }

// LaunchesBlocked returns the reason and the cause of the pause of launches with the NodeClass, until when none is sent, and
// a nil cause while there is no pause. Once that time is over, one launch at a time is tried until one succeeds.
func (o *Outcomes) LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	paused := o.pauses.of(nodeClass)
	if paused.count == 0 {
		return "", time.Time{}, nil
	}
	return paused.last.reason, paused.until, paused.last.err
}
