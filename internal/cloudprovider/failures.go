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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// quotaMemory is how long a rejection by the quota of vCPUs or memory is believed: longer than a want of capacity, since
// servers have to be deleted or the quota raised.
const quotaMemory = 5 * time.Minute

// launchFailuresTotal counts launches that came to nothing.
var launchFailuresTotal = metrics.Counter("launch_failures_total",
	"Launches that BizFly Cloud rejected, failed to build or left without an answer, whose node did not register, or that were not sent, by reason.",
	metrics.Label("reason"))

// A counter that first appears with its first count hides that count from every rate.
func init() {
	for _, reason := range append(lo.Values(reasons), ReasonLaunchFailed, ReasonLaunchOutcomeUnknown, ReasonNotRegistered, ReasonNodeClassNotReady, ReasonLaunchNotSent) {
		launchFailuresTotal.Add(0, map[string]string{"reason": reason})
	}
}

// LaunchFailed draws the conclusions from a server that was launched and failed afterwards, or whose node did not register
// (ErrNotRegistered). It returns the reason.
func (c *CloudProvider) LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, err error) string {
	l := &launch{claim: claim}
	var readErr error
	if l.nodeClass, readErr = c.nodeClass(ctx, claim.Spec.NodeClassRef); readErr == nil {
		l.types, readErr = c.flavors.List(ctx, l.nodeClass)
	}
	if readErr != nil {
		// The mark is then the offering's alone.
		log.FromContext(ctx).Error(readErr, "resolving the NodeClass of a failed launch")
	}
	return c.launchFailed(ctx, l, intent, err).reason
}

// launchFailed reports, marks and counts a launch that failed after its request was accepted, or that was left without an
// answer.
func (c *CloudProvider) launchFailed(ctx context.Context, l *launch, intent instance.Intent, err error) failure {
	f := failureOf(err)
	switch f.reason {
	case ReasonLaunchOutcomeUnknown:
		c.recorder.Publish(events.LaunchOutcomeUnknown(l.claim, err))
	case ReasonNotRegistered:
		c.recorder.Publish(events.NodeNotRegistered(l.claim, intent.Name, intent.Flavor, intent.Zone))
	default:
		c.recorder.Publish(events.LaunchFailed(l.claim, intent.Name, intent.Flavor, intent.Zone, err))
	}
	c.removals.SetDefault(string(l.claim.UID), f.reason)
	c.conclude(ctx, l, intent, f)
	return f
}

// conclude writes a failed launch down, marks what it shows to be unavailable, and counts it against the NodeClass. It
// reports whether another offering may be tried for the same NodeClaim.
func (c *CloudProvider) conclude(ctx context.Context, l *launch, intent instance.Intent, f failure) (next bool) {
	launchFailuresTotal.Inc(map[string]string{"reason": f.reason})
	c.journal.LaunchFailed(c.entry(l.claim, l.types, intent, f.reason))
	key := capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan}
	next = c.mark(ctx, l, key, f)
	if f.noCapacity || l.nodeClass == nil {
		return next
	}
	if pause := c.pauses.failed(l.nodeClass, key, l.claim.UID, f); pause > 0 {
		c.recorder.Publish(events.LaunchesKeepFailing(l.nodeClass, maxFailures, pause, f.err))
	}
	return next
}

// mark marks the offering of a failed launch unavailable, and beyond it what the error names. What nothing recognises is
// marked for the NodeClass alone, since its image or network may be the cause as well as the offering. mark reports whether
// another offering may be tried at once.
func (c *CloudProvider) mark(ctx context.Context, l *launch, key capacity.Offering, f failure) (next bool) {
	ttl := c.settings.Load().UnavailableOfferingTTL
	switch f.scope {
	case bizfly.ScopeAccount:
		c.pauseAccount(ctx, l.claim, f)
		return false
	case bizfly.ScopeSize:
		c.learnQuota(ctx, l, key, f)
		return false
	case bizfly.ScopeNetwork:
		if c.markNetworks(ctx, l, key, f) {
			return false // every other offering of the NodeClass is in the same network
		}
	case bizfly.ScopeZone:
		c.capacity.MarkUnavailable(ctx, capacity.Offering{Zone: key.Zone}, f.reason, ttl)
	case bizfly.ScopePlan:
		c.capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: key.Flavor, BillingPlan: key.BillingPlan}, f.reason, ttl)
	case bizfly.ScopeCategory:
		category, _ := c.flavors.Category(key.Flavor)
		c.capacity.MarkAll(ctx, lo.FilterMap(l.types, func(it *cloudprovider.InstanceType, _ int) (capacity.Offering, bool) {
			other, known := c.flavors.Category(it.Name)
			return capacity.Offering{Flavor: it.Name, Zone: key.Zone}, known && other == category
		}), f.reason, ttl)
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
		c.capacity.RecordFailure(key)
		c.capacity.MarkUnavailable(ctx, key, reason, slowFailureWindow)
		return true
	}
	ttl = c.capacity.MarkFailed(ctx, key, reason, ttl)
	log.FromContext(ctx).V(1).Info("a launch failed, its offering is unavailable", "flavor", key.Flavor, "zone", key.Zone, "reason", f.reason, "for", ttl)
	return f.scope != bizfly.ScopeNodeClass
}

