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
	"strconv"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// How far one call of Create goes on after refusals. Core schedules nothing while a claim has no server, so a claim that
// finds no room quickly is better planned anew.
const (
	maxOrders      = 3
	failOverWindow = 10 * time.Second
)

// launch is one call of Create.
type launch struct {
	claim     *karpv1.NodeClaim
	nodeClass *v1alpha1.BizflyNodeClass
	types     cloudprovider.InstanceTypes
	record    launchRecord
}

// Create orders a server for the claim, or finds the one that was ordered before. It returns as soon as the server has
// an id. An order whose outcome is unknown is never repeated.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	nodeClass, err := c.launchNodeClass(ctx, claim)
	if err != nil {
		return nil, err
	}
	record, live, err := c.records.load(ctx, claim)
	switch {
	case errors.Is(err, errIntentUnreadable):
		c.recorder.Publish(events.LaunchIntentUnreadable(claim, err))
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, ReasonLaunchIntentUnreadable))
		return nil, c.giveUp(ctx, claim, ReasonLaunchIntentUnreadable, err)
	case errors.Is(err, errGivenUp):
		// Core could not delete it when it was told to, and schedules nothing until it can.
		return nil, noRoom("launching NodeClaim %s: %w", claim.Name, err)
	case err != nil:
		return nil, fmt.Errorf("reading what was ordered for NodeClaim %s: %w", claim.Name, err)
	}
	if record != nil && !record.Refused {
		// Whatever has become of the NodeClass meanwhile, this server is being paid for.
		return c.resume(ctx, claim, nodeClass, *record)
	}
	if claim, err = c.dropUnsupportedCapacityTypes(ctx, claim); err != nil {
		return nil, err
	}
	if err := c.ready(claim, nodeClass); err != nil {
		return nil, err
	}
	attempt := 1
	if record != nil {
		attempt = record.Attempt + 1
	}
	return c.order(ctx, claim, live, nodeClass, attempt)
}

// launchNodeClass resolves the claim's NodeClass. One that is not there ends the claim, so that core can use another
// NodePool.
func (c *CloudProvider) launchNodeClass(ctx context.Context, claim *karpv1.NodeClaim) (*v1alpha1.BizflyNodeClass, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if apierrors.IsNotFound(err) {
		return nil, c.unresolved(claim, err)
	}
	if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass: %w", err)
	}
	return nodeClass, nil
}

// unresolved ends a claim whose NodeClass is not there, or will not be there soon.
func (c *CloudProvider) unresolved(claim *karpv1.NodeClaim, err error) error {
	c.recorder.Publish(events.NodeClassUnresolved(claim, err))
	c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, events.ReasonNodeClassUnresolved))
	return noRoom("resolving the NodeClass: %w", err)
}

// ready refuses what cannot be launched whatever the cloud has.
func (c *CloudProvider) ready(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) error {
	if !nodeClass.DeletionTimestamp.IsZero() {
		return c.unresolved(claim, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("bizflynodeclasses").GroupResource(), nodeClass.Name+" (being deleted)"))
	}
	condition := nodeClass.StatusConditions().Root()
	switch {
	case condition.IsFalse():
		return cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("%s: %s", condition.Reason, condition.Message))
	case condition.IsUnknown():
		return createError(ReasonNodeClassReadinessUnknown, fmt.Errorf("BizflyNodeClass %q is being resolved", nodeClass.Name))
	case condition.ObservedGeneration != nodeClass.Generation:
		return cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("the last change of BizflyNodeClass %q has not been resolved yet", nodeClass.Name))
	}
	if cause := c.failures.blocked(nodeClass); cause != nil {
		return cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("launches with BizflyNodeClass %q keep failing: %w", nodeClass.Name, cause))
	}
	capacityType := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(karpv1.CapacityTypeLabelKey)
	if !capacityType.Has(karpv1.CapacityTypeOnDemand) {
		c.recorder.Publish(events.CapacityTypeUnsupported(claim, capacityType.String()))
		return createError(ReasonCapacityTypeUnsupported,
			fmt.Errorf("%s: only %s can be launched", capacityType, karpv1.CapacityTypeOnDemand))
	}
	return nil
}

// instanceTypes returns what claims of the NodePool can be launched with, at the prices that core has planned with.
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

