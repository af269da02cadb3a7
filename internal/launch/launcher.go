// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package launch is the life of a launch: from the offerings that fit a NodeClaim to a node that has registered, or to
// the end of the NodeClaim. It records attempts on the NodeClaim, tries offerings in their order, keeps within the
// limits of spending, and learns from what fails.
package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Servers sends create requests, looks for their servers, and lists those of the cluster.
type Servers interface {
	Snapshot(ctx context.Context, maxAge time.Duration) (*instance.Snapshot, error)
	// Doubted reports whether a flavor may be closed, or called by another name.
	Doubted(flavor string, nodeClass *v1alpha1.BizflyNodeClass) bool
	// Intent returns what an attempt is to be recorded as before Launch is called.
	Intent(request *instance.LaunchRequest) (instance.Intent, error)
	// Launch sends the create request of a recorded intent and waits, bounded, for the id of its server.
	Launch(ctx context.Context, request *instance.LaunchRequest, intent instance.Intent) (*instance.Instance,
		instance.Intent, error)
	// Resume finds the server of an earlier create request that was not rejected, and waits for it like Launch. It
	// sends none.
	Resume(ctx context.Context, nodeClaimUID string, intent instance.Intent) (*instance.Instance, error)
}

// Config has the dependencies of a Launcher.
type Config struct {
	// KubeClient is the manager's client: reads come from its cache.
	KubeClient client.Client
	// APIReader reads from the API server itself: what decides whether a server is launched must not be stale.
	APIReader client.Reader
	Recorder  karpevents.Recorder
	Clock     clock.Clock
	Servers   Servers
	Flavors   *flavor.DefaultProvider
	Catalog   catalog.Provider
	Capacity  *capacity.DefaultProvider
	Settings  *options.Store
	// NewCache returns a cache whose entries live for a while.
	NewCache func(lifetime time.Duration) *cache.Cache
}

// Launcher launches servers for NodeClaims. It is safe for concurrent use.
type Launcher struct {
	config  Config
	records *records
	pauses  *pauses
	// reserving makes one step of counting what is launched and reserving an offering: launches at the same time must
	// see each other.
	reserving sync.Mutex
	// heldBack is the last launch that a limit of the cluster held back.
	heldBack atomic.Pointer[heldBack]
	// rejected is the last launch that the account's balance or credentials ended; nil once another one has a server.
	rejected atomic.Pointer[heldBack]
}

// New returns a Launcher.
func New(c Config) *Launcher {
	return &Launcher{
		config:  c,
		records: &records{kubeClient: c.KubeClient, apiReader: c.APIReader, clock: c.Clock, memory: c.NewCache(ttl.Launch)},
		pauses:  &pauses{clock: c.Clock, marks: c.Capacity, recorder: c.Recorder, states: c.NewCache(ttl.NotRegistered)},
	}
}

// Launch is one call of Create for a NodeClaim.
type Launch struct {
	NodeClaim *karpv1.NodeClaim
	NodeClass *v1alpha1.BizflyNodeClass
	// Types are the instance types of the NodePool, at the prices that core has planned with.
	Types cloudprovider.InstanceTypes
	// record is that of the last attempt, empty before the first one.
	record record
	// live is the NodeClaim as last seen at the API server; nil when it has to be read.
	live *karpv1.NodeClaim
}

// ServerMayExist reports whether an earlier attempt may have built a server: then nothing is sent, and Resume looks for
// it.
func (l *Launch) ServerMayExist() bool { return l.record.mayHaveServer() }

// Candidate is one offering that fits a NodeClaim.
type Candidate struct {
	InstanceType *cloudprovider.InstanceType
	Offering     *cloudprovider.Offering
	Key          capacity.Offering
}

// Result is a launch that has a server.
type Result struct {
	Server *instance.Instance
	Intent instance.Intent
	Types  cloudprovider.InstanceTypes
}

