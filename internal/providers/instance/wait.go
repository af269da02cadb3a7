// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// tasksPerInterval is the most tasks that all launches which wait read in one poll interval, and tasksAtOnce how many of them in parallel: a
// cloud that hangs for tasks must leave the reads to the lists.
const (
	tasksPerInterval = 20
	tasksAtOnce      = 4
)

// pending is a create request whose server has no id yet.
type pending struct {
	nodeClaimUID string
	intent       Intent
	// resumed is true where an earlier call has waited for it: then its outcome may be reported as unknown, and a server in ERROR is not
	// given more time for its task to say why.
	resumed bool
}

// outcome is what has become of a create request: a server; a cause, with the server that is left if there is one; or neither, which
// means that it will never be known.
type outcome struct {
	server *Instance
	cause  error
}

// wait returns the outcome of the create request, or ErrAwaitingServerID when it is not known in time.
func (p *DefaultProvider) wait(ctx context.Context, request *pending) (*outcome, error) {
	waiting, cancel := context.WithTimeout(ctx, p.settings.Load().ServerIDWait)
	defer cancel()
	for {
		if found := p.look(waiting, request); found != nil {
			return found, nil
		}
		select {
		// It begins after the look: a launch that has just read its task is behind others for the next one.
		case <-p.clock.After(p.settings.Load().ServerPollInterval):
		case <-waiting.Done():
			return nil, errors.Join(fmt.Errorf("%w: %s", ErrAwaitingServerID, request.intent.Name), ctx.Err())
		}
	}
}

// look looks once for the server of a create request, in a list that all who wait share for a poll interval. Where it shows none that is
// good, it reads the task if it may. It returns nil as long as the outcome is open.
func (p *DefaultProvider) look(ctx context.Context, r *pending) *outcome {
	interval := p.settings.Load().ServerPollInterval
	servers, err := p.servers.get(ctx, p.clock.Now().Add(-interval))
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing servers to find one that was requested", "server", r.intent.Name, "error", err.Error())
		return nil
	}
	candidates := lo.Filter(servers.value.OfNodeClaim(r.nodeClaimUID), func(server *Instance, _ int) bool {
		return p.builtFor(server, r.nodeClaimUID, r.intent) && !server.Gone()
	})
	bad, good := lo.FilterReject(candidates, func(s *Instance, _ int) bool { return s.Failed() || s.Deleting() })
	if server := oldest(good); server != nil {
		return &outcome{server: server}
	}
	if servers.begun.Before(r.intent.RequestedAt) {
		return nil // the next list shows most servers, and spares the task
	}
	failed := oldest(bad)
	if r.intent.TaskID == "" {
		return p.decide(ctx, r, nil, failed, servers.begun)
	}
	now := p.clock.Now()
	p.tasks.SetLimitAt(now, rate.Limit(tasksPerInterval/interval.Seconds()))
	if !p.tasks.AllowN(now, 1) {
		return nil
	}
	// A list ends for all who wait at one moment, so that each has to wait for its turn.
	turn, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	if p.readingTasks.Acquire(turn, 1) != nil {
		return nil
	}
	defer p.readingTasks.Release(1)
	switch task, err := p.api.GetTask(ctx, r.intent.TaskID); {
	case err == nil:
		return p.decide(ctx, r, task, failed, servers.begun)
	case bizfly.IsNotFound(err):
		return p.decide(ctx, r, nil, failed, servers.begun)
	case failed != nil && r.resumed:
		return &outcome{server: failed, cause: unexplained(r.intent, "status "+failed.Status)}
	}
	return nil
}

// decide returns the outcome of a create request for which a list shows no good server, as far as its task allows. The task is nil where
// there is none, failed is the server in ERROR or being deleted, if there is one, and listed is when the list began.
func (p *DefaultProvider) decide(ctx context.Context, r *pending, task *bizfly.Task, failed *Instance, listed time.Time) *outcome {
	switch ended := task == nil || task.Ready; {
	case ended && task != nil && task.Failure != nil:
		if failed == nil {
			// When this cannot be read, garbage collection finds the server by its metadata.
			failed, _ = p.named(ctx, r, task)
		}
		return &outcome{server: failed, cause: task.Failure}
	case failed != nil && (ended || r.resumed):
		return &outcome{server: failed, cause: unexplained(r.intent, "status "+failed.Status)}
	case failed == nil && ended:
		return p.decideUnlisted(ctx, r, task, listed)
	}
	return nil
}

// decideUnlisted returns the outcome where the task has succeeded, or there is none, and no server is listed. The list may lag behind the
// task, and the task behind a deletion: only the server itself counts.
func (p *DefaultProvider) decideUnlisted(ctx context.Context, r *pending, task *bizfly.Task, listed time.Time) *outcome {
	server, err := p.named(ctx, r, task)
	switch {
	case err != nil:
	case server != nil && (server.Failed() || server.Deleting()):
		return &outcome{server: server, cause: unexplained(r.intent, "status "+server.Status+" after its task had succeeded")}
	case server != nil:
		return &outcome{server: server}
	case r.resumed && listed.Sub(r.intent.RequestedAt) > p.settings.Load().VisibilityWindow:
		return &outcome{}
	}
	return nil
}

// named returns the server that a task names when it is the one that was requested; nil where it names none, or one that does not exist.
func (p *DefaultProvider) named(ctx context.Context, r *pending, task *bizfly.Task) (*Instance, error) {
	if task == nil || task.Server == nil || task.Server.ID == "" {
		return nil, nil
	}
	server, err := p.getServer(ctx, task.Server.ID)
	if errors.Is(err, ErrNotFound) || (err == nil && !p.builtFor(server, r.nodeClaimUID, r.intent)) {
		return nil, nil
	}
	return server, err
}

// oldest returns the oldest of the servers of one create request, always the same: a gateway that repeats the request can create two.
// Garbage collection deletes the others.
func oldest(servers []*Instance) *Instance {
	if len(servers) == 0 {
		return nil
	}
	return slices.MinFunc(servers, func(a, b *Instance) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}
