// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxAttempts is how many create requests one call of Create sends at most.
const maxAttempts = 3

// Launch tries the candidates in their order until one create request is accepted.
func (l *Launcher) Launch(ctx context.Context, launch *Launch, candidates []Candidate) (*Result, error) {
	start, attempts := l.config.Clock.Now(), 0
	cheapest := lo.Min(lo.Map(candidates, func(candidate Candidate, _ int) float64 { return candidate.Offering.Price }))
	var failures []error
	for len(candidates) > 0 && attempts < maxAttempts && (attempts == 0 || l.config.Clock.Since(start) < ttl.FailOver) {
		l.putDoubtedLast(launch.NodeClass, candidates)
		candidate := candidates[0]
		if err := l.checkAvailable(launch, candidate); err != nil {
			failures, candidates = append(failures, err), candidates[1:]
			continue
		}
		if reason, err := l.reserveOffering(ctx, launch, candidate); err != nil {
			return nil, l.End(ctx, reason, err)
		}
		attempts++
		sent := l.config.Clock.Now()
		server, err := l.attempt(ctx, launch, candidate)
		switch {
		case err == nil || launch.ServerMayExist():
			failedOver := attempts > 1 || candidate.Offering.Price > cheapest
			return l.resultOf(ctx, launch, server, lo.Ternary(failedOver, ReasonFailedOver, ReasonCheapest), err)
		case retryable(err):
			return nil, fmt.Errorf("launching %s in %s: %w", candidate.Key.Flavor, candidate.Key.Zone, err)
		case errors.Is(err, instance.ErrFormRejected):
			failures = append(failures, err) // the same offering comes again in the next form
			continue
		}
		failures, candidates = append(failures, err), candidates[1:]
		if !l.handleRejection(ctx, launch, candidate.Key, sent, err) {
			break
		}
	}
	err := fmt.Errorf("every offering that was tried is unavailable: %w", errors.Join(failures...))
	if attempts == 0 {
		return nil, l.End(ctx, ReasonNoOffering, err)
	}
	return nil, cloudprovider.NewInsufficientCapacityError(err)
}

// putDoubtedLast puts flavors that may be closed, or called by another name, behind all others: pods do not wait until
// each of them has been rejected by each name in each zone. Core finds out whether one can be launched when it replaces
// the more expensive node.
func (l *Launcher) putDoubtedLast(nodeClass *v1alpha1.BizflyNodeClass, candidates []Candidate) {
	rank := func(candidate Candidate) int {
		return lo.Ternary(l.config.Servers.Doubted(candidate.Key.Flavor, nodeClass), 1, 0)
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return rank(a) - rank(b) })
}

// checkAvailable returns why a candidate is not available any more: another launch may have shown it meanwhile.
func (l *Launcher) checkAvailable(launch *Launch, candidate Candidate) error {
	reason, unavailable := l.config.Capacity.Unavailable(candidate.Key)
	if reason == capacity.ReasonTrial && l.pauses.isTrial(launch.NodeClass, launch.NodeClaim.UID) {
		// Its own mark, which is for all others, hides what is known of the offering.
		offering := candidate.Key
		offering.NodeClass = ""
		reason, unavailable = l.config.Capacity.Unavailable(offering)
	}
	if !unavailable {
		return nil
	}
	return fmt.Errorf("%s in %s: %s", candidate.Key.Flavor, candidate.Key.Zone, reason)
}

// attempt records the intent to launch one offering, sends its create request, and records what has become of that.
func (l *Launcher) attempt(ctx context.Context, launch *Launch, candidate Candidate) (*instance.Instance, error) {
	cpu, memoryMiB := sizeOf(candidate.InstanceType)
	request := &instance.LaunchRequest{
		NodeClaim:   launch.NodeClaim,
		NodeClass:   launch.NodeClass,
		Attempt:     launch.record.intent.Attempt + 1,
		Flavor:      candidate.Key.Flavor,
		Category:    categoryOf(candidate.InstanceType),
		Zone:        candidate.Key.Zone,
		BillingPlan: candidate.Key.BillingPlan,
		CPU:         cpu,
		MemoryMiB:   memoryMiB,
		Labels:      lo.Assign(TypeLabels(candidate.InstanceType, candidate.Offering), launch.NodeClaim.Labels),
	}
	intent, err := l.config.Servers.Intent(request)
	if err != nil {
		return nil, err
	}
	if err := l.records.recordAttempt(ctx, launch, intent); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotRecorded, err)
	}
	server, intent, err := l.config.Servers.Launch(bizfly.AdmitWithin(ctx, l.TimeLeft(launch.NodeClaim)), request, intent)
	l.records.recordOutcome(ctx, launch, intent, err != nil)
	return server, err
}

