// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// changesPerSecond and changesAtOnce bound how many servers are changed: a NodeClass of a thousand nodes must not
	// take the calls from launches, nor a cloud that hangs the workers.
	changesPerSecond = 1
	changesAtOnce    = 5
)

// firewalls is the step that gives a running server the firewalls of its NodeClass, on the interfaces that it was
// launched with. Firewalls that someone else has attached stay.
type firewalls struct {
	kubeClient client.Client
	instances  Instances
	networks   *network.DefaultProvider
	recorder   karpevents.Recorder
	clock      clock.Clock
	limiter    *rate.Limiter
	turns      chan struct{}
}

// reconcile compares the server with its NodeClass, and changes it when its turn comes. A server that is missing, still
// being built or stopped is not changed for now. A NodeClaim that was restored from a backup has another UID than the
// one that the server was launched for, and the same name.
func (f *firewalls) reconcile(ctx context.Context, s *subject) (time.Duration, error) {
	if s.server == nil || s.server.NodeClaim != s.claim.Name || s.server.Status != instance.StatusActive {
		return ttl.InPlace, nil
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	err := f.kubeClient.Get(ctx, client.ObjectKey{Name: s.claim.Spec.NodeClassRef.Name}, nodeClass)
	if err != nil || !changeable(nodeClass) {
		return ttl.InPlace, client.IgnoreNotFound(err)
	}
	wanted, err := f.wantedFor(ctx, s, nodeClass)
	if err != nil {
		return 0, f.reportFailed(s, err)
	}
	// Firewalls that are on the record and not wanted are left of a change that was interrupted: an old list may not
	// show them.
	due := len(wanted.Wanted) > 0 && len(wanted.Attached) > 0 && !lo.ElementsMatch(wanted.Attached, wanted.Wanted)
	if !due {
		if due, err = f.instances.FirewallsDiffer(ctx, s.server, wanted); err != nil || !due {
			return ttl.InPlace, err
		}
	}
	select {
	case f.turns <- struct{}{}:
		defer func() { <-f.turns }()
	default:
		return waitForTurn(), nil
	}
	if !f.limiter.AllowN(f.clock.Now(), 1) {
		return waitForTurn(), nil
	}
	return f.change(ctx, s, wanted)
}

// waitForTurn is spread, because each try takes a worker from launches, and a thousand servers may wait.
func waitForTurn() time.Duration { return wait.Jitter(5*time.Second/changesPerSecond, 1) }

// change changes what differs. Which firewalls are ours is recorded before, so that each of them can be removed again.
func (f *firewalls) change(ctx context.Context, s *subject, wanted instance.Firewalls) (time.Duration, error) {
	ours := lo.Union(wanted.Attached, wanted.Wanted)
	if conflict, err := f.record(ctx, s, wanted.Attached, ours); conflict > 0 || err != nil {
		return conflict, err
	}
	changed, complete, err := f.instances.SetFirewalls(ctx, s.server.ID, wanted)
	switch {
	case errors.Is(err, instance.ErrNotFound):
		return ttl.InPlace, nil
	case err != nil:
		return 0, f.reportFailed(s, err)
	}
	// An interface that the list lacks may still have what is not wanted any more: until it is listed, that stays on the
	// record, so that it is looked for again.
	if complete {
		if conflict, err := f.record(ctx, s, ours, wanted.Wanted); conflict > 0 || err != nil {
			return conflict, err
		}
	}
	if changed {
		f.recorder.Publish(events.ServerUpdated(s.claim, "firewalls "+strings.Join(wanted.Wanted, ", ")))
	}
	return ttl.InPlace, nil
}

func (f *firewalls) reportFailed(s *subject, err error) error {
	f.recorder.Publish(events.ServerUpdateFailed(s.claim, err))
	return err
}

// errNoDefault means that a server cannot be left without a firewall: its interfaces would pass no traffic at all.
var errNoDefault = errors.New(
	"spec.firewallSelectorTerms is empty, and the project has no firewall called default to attach instead: select one")

// wantedFor returns what the server is to have. Which firewalls we have attached is in the launch record. Where none is
// selected, or none was at the launch, that is the cloud's default one.
func (f *firewalls) wantedFor(ctx context.Context, s *subject,
	nodeClass *v1alpha1.BizflyNodeClass) (instance.Firewalls, error) {
	ids := lo.Map(nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID })
	wanted := instance.Firewalls{Wanted: lo.Uniq(ids), Attached: launch.IntentOf(s.claim).Firewalls,
		Interfaces: launch.OwnedInterfaces(s.claim)}
	selected, attached := len(wanted.Wanted) > 0, len(wanted.Attached) > 0
	if selected == attached || wanted.Attached == nil {
		return wanted, nil
	}
	fallback, err := f.networks.DefaultFirewall(ctx)
	missing := lookup.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return wanted, err
	case selected:
		wanted.Attached = lo.Compact([]string{fallback})
	case missing:
		return wanted, errNoDefault
	default:
		wanted.Wanted = []string{fallback}
	}
	return wanted, nil
}

// record writes into the launch record, where there is one, which firewalls we have attached, if that has changed.
func (f *firewalls) record(ctx context.Context, s *subject, recorded, attached []string) (conflict time.Duration,
	err error) {
	intent, _ := launch.ReadIntent(s.claim)
	if intent == nil || lo.ElementsMatch(recorded, attached) {
		return 0, nil
	}
	stored := s.claim.DeepCopy()
	intent.Firewalls = attached
	s.claim.Annotations = lo.Assign(s.claim.Annotations,
		map[string]string{v1alpha1.AnnotationLaunchIntent: launch.EncodeIntent(*intent)})
	result, err := controllers.AfterLocked(f.kubeClient.Patch(ctx, s.claim, controllers.Locked(stored)))
	return result.RequeueAfter, err
}

// changeable reports whether the firewalls of the status follow from the present spec. A running server needs neither
// an image nor capacity.
func changeable(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass.DeletionTimestamp.IsZero() && v1alpha1.Resolved(nodeClass, v1alpha1.ConditionTypeFirewallsReady)
}

// changedFirewalls passes those updates of a NodeClass after which its servers may have to be changed.
var changedFirewalls = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.BizflyNodeClass), e.ObjectNew.(*v1alpha1.BizflyNodeClass)
	return changeable(after) &&
		(!changeable(before) || !slices.Equal(before.Status.Firewalls, after.Status.Firewalls))
}}
