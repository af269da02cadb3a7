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
	"slices"
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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxRequests is how many create requests one call of Create sends at most.
const maxRequests = 3

// launch is one call of Create, with everything that it has resolved.
type launch struct {
	// claim is the NodeClaim to launch. live is the same as the API server has it, nil where it was not read.
	claim, live *karpv1.NodeClaim
	nodeClass   *v1alpha1.BizflyNodeClass
	types       cloudprovider.InstanceTypes
	// record is that of an earlier attempt, nil without one.
	record *launchRecord
}

// Create launches a server for the NodeClaim, or finds the one that was launched before. It returns as soon as the server
// has an id. A create request whose outcome is unknown is never repeated.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (created *karpv1.NodeClaim, err error) {
	defer func() {
		if cloudprovider.IsInsufficientCapacityError(err) {
			c.LaunchEnded(claim)
		}
	}()
	l, err := c.resolve(ctx, claim)
	if err != nil {
		return nil, err
	}
	// Whatever has become of the NodeClass meanwhile, a server that may exist is being paid for.
	resumes := l.record != nil && !l.record.Rejected
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
	server, intent, reason, err := c.launch(ctx, l, candidates)
	if err != nil {
		return nil, err
	}
	return c.launched(l, server, intent, reason), nil
}

// resolve reads what the launch needs: the NodeClass, and the record of an earlier attempt. A NodeClass that does not exist
// ends the NodeClaim, so that core can use another NodePool.
func (c *CloudProvider) resolve(ctx context.Context, claim *karpv1.NodeClaim) (*launch, error) {
	l := &launch{claim: claim}
	var err error
	if l.nodeClass, err = c.nodeClass(ctx, claim.Spec.NodeClassRef); apierrors.IsNotFound(err) {
		return nil, c.unlaunchable(claim, events.ReasonNodeClassUnresolved, fmt.Errorf("resolving the NodeClass: %w", err))
	}
	if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass: %w", err)
	}
	l.record, l.live, err = c.records.load(ctx, claim)
	switch {
	case errors.Is(err, errIntentUnreadable):
		c.Recorder.Publish(events.LaunchIntentUnreadable(claim, err))
		c.audit(l, instance.Intent{}, ReasonLaunchIntentUnreadable)
		return nil, c.abandon(ctx, claim, ReasonLaunchIntentUnreadable, err)
	case errors.Is(err, errAbandoned):
		// Core could not delete it, and schedules nothing until it can.
		return nil, insufficientCapacity("launching NodeClaim %s: %w", claim.Name, err)
	case err != nil:
		return nil, fmt.Errorf("reading the launch intent of NodeClaim %s: %w", claim.Name, err)
	}
	return l, nil
}

// ready ends a NodeClaim that cannot be launched whatever BizFly Cloud offers. Core schedules nothing as long as it exists, so
// that of a NodePool is not kept waiting for a change of the NodeClass, or for time to pass: core creates another one.
func (c *CloudProvider) ready(ctx context.Context, l *launch) (err error) {
	if l.claim, err = c.dropUnsupportedCapacityTypes(ctx, l.claim); err != nil {
		return err
	}
	claim, nodeClass := l.claim, l.nodeClass
	condition := nodeClass.StatusConditions().Root()
	switch {
	case !nodeClass.DeletionTimestamp.IsZero():
		return c.unlaunchable(claim, events.ReasonNodeClassUnresolved,
			fmt.Errorf("resolving the NodeClass: %w", nodeClassNotFound(nodeClass.Name+" (being deleted)")))
	case condition.IsUnknown() && claim.Labels[karpv1.NodePoolLabelKey] == "":
		// A NodeClaim without a NodePool is not created again by core, which retries until its launch timeout.
		return createError(ReasonNodeClassReadinessUnknown, fmt.Errorf("BizflyNodeClass %q is being resolved: %s", nodeClass.Name, condition.Message))
	case !condition.IsTrue():
		return c.unlaunchable(claim, ReasonNodeClassNotReady,
			fmt.Errorf("BizflyNodeClass %q is not ready: %s: %s", nodeClass.Name, condition.Reason, condition.Message))
	case condition.ObservedGeneration != nodeClass.Generation:
		return c.unlaunchable(claim, ReasonNodeClassNotReady, fmt.Errorf("the last change of BizflyNodeClass %q has not been resolved yet", nodeClass.Name))
	}
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	if !capacityType.Has(karpv1.CapacityTypeOnDemand) {
		c.Recorder.Publish(events.CapacityTypeUnsupported(claim, capacityType.String()))
		return c.abandon(ctx, claim, ReasonCapacityTypeUnsupported, fmt.Errorf("%s: only %s can be launched", capacityType, karpv1.CapacityTypeOnDemand))
	}
	if err := c.checkPackage(ctx, claim); err != nil {
		return err
	}
	if reason, full := c.networkFull(nodeClass); full {
		return c.unlaunchable(claim, reason,
			fmt.Errorf("a network of BizflyNodeClass %q has no address left and is not retried for a while. Free addresses, or select another network", nodeClass.Name))
	}
	if c.timeLeft(claim) <= 0 {
		return c.notSent(claim, errors.New("less than the time that a server needs is left of core's launch timeout"))
	}
	if err := c.pauses.admit(nodeClass, claim.UID); err != nil {
		return c.unlaunchable(claim, events.ReasonLaunchesKeepFailing, err)
	}
	return nil
}

