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
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// maxOrders and failOverWindow are how far one call of Create goes on after rejections. Core schedules nothing while a
	// NodeClaim has no server, so one that finds no capacity quickly is better planned anew.
	maxOrders      = 3
	failOverWindow = 10 * time.Second
	// launchMargin is the part of core's launch timeout that a server needs to show its id: with less time left, it would be
	// built for a NodeClaim that is about to end. It is no more than a quarter of the timeout.
	launchMargin = 30 * time.Second
)

// launch is one call of Create, with everything that it has resolved.
type launch struct {
	// claim is the NodeClaim to launch. live is the same as the API server has it, nil where it was not read.
	claim, live *karpv1.NodeClaim
	nodeClass   *v1alpha1.BizflyNodeClass
	types       cloudprovider.InstanceTypes
	// record is what was written down of an earlier attempt, nil without one.
	record *launchRecord
}

// Create launches a server for the NodeClaim, or finds the one that was launched before. It returns as soon as the server
// has an id. A create request whose outcome is unknown is never repeated.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	created, err := c.create(ctx, claim)
	if cloudprovider.IsInsufficientCapacityError(err) {
		c.pauses.release(claim.UID)
	}
	return created, err
}

func (c *CloudProvider) create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	l, err := c.resolve(ctx, claim)
	if err != nil {
		return nil, err
	}
	// Whatever has become of the NodeClass meanwhile, a server that may exist is being paid for.
	resumes := l.record != nil && !l.record.Refused
	if !resumes {
		if err := c.ready(ctx, l); err != nil {
			return nil, err
		}
	}
	if l.types, err = c.instanceTypes(ctx, l.claim.Labels[karpv1.NodePoolLabelKey], l.nodeClass); err != nil {
		return nil, err
	}
	if resumes {
		return c.resume(ctx, l)
	}
	candidates, err := c.candidates(ctx, l)
	if err != nil {
		return nil, c.unlaunchable(l.claim, ReasonNoOffering, err)
	}
	return c.launch(ctx, l, candidates)
}

// resolve reads what the launch needs: the NodeClass, and what was written down of an earlier attempt. A NodeClass that is
// not there ends the NodeClaim, so that core can use another NodePool.
func (c *CloudProvider) resolve(ctx context.Context, claim *karpv1.NodeClaim) (*launch, error) {
	l := &launch{claim: claim}
	var err error
	if l.nodeClass, err = c.nodeClass(ctx, claim.Spec.NodeClassRef); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, c.unresolved(claim, err)
		}
		return nil, fmt.Errorf("resolving the NodeClass: %w", err)
	}
	l.record, l.live, err = c.records.load(ctx, claim)
	switch {
	case errors.Is(err, errIntentUnreadable):
		c.recorder.Publish(events.LaunchIntentUnreadable(claim, err))
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, ReasonLaunchIntentUnreadable))
		return nil, c.abandon(ctx, claim, ReasonLaunchIntentUnreadable, err)
	case errors.Is(err, errAbandoned):
		// Core could not delete it when it was told to, and schedules nothing until it can.
		return nil, noRoom("launching NodeClaim %s: %w", claim.Name, err)
	case err != nil:
		return nil, fmt.Errorf("reading what was ordered for NodeClaim %s: %w", claim.Name, err)
	}
	return l, nil
}

// unresolved ends a NodeClaim whose NodeClass is not there, or will not be there soon.
func (c *CloudProvider) unresolved(claim *karpv1.NodeClaim, err error) error {
	c.recorder.Publish(events.NodeClassUnresolved(claim, err))
	return c.unlaunchable(claim, events.ReasonNodeClassUnresolved, fmt.Errorf("resolving the NodeClass: %w", err))
}

// unlaunchable ends a NodeClaim for which no request is worth sending.
func (c *CloudProvider) unlaunchable(claim *karpv1.NodeClaim, reason string, err error) error {
	c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, reason))
	return noRoom("%w", err)
}