// pauseAccount stops all launches for a while: every further one would be rejected too.
func (c *CloudProvider) pauseAccount(ctx context.Context, claim *karpv1.NodeClaim, f failure) {
	pause := c.settings.Load().AccountPause
	c.capacity.MarkUnavailable(ctx, capacity.Offering{}, f.reason, pause)
	c.recorder.Publish(events.AccountLimitReached(claim, f.reason, pause, f.err))
}

// markNetworks marks those networks of the NodeClass unavailable that the error says to be full, and reports whether there
// are any. Where it names none, no server can be launched in all of these networks together, whichever of them is full.
func (c *CloudProvider) markNetworks(ctx context.Context, l *launch, key capacity.Offering, f failure) bool {
	if l.nodeClass == nil {
		return false
	}
	ids := networkIDs(l.nodeClass)
	full := lo.Intersect(ids, bizfly.IDsIn(f.err))
	marks := full
	if len(full) == 0 {
		full, marks = ids, lo.Compact([]string{networkSetKey(ids)})
	}
	if len(marks) == 0 {
		return false
	}
	scopes := lo.Map(marks, func(id string, _ int) capacity.Offering { return capacity.Offering{Network: id} })
	ttl := c.settings.Load().UnavailableOfferingTTL
	c.capacity.RecordFailure(key)
	// Launches that were under way fail in the same way: one event for each mark.
	if c.capacity.MarkAll(ctx, scopes, f.reason, ttl) {
		names := lo.FilterMap(l.nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) (string, bool) {
			return fmt.Sprintf("%s (%s)", n.Name, n.ID), lo.Contains(full, n.ID)
		})
		c.recorder.Publish(events.NetworkOutOfAddresses(l.nodeClass, names, ttl, f.err))
	}
	return true
}

// networkFull reports whether a network of the NodeClass had no address left a short while ago, and why it is unavailable.
func (c *CloudProvider) networkFull(nodeClass *v1alpha1.BizflyNodeClass) (reason string, full bool) {
	for _, network := range nodeClass.Status.Networks {
		if reason, full = c.capacity.Unavailable(capacity.Offering{Network: network.ID}); full {
			return reason, full
		}
	}
	if len(nodeClass.Status.Networks) > 1 {
		return c.capacity.Unavailable(capacity.Offering{Network: networkSetKey(networkIDs(nodeClass))})
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
func (c *CloudProvider) learnQuota(ctx context.Context, l *launch, key capacity.Offering, f failure) {
	sizes := lo.SliceToMap(l.types, func(it *cloudprovider.InstanceType) (string, capacity.Size) { return it.Name, sizeOf(it) })
	rejected, known := sizes[key.Flavor]
	if !known {
		c.pauseAccount(ctx, l.claim, f)
		return
	}
	c.capacity.RecordFailure(key)
	c.capacity.LearnQuota(ctx, rejected, sizes, quotaMemory)
	c.recorder.Publish(events.QuotaTooSmall(l.claim, rejected.CPU, rejected.MemoryMiB, quotaMemory, f.err))
}

func sizeOf(it *cloudprovider.InstanceType) capacity.Size {
	number := func(key string) int {
		n, _ := strconv.Atoi(it.Requirements.Get(key).Any())
		return n
	}
	return capacity.Size{CPU: number(v1alpha1.LabelInstanceCPU), MemoryMiB: number(v1alpha1.LabelInstanceMemory)}
}

// abandon deletes the NodeClaim, and only this one, and returns what Create returns. Core then plans a new one, whose server
// is another by its UID; what is left of this one's server is garbage collected.
func (c *CloudProvider) abandon(ctx context.Context, claim *karpv1.NodeClaim, reason string, err error) error {
	deleteErr := c.kubeClient.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID})
	if deleteErr != nil && !apierrors.IsNotFound(deleteErr) && !apierrors.IsConflict(deleteErr) {
		return fmt.Errorf("deleting the NodeClaim (%s: %w): %w", reason, err, deleteErr)
	}
	c.records.abandon(claim.UID)
	return createError(reason, err)
}

// LaunchSucceeded remembers that the node of a launch has registered, and how long that took since its create request.
func (c *CloudProvider) LaunchSucceeded(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, took time.Duration) {
	c.capacity.RecordLaunch(capacity.Launch{Flavor: intent.Flavor, Zone: intent.Zone, ImageID: intent.ImageID}, took)
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		return
	}
	c.capacity.RecordSuccess(capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan, NodeClass: capacity.NodeClassKey(nodeClass)})
	c.pauses.succeeded(nodeClass, claim.UID)
}

// LaunchEnded tells that a NodeClaim ends before its node has registered. Where it was the trial of a paused NodeClass,
// another one may try.
func (c *CloudProvider) LaunchEnded(claim *karpv1.NodeClaim) { c.pauses.release(claim.UID) }

// LaunchesBlocked returns the reason and the cause of the pause of launches with the NodeClass, until when none is sent, and
// a nil cause while there is no pause. Once that time is over, one launch at a time is tried until one succeeds.
func (c *CloudProvider) LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	paused, exists := c.pauses.of(nodeClass)
	if !exists || paused.count == 0 {
		return "", time.Time{}, nil
	}
	return paused.last.reason, paused.until, paused.last.err
}
