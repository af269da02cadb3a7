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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// changesPerSecond and changesAtOnce bound how many servers are changed: a NodeClass of a thousand nodes must not take the calls from
	// launches, nor a cloud that hangs the workers.
	changesPerSecond = 1
	changesAtOnce    = 5
)

// inPlace is the step that changes a running server to what its NodeClass specifies where that needs no new server: the network plan, and
// the firewalls of the interfaces that it was launched with. Firewalls that someone else has attached stay.
type inPlace struct {
	kubeClient client.Client
	settings   Settings
	recorder   karpevents.Recorder
	clock      clock.Clock
	limiter    *rate.Limiter
	turns      chan struct{}
}

// Settings compares and changes what can change on a running server.
type Settings interface {
	// Differs reports whether a server has other settings than the wanted ones, by lists of up to two minutes ago.
	Differs(ctx context.Context, server *instance.Instance, wanted instance.Settings) (bool, error)
	// Apply gives a server the wanted settings, and returns what it has changed; ErrNotFound when it does not exist or is not ours.
	Apply(ctx context.Context, id string, wanted instance.Settings) ([]string, error)
	// DefaultFirewall returns the id of the firewall that the cloud attaches where none is requested; ErrNotFound where there is none.
	DefaultFirewall(ctx context.Context) (string, error)
}

func newInPlace(kubeClient client.Client, settings Settings, recorder karpevents.Recorder, clk clock.Clock) *inPlace {
	return &inPlace{kubeClient: kubeClient, settings: settings, recorder: recorder, clock: clk,
		limiter: rate.NewLimiter(changesPerSecond, changesAtOnce), turns: make(chan struct{}, changesAtOnce)}
}

// reconcile compares the server with its NodeClass, and changes it when its turn comes. A server that is missing, still being built or
// stopped is not changed for now.
func (p *inPlace) reconcile(ctx context.Context, s *subject) (time.Duration, error) {
	if s.server == nil || s.server.NodeClaimUID != string(s.UID) || s.server.Status != instance.StatusActive {
		return ttl.InPlace, nil
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := p.kubeClient.Get(ctx, client.ObjectKey{Name: s.Spec.NodeClassRef.Name}, nodeClass); err != nil || !changeable(nodeClass) {
		return ttl.InPlace, client.IgnoreNotFound(err)
	}
	wanted, err := p.wantedSettings(ctx, s, nodeClass)
	if err != nil {
		return 0, p.failed(s, err)
	}
	// Firewalls that are on the record and not wanted are left of a change that was interrupted: an old list may not show them.
	due := len(wanted.Firewalls) > 0 && len(wanted.Attached) > 0 && !lo.ElementsMatch(wanted.Attached, wanted.Firewalls)
	if !due {
		if due, err = p.settings.Differs(ctx, s.server, wanted); err != nil || !due {
			return ttl.InPlace, err
		}
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	default:
		return waitForTurn(), nil
	}
	if !p.limiter.AllowN(p.clock.Now(), 1) {
		return waitForTurn(), nil
	}
	return p.change(ctx, s, wanted)
}

// waitForTurn is spread, because each try takes a worker from launches, and a thousand servers may wait.
func waitForTurn() time.Duration { return wait.Jitter(5*time.Second/changesPerSecond, 1) }

// change changes what differs. Which firewalls are ours is recorded before, so that each of them can be removed again.
func (p *inPlace) change(ctx context.Context, s *subject, wanted instance.Settings) (time.Duration, error) {
	ours := lo.Union(wanted.Attached, wanted.Firewalls)
	if !lo.ElementsMatch(ours, wanted.Attached) {
		if conflict, err := p.record(ctx, s, ours); conflict > 0 || err != nil {
			return conflict, err
		}
	}
	done, err := p.settings.Apply(ctx, s.server.ID, wanted)
	switch {
	case errors.Is(err, instance.ErrNotFound):
		return ttl.InPlace, nil
	case err != nil:
		return 0, p.failed(s, err)
	}
	if !lo.ElementsMatch(ours, wanted.Firewalls) {
		if conflict, err := p.record(ctx, s, wanted.Firewalls); conflict > 0 || err != nil {
			return conflict, err
		}
	}
	if len(done) > 0 {
		p.recorder.Publish(events.ServerUpdated(s.NodeClaim, strings.Join(done, "; ")))
	}
	return ttl.InPlace, nil
}

func (p *inPlace) failed(s *subject, err error) error {
	p.recorder.Publish(events.ServerUpdateFailed(s.NodeClaim, err))
	return err
}

// errNoDefault means that a server cannot be left without a firewall: its interfaces would pass no traffic at all.
var errNoDefault = errors.New("spec.firewallSelectorTerms is empty, and the project has no firewall called default to attach instead: select one")

// wantedSettings returns what the server is to have. Which firewalls we have attached is in the launch intent. Where none is selected, or none was
// at the launch, that is the cloud's default one.
func (p *inPlace) wantedSettings(ctx context.Context, s *subject, nodeClass *v1alpha1.BizflyNodeClass) (instance.Settings, error) {
	wanted := instance.Settings{
		NetworkPlan:   bizfly.PlanWord(nodeClass.EffectiveNetworkPlan()),
		Firewalls:     lo.Uniq(lo.Map(nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID })),
		RecordedPorts: launch.OwnedInterfaces(s.NodeClaim),
	}
	intent, _ := launch.ReadIntent(s.NodeClaim)
	wanted.Attached = lo.FromPtr(intent).Firewalls
	selected, attached := len(wanted.Firewalls) > 0, len(wanted.Attached) > 0
	if selected == attached || wanted.Attached == nil {
		return wanted, nil
	}
	fallback, err := p.settings.DefaultFirewall(ctx)
	missing := errors.Is(err, instance.ErrNotFound)
	switch {
	case err != nil && !missing:
		return wanted, err
	case selected:
		wanted.Attached = lo.Compact([]string{fallback})
	case missing:
		return wanted, errNoDefault
	default:
		wanted.Firewalls = []string{fallback}
	}
	return wanted, nil
}

// record writes into the launch intent, where there is one, which firewalls we have attached.
func (p *inPlace) record(ctx context.Context, s *subject, firewalls []string) (conflict time.Duration, err error) {
	intent, _ := launch.ReadIntent(s.NodeClaim)
	if intent == nil {
		return 0, nil
	}
	stored := s.DeepCopy()
	intent.Firewalls = firewalls
	s.Annotations = lo.Assign(s.Annotations, map[string]string{v1alpha1.AnnotationLaunchIntent: launch.EncodeIntent(*intent)})
	result, err := controllers.AfterLocked(p.kubeClient.Patch(ctx, s.NodeClaim, controllers.Locked(stored)))
	return result.RequeueAfter, err
}

// changeable reports whether the firewalls of the status follow from the present spec. A running server needs neither an image nor capacity.
func changeable(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass.DeletionTimestamp.IsZero() && lookup.Resolved(nodeClass, v1alpha1.ConditionTypeFirewallsReady)
}

// changedInPlace passes those updates of a NodeClass after which its servers may have to be changed.
var changedInPlace = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.BizflyNodeClass), e.ObjectNew.(*v1alpha1.BizflyNodeClass)
	return changeable(after) && (!changeable(before) || before.EffectiveNetworkPlan() != after.EffectiveNetworkPlan() ||
		!slices.Equal(before.Status.Firewalls, after.Status.Firewalls))
}}