// ready ends a NodeClaim that cannot be launched whatever the cloud has. Core schedules nothing as long as it exists, so
// it is not kept for what only a change of the NodeClass, or time, makes right.
func (c *CloudProvider) ready(ctx context.Context, l *launch) (err error) {
	if l.claim, err = c.dropUnsupportedCapacityTypes(ctx, l.claim); err != nil {
		return err
	}
	claim, nodeClass := l.claim, l.nodeClass
	if !nodeClass.DeletionTimestamp.IsZero() {
		return c.unresolved(claim, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("bizflynodeclasses").GroupResource(), nodeClass.Name+" (being deleted)"))
	}
	condition := nodeClass.StatusConditions().Root()
	switch {
	case !condition.IsTrue():
		return c.notReady(claim, "BizflyNodeClass %q is not ready: %s: %s", nodeClass.Name, condition.Reason, condition.Message)
	case condition.ObservedGeneration != nodeClass.Generation:
		return c.notReady(claim, "the last change of BizflyNodeClass %q has not been resolved yet", nodeClass.Name)
	}
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	if !capacityType.Has(karpv1.CapacityTypeOnDemand) {
		c.recorder.Publish(events.CapacityTypeUnsupported(claim, capacityType.String()))
		return c.abandon(ctx, claim, ReasonCapacityTypeUnsupported, fmt.Errorf("%s: only %s can be launched", capacityType, karpv1.CapacityTypeOnDemand))
	}
	if err := c.roomInPackage(ctx, claim); err != nil {
		if cloudprovider.IsInsufficientCapacityError(err) {
			c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, capacity.ReasonPackageLimit))
		}
		return err
	}
	if reason, full := c.networkFull(nodeClass); full {
		return c.unlaunchable(claim, reason, fmt.Errorf("a network of BizflyNodeClass %q has no address left; it is tried again in a while. Free addresses, or select another network", nodeClass.Name))
	}
	if c.timeLeft(claim) <= 0 {
		return c.notSent(claim, errors.New("less than the time that a server needs is left of core's launch timeout"))
	}
	if err := c.pauses.admit(nodeClass, claim.UID); err != nil {
		return c.unlaunchable(claim, events.ReasonLaunchesKeepFailing, err)
	}
	return nil
}

func (c *CloudProvider) notReady(claim *karpv1.NodeClaim, format string, args ...any) error {
	launchFailuresTotal.Inc(map[string]string{"reason": ReasonNodeClassNotReady})
	c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, ReasonNodeClassNotReady))
	return cloudprovider.NewNodeClassNotReadyError(fmt.Errorf(format, args...))
}

// notSent ends a NodeClaim whose create request was not sent in time. Nothing is known to be wrong, so nothing is marked.
func (c *CloudProvider) notSent(claim *karpv1.NodeClaim, err error) error {
	launchFailuresTotal.Inc(map[string]string{"reason": ReasonLaunchNotSent})
	c.recorder.Publish(events.LaunchNotSent(claim, err))
	return c.unlaunchable(claim, ReasonLaunchNotSent, fmt.Errorf("no create request was sent in time: %w", err))
}

// timeLeft is how long a create request for the NodeClaim may still be sent. Core ends a NodeClaim by its launch timeout,
// counted from the first transition of the condition Launched, however long the request had to wait for its turn.
func (c *CloudProvider) timeLeft(claim *karpv1.NodeClaim) time.Duration {
	left := lifecycle.LaunchTimeout - min(launchMargin, lifecycle.LaunchTimeout/4)
	if launched := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeLaunched); launched != nil {
		left -= c.clock.Since(launched.LastTransitionTime.Time)
	}
	return left
}

// instanceTypes returns what NodeClaims of the NodePool can be launched with, at the prices that core has planned with.
func (c *CloudProvider) instanceTypes(ctx context.Context, pool string, nodeClass *v1alpha1.BizflyNodeClass) (cloudprovider.InstanceTypes, error) {
	instanceTypes, err := c.flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, createError(ReasonInstanceTypesUnavailable, err)
	}
	// A standalone claim belongs to no NodePool, and overlays are evaluated per NodePool.
	if c.overlay != nil && pool != "" {
		if instanceTypes, err = c.overlay.ApplyAll(pool, instanceTypes); err != nil {
			return nil, createError(ReasonInstanceTypesUnavailable, fmt.Errorf("applying NodeOverlays: %w", err))
		}
	}
	return instanceTypes, nil
}

