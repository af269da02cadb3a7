// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxTries is how many offerings one call of Create tries at most.
const maxTries = 3

// launch is one call of Create, with what it has resolved.
type launch struct {
	claim     *karpv1.NodeClaim
	nodeClass *v1alpha1.BizflyNodeClass
	types     cloudprovider.InstanceTypes
	// record is that of the last attempt, empty before the first one.
	record launchRecord
	// live is the NodeClaim as last seen at the API server; nil when it has to be read.
	live *karpv1.NodeClaim
	// trial is true for the one launch that shows whether nodes of a NodeClass register again.
	trial bool
}

// Create launches a server for the NodeClaim, or finds the one that was launched before. It returns as soon as the server
// has an id. A create request whose outcome is unknown is never repeated. Core schedules nothing while a NodeClaim has no
// server, so a NodeClaim that no retry helps ends at once, and every other one shortly before core's launch timeout, which reports nothing.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	created, err := c.create(ctx, claim)
	if err != nil && !ends(err) && c.timeLeft(claim) <= max(ttl.CoreRetry, retryAfter(err)) {
		err = c.outOfTime(ctx, claim, err)
	}
	if err != nil && !c.intents.recordOf(claim).open() {
		c.intents.choose(claim.UID, capacity.Offering{})
		c.LaunchEnded(claim)
	}
	return created, err
}

func (c *CloudProvider) create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	l := &launch{claim: claim}
	var err error
	if l.nodeClass, err = c.nodeClass(ctx, claim.Spec.NodeClassRef); apierrors.IsNotFound(err) {
		return nil, c.unresolved(ctx, err)
	} else if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass: %w", err)
	}
	if l.record, l.live, err = c.intents.load(ctx, claim); errors.Is(err, errIntentUnreadable) {
		return nil, c.end(ctx, ReasonLaunchIntentUnreadable, err)
	} else if err != nil {
		return nil, fmt.Errorf("reading the launch intent of NodeClaim %s: %w", claim.Name, err)
	}
	if l.record.Ended != "" {
		// Core could not delete it, and schedules nothing until it can.
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s: the launch of NodeClaim %s has ended", l.record.Ended, claim.Name))
	}
	if l.record.open() {
		return c.resume(ctx, l)
	}
	if err := c.checkNodeClass(ctx, claim, l.nodeClass); err != nil {
		return nil, err
	}
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	if !capacityType.Has(karpv1.CapacityTypeOnDemand) {
		return nil, c.end(ctx, ReasonCapacityTypeUnsupported, fmt.Errorf("the requirement is %s, but BizFly Cloud has neither spot nor reserved capacity: "+
			"allow %s. To pay another way, set spec.billingPlan of the BizflyNodeClass; use %s only with static NodePools (spec.replicas), since it is "+
			"prepaid at each create", capacityType, karpv1.CapacityTypeOnDemand, v1alpha1.BillingPlanSavingPlan))
	}
	if c.timeLeft(claim) <= 0 {
		return nil, c.outOfTime(ctx, claim, errors.New("less than the time that a server needs is left of core's launch timeout"))
	}
	if l.types, err = c.instanceTypes(ctx, l); cloudprovider.IsUnevaluatedNodePoolError(err) {
		// Only for a moment: core evaluates the overlays of a NodePool just after a start, and after the NodePool is new. It creates the NodeClaims
		// of a static NodePool without waiting for that, and may wait a minute before it replaces one that has ended.
		return nil, createError(ReasonInstanceTypesUnavailable, err)
	} else if err != nil {
		return nil, c.end(ctx, ReasonInstanceTypesUnavailable, err)
	}
	if l.trial, err = c.nodeClasses.admit(l.nodeClass, claim.UID); err != nil {
		return nil, c.end(ctx, events.ReasonLaunchesPaused, err)
	}
	candidates, err := c.candidates(ctx, l)
	if err != nil {
		return nil, c.end(ctx, ReasonNoOffering, err)
	}
	return c.launch(ctx, l, candidates)
}

// resume looks for the server of an accepted create request. Whatever the spec of the NodeClass has become meanwhile, a server that may exist is
// being paid for, and its NodeClaim needs its size.
func (c *CloudProvider) resume(ctx context.Context, l *launch) (*karpv1.NodeClaim, error) {
	var err error
	if l.types, err = c.instanceTypes(ctx, l); err != nil {
		return nil, createError(ReasonInstanceTypesUnavailable, err)
	}
	if _, offering := flavor.Find(l.types, l.record.Flavor, l.record.Zone); offering == nil {
		l.types = append(c.Flavors.Launched(l.nodeClass, l.record.Flavor, l.record.Zone), l.types...)
	}
	server, err := c.Instances.Resume(ctx, string(l.claim.UID), l.record.Intent)
	return c.conclude(ctx, l, server, ReasonFound, err)
}

// unresolved ends a NodeClaim whose NodeClass does not exist, or not for long.
func (c *CloudProvider) unresolved(ctx context.Context, err error) error {
	return c.end(ctx, ReasonNodeClassUnresolved, fmt.Errorf("resolving the NodeClass: %w; correct nodeClassRef of the NodePool, or create it", err))
}