// order tries the offerings in their order until one is accepted.
func (c *CloudProvider) order(ctx context.Context, claim, live *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass, attempt int) (*karpv1.NodeClaim, error) {
	if err := c.room(ctx, claim, nodeClass); err != nil {
		return nil, err
	}
	types, err := c.instanceTypes(ctx, claim.Labels[karpv1.NodePoolLabelKey], nodeClass)
	if err != nil {
		return nil, err
	}
	candidates, err := c.candidates(ctx, claim, nodeClass, types)
	if err != nil {
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, ReasonNoOffering))
		return nil, noRoom("%w", err)
	}
	l := &launch{claim: claim, nodeClass: nodeClass, types: types,
		record: launchRecord{Hash: nodeClass.Hash(), HashVersion: v1alpha1.NodeClassHashVersion}}
	recorder := &recorder{records: c.records, name: claim.Name, uid: claim.UID, hash: l.record.Hash, hashVersion: l.record.HashVersion, base: live}

	start, orders := c.clock.Now(), 0
	var refusals []error
	for _, candidate := range candidates {
		if orders == maxOrders || (orders > 0 && c.clock.Since(start) >= failOverWindow) {
			break
		}
		// Another launch may have learnt since our list was made that there is no room.
		if reason, unavailable := c.capacity.Unavailable(candidate.key); unavailable {
			refusals = append(refusals, fmt.Errorf("%s in %s: %s", candidate.key.Flavor, candidate.key.Zone, reason))
			continue
		}
		recorder.ordered = false
		c.placements.moved(claim, candidate.key.Zone)
		server, err := c.instances.Launch(ctx, c.request(l, candidate, attempt+orders, recorder.record))
		if err == nil {
			c.records.launched(claim.UID)
			c.tellLaunched(claim, server, types, recorder.last, lo.Ternary(len(refusals) > 0, ReasonFailedOver, ReasonCheapest))
			return c.launched(server, candidate.instanceType, candidate.offering, l.record), nil
		}
		orders++
		// The node of a server is looked for by its intent, also where the first write of it is all that there is.
		l.record.Intent = recorder.last
		if next, outcome := c.outcome(ctx, l, candidate, recorder.ordered, err); !next {
			return nil, outcome
		}
		refusals = append(refusals, err)
	}
	c.placements.moved(claim, "")
	if orders == 0 {
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, ReasonNoOffering))
	}
	return nil, noRoom("every offering that was tried has no room: %w", errors.Join(refusals...))
}

// request is the order of one server.
func (c *CloudProvider) request(l *launch, chosen candidate, attempt int, record func(context.Context, instance.Intent) error) *instance.LaunchRequest {
	category, _ := c.flavors.Category(chosen.key.Flavor)
	requirement := func(key string) int {
		value, _ := strconv.Atoi(chosen.instanceType.Requirements.Get(key).Any())
		return value
	}
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
		CPU:          requirement(v1alpha1.LabelInstanceCPU),
		MemoryMiB:    requirement(v1alpha1.LabelInstanceMemory),
		Labels:       lo.Assign(typeLabels(chosen.instanceType, chosen.offering), l.claim.Labels),
		Taints:       append(append([]corev1.Taint{}, l.claim.Spec.Taints...), l.claim.Spec.StartupTaints...),
		Record:       record,
	}
}

// outcome says what an unsuccessful order means: whether the next offering may be tried, and otherwise what Create
// returns.
func (c *CloudProvider) outcome(ctx context.Context, l *launch, chosen candidate, ordered bool, err error) (next bool, _ error) {
	if ordered {
		if pending := c.pending(ctx, l, err); pending != nil {
			return false, pending
		}
	}
	// From here on nothing was ordered, or the cloud has refused it without building anything.
	m := meaningOf(err)
	launchFailuresTotal.Inc(map[string]string{"reason": m.reason})
	// The intent is empty where not even that could be written.
	intent := l.record.Intent
	intent.Flavor, intent.Zone = chosen.key.Flavor, chosen.key.Zone
	c.journal.LaunchFailed(c.entry(l.claim, l.types, intent, m.reason))
	switch {
	case m.scope != 0:
		if c.takeOut(ctx, l.claim, chosen.key, m, err) {
			c.recorder.Publish(events.OfferingRefused(l.claim, chosen.key.Flavor, chosen.key.Zone, m.reason, err))
			return true, nil
		}
		c.placements.moved(l.claim, "")
		return false, noRoom("launching: %w", err)
	case m.cannot:
		// What is wrong with the order itself is wrong with the next claim's too. Each claim counts once: core tries it
		// again within a second.
		if bizfly.IsInvalid(err) && l.record.Attempt <= 1 {
			c.countFailure(l.nodeClass, err)
		}
		c.recorder.Publish(events.OrderRefused(l.claim, chosen.key.Flavor, chosen.key.Zone, m.reason, err))
		return false, createError(m.reason, fmt.Errorf("launching %s in %s: %w", chosen.key.Flavor, chosen.key.Zone, err))
	}
	return false, fmt.Errorf("launching %s in %s: %w", chosen.key.Flavor, chosen.key.Zone, err)
}