// notSent ends a NodeClaim whose create request was not sent in time. Nothing is known to be wrong, so nothing is marked.
func (o *Outcomes) notSent(claim *karpv1.NodeClaim, err error) error {
	return o.unlaunchable(claim, ReasonLaunchNotSent, fmt.Errorf("no create request was sent in time: %w", err))
}

// timeLeft is how long a create request for the NodeClaim may still be sent. Core ends a NodeClaim by its launch timeout,
// counted from the first transition of the condition Launched, however long the request had to wait for its turn.
func (c *config) timeLeft(claim *karpv1.NodeClaim) time.Duration {
	left := lifecycle.LaunchTimeout - min(ttl.LaunchMargin, lifecycle.LaunchTimeout/4)
	if launched := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeLaunched); launched != nil {
		left -= c.Clock.Since(launched.LastTransitionTime.Time)
	}
	return left
}

// instanceTypes returns the instance types of the NodePool, at the prices that core has planned with.
func (c *CloudProvider) instanceTypes(ctx context.Context, pool string, nodeClass *v1alpha1.BizflyNodeClass) (cloudprovider.InstanceTypes, error) {
	instanceTypes, err := c.Flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, createError(ReasonInstanceTypesUnavailable, err)
	}
	// A standalone NodeClaim belongs to no NodePool, and overlays are evaluated per NodePool.
	if c.Overlay != nil && pool != "" {
		if instanceTypes, err = c.Overlay.ApplyAll(pool, instanceTypes); err != nil {
			return nil, createError(ReasonInstanceTypesUnavailable, fmt.Errorf("applying NodeOverlays: %w", err))
		}
	}
	return instanceTypes, nil
}

// launch sends create requests for the candidates, in their order, until one is accepted. It returns the server with its intent
// and why it was chosen.
func (c *CloudProvider) launch(ctx context.Context, l *launch, candidates []candidate) (*instance.Instance, instance.Intent, string, error) {
	writer := &recordWriter{launchRecords: c.records, claim: l.claim, nodeClass: l.nodeClass, base: l.live}
	first := lo.FromPtr(l.record).Attempt + 1
	attempt, start := first, c.Clock.Now()
	var failures []error
	another := func() bool {
		return attempt-first < maxRequests && (attempt == first || c.Clock.Since(start) < ttl.FailOver)
	}
	for len(candidates) > 0 && another() {
		chosen := candidates[0]
		// Another launch may have learned meanwhile that this one is unavailable.
		if reason, unavailable := c.Capacity.Unavailable(chosen.key); unavailable {
			failures = append(failures, fmt.Errorf("%s in %s: %s", chosen.key.Flavor, chosen.key.Zone, reason))
			candidates = candidates[1:]
			continue
		}
		c.placements.moved(l.claim, chosen.key.Zone)
		server, intent, err := c.Instances.Launch(bizfly.AdmitWithin(ctx, c.timeLeft(l.claim)), c.request(l, chosen, attempt, writer.record))
		attempt++
		if err == nil {
			return server, intent, lo.Ternary(len(failures) > 0, ReasonFailedOver, ReasonCheapest), nil
		}
		if errors.Is(err, instance.ErrFlavorNameRejected) && another() {
			continue // the same offering, by the flavor's other name
		}
		if intent.Name != "" && !intent.Rejected {
			c.records.change(l.claim.UID, func(r *launchRecord) { r.Intent = intent })
			return nil, intent, "", c.undecided(ctx, l, intent, err)
		}
		if retryable(err) {
			c.placements.moved(l.claim, "")
			if c.timeLeft(l.claim) <= 0 {
				return nil, intent, "", c.notSent(l.claim, err)
			}
			return nil, intent, "", fmt.Errorf("launching %s in %s: %w", chosen.key.Flavor, chosen.key.Zone, err)
		}
		failures = append(failures, err)
		if !c.rejected(ctx, l, chosen, intent, err) {
			break
		}
		candidates = candidates[1:]
	}
	c.placements.moved(l.claim, "")
	if attempt == first {
		c.audit(l, instance.Intent{}, ReasonNoOffering)
	}
	return nil, instance.Intent{}, "", insufficientCapacity("every offering that was tried is unavailable: %w", errors.Join(failures...))
}