// checkNodeClass ends a NodeClaim whose NodeClass cannot launch anything now. Core schedules nothing as long as the NodeClaim
// exists, so that of a NodePool is not kept waiting for the NodeClass: core creates another one.
func (c *CloudProvider) checkNodeClass(ctx context.Context, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) error {
	condition := nodeClass.StatusConditions().Root()
	switch {
	case !nodeClass.DeletionTimestamp.IsZero():
		return c.unresolved(ctx, nodeClassNotFound(nodeClass.Name+" (being deleted)"))
	case claim.Labels[karpv1.NodePoolLabelKey] == "" && (condition.IsUnknown() || condition.ObservedGeneration != nodeClass.Generation):
		// A NodeClaim without a NodePool is not created again by core, which retries until its launch timeout.
		return createError(ReasonNodeClassReadinessUnknown, fmt.Errorf("BizflyNodeClass %q is being resolved: %s", nodeClass.Name, condition.Message))
	case !condition.IsTrue():
		return c.end(ctx, ReasonNodeClassNotReady,
			fmt.Errorf("BizflyNodeClass %q is not ready: %s: %s", nodeClass.Name, condition.Reason, condition.Message))
	case condition.ObservedGeneration != nodeClass.Generation:
		return c.end(ctx, ReasonNodeClassNotReady, fmt.Errorf("the last change of BizflyNodeClass %q has not been resolved yet", nodeClass.Name))
	}
	return nil
}

// timeLeft is how long a create request for the NodeClaim may still be sent. Core ends a NodeClaim by its launch timeout,
// counted from the first transition of the condition Launched, however long the request had to wait for its turn.
func (c *CloudProvider) timeLeft(claim *karpv1.NodeClaim) time.Duration {
	left := lifecycle.LaunchTimeout - min(ttl.LaunchMargin, lifecycle.LaunchTimeout/4)
	if launched := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeLaunched); launched != nil {
		left -= c.Clock.Since(launched.LastTransitionTime.Time)
	}
	return left
}

// outOfTime ends a NodeClaim for which core would call Create too late to launch anything: its next call comes up to a minute
// after this one. Nothing is known to be wrong, so nothing is marked.
func (c *CloudProvider) outOfTime(ctx context.Context, claim *karpv1.NodeClaim, err error) error {
	reason := ReasonLaunchOutcomeUnknown
	if !c.intents.recordOf(claim).open() {
		reason, err = ReasonLaunchNotSent, fmt.Errorf("no create request was accepted in time, at an age of the NodeClaim of %s by the controller's "+
			"clock: %w", c.Clock.Since(claim.CreationTimestamp.Time).Round(time.Second), err)
	}
	launchFailuresTotal.Inc(map[string]string{"reason": reason})
	return c.end(ctx, reason, err)
}

// instanceTypes returns the instance types of the NodePool, at the prices that core has planned with.
func (c *CloudProvider) instanceTypes(ctx context.Context, l *launch) (cloudprovider.InstanceTypes, error) {
	instanceTypes, err := c.Flavors.List(ctx, l.nodeClass)
	if err != nil {
		return nil, fmt.Errorf("listing instance types: %w", err)
	}
	// A standalone NodeClaim belongs to no NodePool, and overlays are evaluated per NodePool.
	if pool := l.claim.Labels[karpv1.NodePoolLabelKey]; c.Overlay != nil && pool != "" {
		if instanceTypes, err = c.Overlay.ApplyAll(pool, instanceTypes); err != nil {
			return nil, fmt.Errorf("applying NodeOverlays: %w", err)
		}
	}
	return instanceTypes, nil
}

// launch tries the candidates in their order until one launch is accepted.
func (c *CloudProvider) launch(ctx context.Context, l *launch, candidates []candidate) (*karpv1.NodeClaim, error) {
	start, tries := c.Clock.Now(), 0
	cheapest := lo.Min(lo.Map(candidates, func(candidate candidate, _ int) float64 { return candidate.offering.Price }))
	var failures []error
	for len(candidates) > 0 && tries < maxTries && (tries == 0 || c.Clock.Since(start) < ttl.FailOver) {
		chosen := candidates[0]
		if err := c.unavailable(l, chosen); err != nil {
			failures = append(failures, err)
			candidates = candidates[1:]
			continue
		}
		if reason, err := c.choose(ctx, l, chosen); err != nil {
			return nil, c.end(ctx, reason, err)
		}
		tries++
		server, err := c.try(ctx, l, chosen)
		switch {
		case err == nil || l.record.open():
			return c.conclude(ctx, l, server, lo.Ternary(tries > 1 || chosen.offering.Price > cheapest, ReasonFailedOver, ReasonCheapest), err)
		case retryable(err):
			return nil, fmt.Errorf("launching %s in %s: %w", chosen.key.Flavor, chosen.key.Zone, err)
		}
		failures = append(failures, err)
		if errors.Is(err, instance.ErrFormRejected) {
			// The same offering comes again in the next form, where no flavor has one name alone.
			for i := range candidates {
				candidates[i].doubted = c.Instances.Doubted(candidates[i].key.Flavor, l.nodeClass)
			}
			sortCandidates(candidates)
			continue
		}
		if !c.learnRejection(ctx, l, chosen.key, err) {
			break
		}
		candidates = candidates[1:]
	}
	err := fmt.Errorf("every offering that was tried is unavailable: %w", errors.Join(failures...))
	if tries == 0 {
		return nil, c.end(ctx, ReasonNoOffering, err)
	}
	return nil, cloudprovider.NewInsufficientCapacityError(err)
}