// pending returns what Create returns when an order was accepted, or may have been; nil when it was refused.
func (c *CloudProvider) pending(ctx context.Context, l *launch, err error) error {
	var failed *instance.FailedError
	switch {
	case errors.As(err, &failed):
		reason, noRoomLeft := c.LaunchFailed(ctx, l.claim, failed.Intent, err)
		c.journal.LaunchFailed(c.entry(l.claim, l.types, failed.Intent, reason))
		if noRoomLeft {
			c.records.giveUp(l.claim.UID)
			return noRoom("%w", err)
		}
		// The same order would fail again, and core cannot schedule while it is retried: a new claim starts afresh.
		return c.giveUp(ctx, l.claim, reason, err)
	case errors.Is(err, instance.ErrOutcomeUnknown):
		c.recorder.Publish(events.LaunchOutcomeUnknown(l.claim, err))
		c.journal.LaunchFailed(c.entry(l.claim, l.types, l.record.Intent, ReasonLaunchOutcomeUnknown))
		return c.giveUp(ctx, l.claim, ReasonLaunchOutcomeUnknown, err)
	case errors.Is(err, instance.ErrAwaitingServerID):
		return createError(ReasonAwaitingServerID, fmt.Errorf("server %s: %w", l.record.Name, err))
	case ambiguous(err):
		return createError(ReasonAwaitingLaunchOutcome, fmt.Errorf("server %s may have been ordered: %w", l.record.Name, err))
	}
	return nil
}

// resume finds the server of an earlier order.
func (c *CloudProvider) resume(ctx context.Context, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass, record launchRecord) (*karpv1.NodeClaim, error) {
	types, err := c.instanceTypes(ctx, claim.Labels[karpv1.NodePoolLabelKey], nodeClass)
	if err != nil {
		return nil, err
	}
	server, err := c.instances.Resume(ctx, string(claim.UID), record.Intent)
	if err == nil {
		instanceType, offering := find(types, server.Flavor, server.Zone)
		if instanceType == nil && record.Flavor != "" {
			// The API also calls a server's flavor by a name without its family; the order has the catalog's.
			server.Flavor = record.Flavor
			instanceType, offering = find(types, server.Flavor, server.Zone)
		}
		if instanceType == nil {
			log.FromContext(ctx).Info("the flavor of the server is not in the catalog any more", "flavor", server.Flavor, "server", server.ID)
		}
		if !record.Launched {
			c.tellLaunched(claim, server, types, record.Intent, ReasonFound)
		}
		c.records.launched(claim.UID)
		return c.launched(server, instanceType, offering, record), nil
	}
	if pending := c.pending(ctx, &launch{claim: claim, nodeClass: nodeClass, types: types, record: record}, err); pending != nil {
		return nil, pending
	}
	if errors.Is(err, instance.ErrRefused) {
		record.Refused = true
		c.records.memory.SetDefault(string(claim.UID), record)
	}
	return nil, fmt.Errorf("looking for server %s: %w", record.Name, err)
}

// tellLaunched says which server a claim got, and why that one.
func (c *CloudProvider) tellLaunched(claim *karpv1.NodeClaim, server *instance.Instance, types cloudprovider.InstanceTypes, intent instance.Intent, reason string) {
	entry := c.entry(claim, types, intent, reason)
	entry.Server = server.ID
	c.journal.Launched(entry)
	c.recorder.Publish(events.ServerLaunched(claim, server.Name, server.ID, entry.Flavor, entry.Zone, entry.Price, reason))
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
	return string(lo.CoalesceOrEmpty(nodeClass.Spec.BillingPlan, v1alpha1.BillingPlanOnDemand))
}
