// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server follows the server of each NodeClaim, from its create request until the NodeClaim ends: it replaces a
// NodeClaim whose launch fails, records which disks are the server's own, and changes firewalls and the network plan of
// a running server. It deletes no server: core does, and garbage collection.
package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// concurrency is enough for hundreds of launches, which share one list of servers. Changes in place, which can hang
// with the cloud, take at most changesAtOnce of the workers.
const concurrency = 20

// subject is a NodeClaim with what the steps decide by.
type subject struct {
	claim *karpv1.NodeClaim
	// server is nil where it provably does not exist.
	server *instance.Instance
	// node is nil where there is none.
	node       *corev1.Node
	registered bool
}

// ready reports whether the kubelet is ready.
func (s *subject) ready() bool {
	return s.node != nil && nodeutils.GetCondition(s.node, corev1.NodeReady).Status == corev1.ConditionTrue
}

// step is one task of the controller. It returns after what time it wants to be called again; 0 means that it waits for
// a change of the NodeClaim.
type step func(context.Context, *subject) (time.Duration, error)

// Controller follows servers.
type Controller struct {
	kubeClient client.Client
	instances  Instances
	launches   *launches
	steps      []step
}

// Instances are the servers of this cluster.
type Instances interface {
	Get(ctx context.Context, id string) (*instance.Instance, error)
	Snapshot(ctx context.Context, maxAge time.Duration) (*instance.Snapshot, error)
	// FailureReason answers why a server failed. It is never nil; where the cloud gives no reason, it has no class.
	FailureReason(ctx context.Context, intent instance.Intent) error
	// Ports returns a list of network interfaces, and Last the last lists without a request, each nil where there is none
	// of this age.
	Ports(ctx context.Context, maxAge time.Duration) (*instance.Ports, error)
	Last(maxAge time.Duration) (*instance.Snapshot, *instance.Ports)
	// FirewallsDiffer reports whether a server has other firewalls than the wanted ones, by lists of up to two minutes
	// ago.
	FirewallsDiffer(ctx context.Context, server *instance.Instance, firewalls instance.Firewalls) (bool, error)
	// SetFirewalls gives a server the wanted firewalls, and reports whether it has changed any and whether all recorded
	// interfaces were listed; ErrNotFound when the server does not exist or is not ours.
	SetFirewalls(ctx context.Context, id string, firewalls instance.Firewalls) (changed, complete bool, err error)
}

// NewController returns a Controller. tokens is nil without join tokens.
func NewController(kubeClient client.Client, instances Instances, networks *network.DefaultProvider,
	launcher *launch.Launcher, tokens jointoken.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	l := &launches{kubeClient: kubeClient, instances: instances, launcher: launcher, tokens: tokens,
		recorder: recorder, clock: clk, followed: cache.New(ttl.Launch, 0)}
	return &Controller{kubeClient: kubeClient, instances: instances, launches: l, steps: []step{
		l.reconcile,
		(&disks{kubeClient: kubeClient, instances: instances}).reconcile,
		(&firewalls{kubeClient: kubeClient, instances: instances, networks: networks, recorder: recorder,
			clock: clk, limiter: rate.NewLimiter(changesPerSecond, changesAtOnce),
			turns: make(chan struct{}, changesAtOnce)}).reconcile,
	}}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.server" }

// Reconcile finds the server of the NodeClaim once and runs all steps. A step that fails stops no other one: the
// soonest time that one of them wants to be called again counts, and ttl.LaunchPoll after an error.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	next, err := c.runSteps(injection.WithControllerName(ctx, c.Name()), claim)
	return reconcile.Result{RequeueAfter: next}, err
}

func (c *Controller) runSteps(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	s := &subject{claim: claim, registered: controllers.IsTrue(claim, karpv1.ConditionTypeRegistered)}
	deleting := !claim.DeletionTimestamp.IsZero()
	var failed error
	if deleting || s.registered {
		failed = c.launches.endLaunch(ctx, claim) // This needs no answer of the cloud.
	}
	id, launched := providerid.Parse(claim.Status.ProviderID)
	if deleting || !launched {
		return 0, failed
	}
	if !s.registered {
		c.launches.followLaunch(claim)
	}
	switch err := c.find(ctx, s, id); {
	case errors.Is(err, errNotListed):
		// The shared list fails for every node alike. The garbage collector reads it too, and reports why it cannot.
		return lo.Ternary(s.registered, ttl.RunningServer, ttl.LaunchPoll), failed
	case err != nil:
		return 0, errors.Join(failed, err)
	}
	var next time.Duration
	for _, step := range c.steps {
		again, err := step(ctx, s)
		next, failed = soonest(next, again), errors.Join(failed, err)
	}
	return next, failed
}

// errNotListed says that the shared list of servers cannot be read.
var errNotListed = errors.New("the list of servers cannot be read")

// find reads the Node and the server. Nothing that is known to run well is urgent, so an older list is enough for it. A
// server that the list lacks is read by its id: the list may be older than the server, and its absence proves nothing.
func (c *Controller) find(ctx context.Context, s *subject, id string) error {
	if name := s.claim.Status.NodeName; name != "" {
		node := &corev1.Node{}
		err := c.kubeClient.Get(ctx, client.ObjectKey{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %s: %w", name, err)
		}
		if err == nil {
			s.node = node
		}
	}
	var maxAge time.Duration
	if s.ready() {
		maxAge = ttl.PeriodicServers
	}
	servers, err := c.instances.Snapshot(ctx, maxAge)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotListed, err)
	}
	if s.server = servers.Get(id); s.server != nil && !s.server.Gone() {
		return nil
	}
	s.server, err = c.instances.Get(ctx, id)
	if err != nil && !errors.Is(err, instance.ErrNotFound) {
		return fmt.Errorf("getting server %s: %w", id, err)
	}
	return nil
}

// soonest returns the shorter of two times, where 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// retries repeat a failed reconciliation after a fixed time: the own back-off of controller-runtime, of up to 17
// minutes, would put off every step because of one.
var retries = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](ttl.LaunchPoll, ttl.LaunchPoll)

// watched is what the steps read of a NodeClaim beside its state.
type watched struct {
	launched    bool
	disks, node string
}

// Register adds the controller to the manager. A NodeClass whose firewalls have changed is applied at once.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	relevant := func(claim *karpv1.NodeClaim) watched {
		return watched{controllers.IsTrue(claim, karpv1.ConditionTypeLaunched),
			claim.Annotations[v1alpha1.AnnotationDelivered], claim.Status.NodeName}
	}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(controllers.Managed(relevant))).
		Watches(&v1alpha1.BizflyNodeClass{}, nodeclaimutils.NodeClassEventHandler(c.kubeClient),
			builder.WithPredicates(changedFirewalls)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, RateLimiter: retries}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