// request returns the launch of one server.
func (c *config) request(l *launch, chosen candidate, attempt int, record func(context.Context, instance.Intent) error) *instance.LaunchRequest {
	category, _ := c.Flavors.Category(chosen.key.Flavor)
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
		Taints:       slices.Concat(l.claim.Spec.Taints, l.claim.Spec.StartupTaints),
		Record:       record,
	}
}

// undecided returns the error of a create request that was accepted, or may have been, and has no server yet.
func (o *Outcomes) undecided(ctx context.Context, l *launch, intent instance.Intent, err error) error {
	switch {
	case errors.Is(err, instance.ErrBuildFailed):
		o.failed(ctx, l, intent, err)
		o.records.change(l.claim.UID, func(r *launchRecord) { r.Abandoned = true })
		return insufficientCapacity("%w", err)
	case errors.Is(err, instance.ErrAwaitingServerID) && o.timeLeft(l.claim) > 0:
		return createError(ReasonAwaitingServerID, fmt.Errorf("server %s: %w", intent.Name, err))
	}
	if !errors.Is(err, instance.ErrOutcomeUnknown) {
		// Core's launch timeout would end the NodeClaim without an event, and the next one would meet the same offering.
		err = fmt.Errorf("%w: %w", instance.ErrOutcomeUnknown, err)
	}
	o.failed(ctx, l, intent, err)
	return o.abandon(ctx, l.claim, ReasonLaunchOutcomeUnknown, err)
}

// resume finds the server of an earlier create request.
func (c *CloudProvider) resume(ctx context.Context, l *launch) (*karpv1.NodeClaim, error) {
	server, err := c.Instances.Resume(ctx, string(l.claim.UID), l.record.Intent)
	switch {
	case err == nil:
		return c.launched(l, server, l.record.Intent, ReasonFound), nil
	case errors.Is(err, instance.ErrBuildFailed), errors.Is(err, instance.ErrOutcomeUnknown), errors.Is(err, instance.ErrAwaitingServerID):
		return nil, c.undecided(ctx, l, l.record.Intent, err)
	}
	return nil, fmt.Errorf("looking for server %s: %w", l.record.Name, err)
}

// launched reports the server of the launch, and returns its NodeClaim. What the API does not return yet of a server in BUILD, and
// a flavor that it names without its family, are those of the intent.
func (c *CloudProvider) launched(l *launch, server *instance.Instance, intent instance.Intent, reason string) *karpv1.NodeClaim {
	found := *server // the list that it is from is shared
	server = &found
	server.Zone = lo.CoalesceOrEmpty(server.Zone, intent.Zone)
	if instanceType, _ := find(l.types, server.Flavor, server.Zone); instanceType == nil {
		server.Flavor = lo.CoalesceOrEmpty(intent.Flavor, server.Flavor)
	}
	if !lo.FromPtr(l.record).Launched {
		launched := c.recordOf(l, intent, reason)
		launched.Server = server.ID
		c.Audit.Launched(launched)
		c.Recorder.Publish(events.ServerLaunched(l.claim, server.Name, server.ID, launched.Flavor, launched.Zone, launched.Price, reason))
	}
	c.records.change(l.claim.UID, func(r *launchRecord) { r.Intent, r.Launched = intent, true })
	c.pauses.launched(l.nodeClass, l.claim.UID)
	created := c.convert(l, server)
	// Core writes it together with the labels.
	created.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: encode(intent)}
	return created
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

// imageID is the image that servers of the NodeClass boot.
func imageID(nodeClass *v1alpha1.BizflyNodeClass) string {
	return lo.FromPtr(nodeClass.Status.Image()).ID
}