// unavailable returns why a candidate is not available any more: another launch may have shown it meanwhile.
func (c *CloudProvider) unavailable(l *launch, chosen candidate) error {
	reason, unavailable := c.Capacity.Unavailable(chosen.key)
	if l.trial && reason == capacity.ReasonTrial {
		// Its own mark, which is for all others, hides what is known of the offering.
		offering := chosen.key
		offering.NodeClass = ""
		reason, unavailable = c.Capacity.Unavailable(offering)
	}
	if !unavailable {
		return nil
	}
	return fmt.Errorf("%s in %s: %s", chosen.key.Flavor, chosen.key.Zone, reason)
}

// try records the intent to launch one offering, launches it, and records what has become of that.
func (c *CloudProvider) try(ctx context.Context, l *launch, chosen candidate) (*instance.Instance, error) {
	cpu, memoryMiB := sizeOf(chosen.instanceType)
	request := &instance.LaunchRequest{
		NodeClaim:   l.claim,
		NodeClass:   l.nodeClass,
		Attempt:     l.record.Attempt + 1,
		Flavor:      chosen.key.Flavor,
		Category:    categoryOf(chosen.instanceType),
		Zone:        chosen.key.Zone,
		BillingPlan: chosen.key.BillingPlan,
		CPU:         cpu,
		MemoryMiB:   memoryMiB,
		Labels:      lo.Assign(typeLabels(chosen.instanceType, chosen.offering), l.claim.Labels),
	}
	intent, err := c.Instances.Intent(request)
	if err != nil {
		return nil, err
	}
	if err := c.intents.begin(ctx, l, intent); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotRecorded, err)
	}
	server, intent, err := c.Instances.Launch(bizfly.AdmitWithin(ctx, c.timeLeft(l.claim)), request, intent)
	c.intents.finish(ctx, l, intent, err != nil)
	return server, err
}

// conclude returns the NodeClaim of the server that an accepted create request has led to, or what core is to do with the
// NodeClaim while there is none.
func (c *CloudProvider) conclude(ctx context.Context, l *launch, server *instance.Instance, reason string, err error) (*karpv1.NodeClaim, error) {
	intent := l.record.Intent
	for errors.Is(err, instance.ErrAwaitingServerID) {
		switch left := c.timeLeft(l.claim); {
		case left > ttl.CoreRetry || ctx.Err() != nil:
			return nil, createError(ReasonAwaitingServerID, fmt.Errorf("server %s: %w", intent.Name, err))
		case left > 0:
			// Core would call again too late.
			server, err = c.Instances.Resume(ctx, string(l.claim.UID), intent)
		default:
			// Core's launch timeout would end the NodeClaim without an event, and the next one would meet the same offering.
			err = fmt.Errorf("%w: %s", instance.ErrOutcomeUnknown, err.Error())
		}
	}
	switch {
	case err == nil:
		return c.launched(ctx, l, server, reason), nil
	case errors.Is(err, instance.ErrBuildFailed), errors.Is(err, instance.ErrOutcomeUnknown):
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s: %w", c.learnFailure(ctx, l, err), err))
	}
	return nil, fmt.Errorf("looking for server %s: %w", intent.Name, err)
}

// launched reports the server of the launch, and returns its NodeClaim. What the API does not return yet of a server in BUILD, a flavor that
// it names without its family, and a zone by a name that is in no catalog and perhaps no valid label, are those of the intent.
func (c *CloudProvider) launched(ctx context.Context, l *launch, server *instance.Instance, reason string) *karpv1.NodeClaim {
	intent, found := l.record.Intent, *server // the list that it is from is shared
	server = &found
	if !c.inCatalog(server.Zone) {
		server.Zone = lo.CoalesceOrEmpty(intent.Zone, server.Zone)
	}
	if instanceType, _ := flavor.Find(l.types, server.Flavor, server.Zone); instanceType == nil {
		server.Flavor = lo.CoalesceOrEmpty(intent.Flavor, server.Flavor)
	}
	if !l.record.Reported {
		price := c.logLaunch(ctx, "launched server", l, server.ID, reason)
		c.Recorder.Publish(events.ServerLaunched(l.claim, server.Name, server.ID, intent.Flavor, intent.Zone, price, reason))
	}
	c.intents.change(l.claim.UID, func(r *launchRecord) { r.Intent, r.Reported = intent, true })
	c.nodeClasses.launched(l.nodeClass, l.claim.UID)
	created := c.convert(l, server)
	// Core writes it together with the labels.
	created.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: EncodeIntent(intent)}
	return created
}