// launch sends create requests for the candidates, in their order, until one is accepted.
func (c *CloudProvider) launch(ctx context.Context, l *launch, candidates []candidate) (*karpv1.NodeClaim, error) {
	written := launchRecord{Hash: l.nodeClass.Hash(), HashVersion: v1alpha1.NodeClassHashVersion}
	recorder := &recorder{records: c.records, name: l.claim.Name, uid: l.claim.UID, hash: written.Hash, hashVersion: written.HashVersion, base: l.live}
	first := lo.FromPtr(l.record).Attempt + 1
	attempt, start := first, c.clock.Now()
	var failures []error
	for len(candidates) > 0 && attempt-first < maxOrders && (attempt == first || c.clock.Since(start) < failOverWindow) {
		chosen := candidates[0]
		// Another launch may have learned meanwhile that this one is unavailable.
		if reason, unavailable := c.capacity.Unavailable(chosen.key); unavailable {
			failures = append(failures, fmt.Errorf("%s in %s: %s", chosen.key.Flavor, chosen.key.Zone, reason))
			candidates = candidates[1:]
			continue
		}
		c.placements.moved(l.claim, chosen.key.Zone)
		server, intent, err := c.instances.Launch(bizfly.AdmitWithin(ctx, c.timeLeft(l.claim)), c.request(l, chosen, attempt, recorder.record))
		attempt++
		if err == nil {
			written.Intent = intent
			return c.launched(l, server, written, lo.Ternary(len(failures) > 0, ReasonFailedOver, ReasonCheapest)), nil
		}
		if errors.Is(err, instance.ErrFlavorNameRejected) {
			continue // the same offering, by the flavor's other name
		}
		if intent.Name != "" && !intent.Refused {
			c.records.change(l.claim.UID, func(record *launchRecord) { record.Intent = intent })
			return nil, c.undecided(ctx, l, intent, err)
		}
		if retryable(err) {
			c.placements.moved(l.claim, "")
			if c.timeLeft(l.claim) <= 0 {
				return nil, c.notSent(l.claim, err)
			}
			return nil, fmt.Errorf("launching %s in %s: %w", chosen.key.Flavor, chosen.key.Zone, err)
		}
		failures = append(failures, err)
		if !c.rejected(ctx, l, chosen, intent, err) {
			break
		}
		candidates = candidates[1:]
	}
	c.placements.moved(l.claim, "")
	if attempt == first {
		c.journal.LaunchFailed(c.entry(l.claim, nil, instance.Intent{}, ReasonNoOffering))
	}
	return nil, noRoom("every offering that was tried is unavailable: %w", errors.Join(failures...))
}

// request is the launch of one server.
func (c *CloudProvider) request(l *launch, chosen candidate, attempt int, record func(context.Context, instance.Intent) error) *instance.LaunchRequest {
	category, _ := c.flavors.Category(chosen.key.Flavor)
	size := sizeOf(chosen.instanceType)
	return &instance.LaunchRequest{
		NodeClaim:    l.claim.Name,
		NodeClaimUID: string(l.claim.UID),
		NodePool:     l.claim.Labels[karpv1.NodePoolLabelKey],
		NodeClass:    l.nodeClass,
		Attempt:      attempt,
		Flavor:       chosen.key.Flavor,
		Category:     category,
		Zone:         chosen.key.Zone,
		BillingPlan:  chosen.key.BillingPlan,
		CPU:          size.CPU,
		MemoryMiB:    size.MemoryMiB,
		Labels:       lo.Assign(typeLabels(chosen.instanceType, chosen.offering), l.claim.Labels),
		Taints:       append(append([]corev1.Taint{}, l.claim.Spec.Taints...), l.claim.Spec.StartupTaints...),
		Record:       record,
	}
}