// resultOf returns the server that an accepted create request has led to, or what core is to do with the
// NodeClaim while there is none.
func (l *Launcher) resultOf(ctx context.Context, launch *Launch, server *instance.Instance, reason string,
	err error) (*Result, error) {
	intent := launch.record.intent
	for errors.Is(err, instance.ErrAwaitingServerID) {
		switch left := l.TimeLeft(launch.NodeClaim); {
		case left > ttl.CoreRetry || ctx.Err() != nil:
			return nil, Keep(ReasonAwaitingServerID, fmt.Errorf("server %s: %w", intent.Name, err))
		case left > 0:
			// Core would call again too late.
			server, err = l.config.Servers.Resume(ctx, string(launch.NodeClaim.UID), intent)
		default:
			// Core's launch timeout would end the NodeClaim without an event, and the next one would meet the same
			// offering.
			err = fmt.Errorf("%w: %s", instance.ErrOutcomeUnknown, err.Error())
		}
	}
	switch {
	case err == nil:
		l.rejected.Store(nil)
		return l.reportServer(ctx, launch, server, reason), nil
	case errors.Is(err, instance.ErrBuildFailed), errors.Is(err, instance.ErrOutcomeUnknown):
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s: %w", l.handleFailure(ctx, launch, err),
			err))
	}
	return nil, fmt.Errorf("looking for server %s: %w", intent.Name, err)
}

// reportServer reports the server of the launch. While a server is in BUILD, the API may leave out its flavor or zone,
// or name them in its own way. Those of the launch record are used instead.
func (l *Launcher) reportServer(ctx context.Context, launch *Launch, server *instance.Instance, reason string) *Result {
	intent, found := launch.record.intent, *server // the list that it is from is shared
	server = &found
	if !InCatalog(l.config.Catalog, server.Zone) {
		server.Zone = lo.CoalesceOrEmpty(intent.Zone, server.Zone)
	}
	server.Flavor = lo.CoalesceOrEmpty(intent.Flavor, server.Flavor)
	if !launch.record.reported {
		price := l.logLaunch(ctx, "launched server", launch, server.ID, reason)
		l.config.Recorder.Publish(events.ServerLaunched(launch.NodeClaim, server.Name, server.ID, intent.Flavor, intent.Zone,
			price, reason))
	}
	l.records.change(launch.NodeClaim.UID, func(r *record) { r.intent, r.reported = intent, true })
	l.pauses.handle(ctx, launch.NodeClass, event{kind: serverLaunched, claim: launch.NodeClaim.UID})
	return &Result{Server: server, Intent: intent, Types: launch.Types}
}

// InCatalog reports whether the name is that of a zone of the catalog.
func InCatalog(known catalog.Provider, zone string) bool {
	snapshot, err := known.Snapshot()
	return err == nil && lo.ContainsBy(snapshot.Zones(), func(z catalog.Zone) bool { return z.Name == zone })
}

// TypeLabels returns the requirements that leave one value, the offering's last.
func TypeLabels(instanceType *cloudprovider.InstanceType, offering *cloudprovider.Offering) map[string]string {
	labels := map[string]string{}
	for _, requirements := range []scheduling.Requirements{instanceType.Requirements, lo.FromPtr(offering).Requirements} {
		for key, requirement := range requirements {
			if requirement.Operator() == corev1.NodeSelectorOpIn && requirement.Len() == 1 {
				labels[key] = requirement.Any()
			}
		}
	}
	return labels
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