// Load reads what is known of earlier attempts for the NodeClaim. An error ends the NodeClaim where its launch has
// ended, or its record was changed by others.
func (l *Launcher) Load(ctx context.Context, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) (*Launch,
	error) {
	loaded := &Launch{NodeClaim: claim, NodeClass: nodeClass}
	var err error
	if loaded.record, loaded.live, err = l.records.load(ctx, claim); errors.Is(err, errRecordUnreadable) {
		return nil, l.End(ctx, ReasonLaunchIntentUnreadable, err)
	} else if err != nil {
		return nil, fmt.Errorf("reading the launch record of NodeClaim %s: %w", claim.Name, err)
	}
	if ended := loaded.record.ended; ended != "" {
		// Core could not delete it, and schedules nothing until it can.
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s: the launch of NodeClaim %s has ended", ended,
			claim.Name))
	}
	return loaded, nil
}

// Resume looks for the server of an accepted create request. Whatever the spec of the NodeClass has become meanwhile, a
// server that may exist is being paid for, and its NodeClaim needs its size.
func (l *Launcher) Resume(ctx context.Context, launch *Launch) (*Result, error) {
	if _, offering := flavor.Find(launch.Types, launch.record.intent.Flavor, launch.record.intent.Zone); offering == nil {
		launch.Types = append(l.config.Flavors.Launched(launch.NodeClass, launch.record.intent.Flavor,
			launch.record.intent.Zone), launch.Types...)
	}
	server, err := l.config.Servers.Resume(ctx, string(launch.NodeClaim.UID), launch.record.intent)
	return l.resultOf(ctx, launch, server, ReasonFound, err)
}

// AdmitLaunch returns an error where launches of the account or of the NodeClass pause.
func (l *Launcher) AdmitLaunch(ctx context.Context, claim *karpv1.NodeClaim,
	nodeClass *v1alpha1.BizflyNodeClass) error {
	if reason, marked := l.config.Capacity.Unavailable(capacity.Offering{}); marked {
		return l.End(ctx, events.ReasonLaunchesPaused, fmt.Errorf("all launches pause: %s", reason))
	}
	if err := l.pauses.admit(ctx, nodeClass, claim.UID); err != nil {
		return l.End(ctx, events.ReasonLaunchesPaused, err)
	}
	return nil
}

// TimeLeft is how long a create request for the NodeClaim may still be sent. Core ends a NodeClaim by its launch
// timeout, counted from the first transition of the condition Launched, however long the request had to wait for its
// turn.
func (l *Launcher) TimeLeft(claim *karpv1.NodeClaim) time.Duration {
	left := lifecycle.LaunchTimeout - min(ttl.LaunchMargin, lifecycle.LaunchTimeout/4)
	if launched := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeLaunched); launched != nil {
		left -= l.config.Clock.Since(launched.LastTransitionTime.Time)
	}
	return left
}

// ReserveByZone counts the other NodeClaims by zone, and reserves for this one the offering that is chosen by that
// count.
func (l *Launcher) ReserveByZone(claim *karpv1.NodeClaim, others []karpv1.NodeClaim,
	choose func(nodes map[string]int) capacity.Offering) {
	l.reserving.Lock()
	defer l.reserving.Unlock()
	nodes := map[string]int{}
	for i := range others {
		if other := &others[i]; other.UID != claim.UID && other.DeletionTimestamp.IsZero() {
			nodes[l.records.offeringOf(other).Zone]++
		}
	}
	l.records.reserve(claim.UID, choose(nodes))
}

// LaunchesPaused returns the reason and the cause why launches with the NodeClass pause, until when none is sent, and a
// nil cause while they do not.
func (l *Launcher) LaunchesPaused(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	return l.pauses.blocked(nodeClass)
}

// nodeClassOf reads the NodeClass of a NodeClaim from the cache.
func (l *Launcher) nodeClassOf(ctx context.Context, claim *karpv1.NodeClaim) (*v1alpha1.BizflyNodeClass, error) {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	err := l.config.KubeClient.Get(ctx, client.ObjectKey{Name: lo.FromPtr(claim.Spec.NodeClassRef).Name}, nodeClass)
	return nodeClass, err
}