// rejected draws the conclusions from a create request that the cloud rejected, and reports whether the next offering may
// be tried. The intent is zero where the request was not worth sending.
func (c *CloudProvider) rejected(ctx context.Context, l *launch, chosen candidate, intent instance.Intent, err error) (next bool) {
	intent.Flavor, intent.Zone, intent.BillingPlan = chosen.key.Flavor, chosen.key.Zone, chosen.key.BillingPlan
	f := failureOf(err)
	next = c.conclude(ctx, l, intent, f)
	if f.noCapacity {
		if next {
			c.recorder.Publish(events.OfferingRefused(l.claim, intent.Flavor, intent.Zone, f.reason, err))
		}
		return next
	}
	c.recorder.Publish(events.OrderRefused(l.claim, intent.Flavor, intent.Zone, f.reason, err))
	return next
}

// undecided returns what Create returns when a create request was accepted, or may have been, and no server came of it yet.
func (c *CloudProvider) undecided(ctx context.Context, l *launch, intent instance.Intent, err error) error {
	var failed *instance.FailedError
	switch {
	case errors.As(err, &failed):
		c.launchFailed(ctx, l, intent, err)
		c.records.abandon(l.claim.UID)
		return noRoom("%w", err)
	case errors.Is(err, instance.ErrAwaitingServerID) && c.timeLeft(l.claim) > 0:
		return createError(ReasonAwaitingServerID, fmt.Errorf("server %s: %w", intent.Name, err))
	}
	if !errors.Is(err, instance.ErrOutcomeUnknown) {
		// Core's launch timeout would end the NodeClaim in silence, and the next one would meet the same offering.
		err = fmt.Errorf("%w: %w", instance.ErrOutcomeUnknown, err)
	}
	c.launchFailed(ctx, l, intent, err)
	return c.abandon(ctx, l.claim, ReasonLaunchOutcomeUnknown, err)
}

// resume finds the server of an earlier create request.
func (c *CloudProvider) resume(ctx context.Context, l *launch) (*karpv1.NodeClaim, error) {
	server, err := c.instances.Resume(ctx, string(l.claim.UID), l.record.Intent)
	var failed *instance.FailedError
	switch {
	case err == nil:
		return c.launched(l, server, *l.record, ReasonFound), nil
	case errors.As(err, &failed), errors.Is(err, instance.ErrOutcomeUnknown), errors.Is(err, instance.ErrAwaitingServerID):
		return nil, c.undecided(ctx, l, l.record.Intent, err)
	}
	return nil, fmt.Errorf("looking for server %s: %w", l.record.Name, err)
}

// launched reports the server of the launch, and returns its NodeClaim. What a server in BUILD does not say yet, and a
// flavor that the API calls by a name without its family, are those of the intent.
func (c *CloudProvider) launched(l *launch, server *instance.Instance, record launchRecord, reason string) *karpv1.NodeClaim {
	server.Zone = lo.CoalesceOrEmpty(server.Zone, record.Zone)
	if instanceType, _ := find(l.types, server.Flavor, server.Zone); instanceType == nil {
		server.Flavor = lo.CoalesceOrEmpty(record.Flavor, server.Flavor)
	}
	if !record.Launched {
		entry := c.entry(l.claim, l.types, record.Intent, reason)
		entry.Server = server.ID
		c.journal.Launched(entry)
		c.recorder.Publish(events.ServerLaunched(l.claim, server.Name, server.ID, entry.Flavor, entry.Zone, entry.Price, reason))
	}
	c.records.launched(l.claim.UID)
	c.pauses.launched(l.nodeClass, l.claim.UID)
	return c.convert(l, server, record)
}

// find returns the instance type and the offering that a server is.
func find(types cloudprovider.InstanceTypes, flavor, zone string) (*cloudprovider.InstanceType, *cloudprovider.Offering) {
	instanceType, ok := lo.Find(types, func(it *cloudprovider.InstanceType) bool { return it.Name == flavor })
	if !ok {
		return nil, nil
	}
	offering, _ := lo.Find(instanceType.Offerings, func(o *cloudprovider.Offering) bool { return o.Zone() == zone })
	return instanceType, offering
}

// billingPlan is how the servers of the NodeClass are paid for.
func billingPlan(nodeClass *v1alpha1.BizflyNodeClass) string {
	return bizfly.PlanWord(nodeClass.EffectiveBillingPlan())
}

// imageID is the image that servers of the NodeClass boot.
func imageID(nodeClass *v1alpha1.BizflyNodeClass) string {
	return lo.FromPtr(nodeClass.Status.Image()).ID
}
