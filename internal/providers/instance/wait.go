// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// tasksPerInterval is the most tasks that all launches which wait read in one poll interval, and tasksAtOnce how many
// of them in parallel: a cloud that hangs for tasks must leave the reads to the lists.
const (
	tasksPerInterval = 20
	tasksAtOnce      = 4
)

// pending is a create request whose server has no id yet.
type pending struct {
	nodeClaimUID string
	intent       Intent
	// resumed is true where an earlier call has waited for it: then its outcome may be reported as unknown, and a
	// server in ERROR is not given more time for its task to say why.
	resumed bool
}

// awaitOutcome returns the outcome of the create request, or ErrAwaitingServerID when it is not known in time.
func (p *DefaultProvider) awaitOutcome(ctx context.Context, request *pending) (decision, error) {
	waiting, cancel := context.WithTimeout(ctx, p.config.Settings.Load().ServerIDWait)
	defer cancel()
	for {
		if found := p.findOutcome(waiting, request); found.next == known {
			return found, nil
		}
		select {
		// It begins after the look: a launch that has just read its task is behind others for the next one.
		case <-p.clock.After(p.config.Settings.Load().ServerPollInterval):
		case <-waiting.Done():
			return decision{}, errors.Join(fmt.Errorf("%w: %s", ErrAwaitingServerID, request.intent.Name), ctx.Err())
		}
	}
}

// findOutcome gathers facts about a create request as long as the next one may decide.
func (p *DefaultProvider) findOutcome(ctx context.Context, r *pending) decision {
	facts := p.listedFacts(ctx, r)
	var task *bizfly.Task
	for {
		switch found := decide(facts); found.next {
		case readTask:
			facts.task, task, facts.taskFailure = p.readTask(ctx, r)
		case readServer:
			facts.server, facts.named = p.readNamed(ctx, r, task)
		default:
			return found
		}
	}
}

// taskState is what is known of the task that builds a server.
type taskState string

const (
	taskUnread     taskState = ""
	taskMissing    taskState = "missing" // the cloud named none, or does not know it any more
	taskUnreadable taskState = "unreadable"
	taskDeferred   taskState = "deferred" // others are read first
	taskRunning    taskState = "running"
	taskSucceeded  taskState = "succeeded"
	taskFailed     taskState = "failed"
)

// serverState is what is known of the server that the task names.
type serverState string

const (
	serverUnread     serverState = ""
	serverMissing    serverState = "missing" // the task names none, another one, or one that does not exist
	serverUnreadable serverState = "unreadable"
	serverFound      serverState = "found"
)

// facts are what is known of a create request at one moment. What was not read yet is unread.
type facts struct {
	// listed is true once the servers were listed, and fresh where that list began after the request.
	listed, fresh bool
	// good and failed are the listed servers of the request: one that is good, and one in ERROR or being deleted.
	good, failed *Instance
	task         taskState
	taskFailure  error
	server       serverState
	named        *Instance
	// resumed is true where an earlier call has waited, and overdue where the visibility window has passed.
	resumed, overdue bool
}

// step is what comes next.
type step string

const (
	wait       step = ""
	readTask   step = "read the task"
	readServer step = "read the server that the task names"
	known      step = "the outcome is known"
)

// decision is what follows from facts. A known outcome has a server; or a cause, with the server that is left if there
// is one; or neither, which means that it will never be known.
type decision struct {
	next   step
	server *Instance
	// failure is why the task failed; where it did not, and the server has failed, status says how.
	failure error
	status  string
}

// cause is why the server of the intent will not run.
func (d decision) cause(intent Intent) error {
	if d.failure == nil && d.status != "" {
		return unexplained(intent, "status "+d.status)
	}
	return d.failure
}

// decide answers what has become of a create request, or what to read next. A list may lag behind the task, and the
// task behind a deletion: only the server itself counts.
//
//nolint:gocyclo // a table, with one case for each outcome
func decide(f facts) decision {
	switch {
	case !f.listed:
		return decision{next: wait}
	case f.good != nil:
		return decision{next: known, server: f.good}
	case !f.fresh:
		return decision{next: wait} // the next list shows most servers, and spares the task
	case f.task == taskUnread:
		return decision{next: readTask}
	case f.task == taskDeferred:
		return decision{next: wait}
	case f.task == taskFailed && f.failed == nil && f.server == serverUnread:
		return decision{next: readServer}
	case f.task == taskFailed && f.failed == nil:
		// When it cannot be read, garbage collection finds the server by its metadata.
		return decision{next: known, server: f.named, failure: f.taskFailure}
	case f.task == taskFailed:
		return decision{next: known, server: f.failed, failure: f.taskFailure}
	case f.failed != nil && (f.resumed || f.task == taskSucceeded || f.task == taskMissing):
		return decision{next: known, server: f.failed, status: f.failed.Status}
	case f.failed != nil, f.task == taskRunning, f.task == taskUnreadable:
		return decision{next: wait}
	case f.server == serverUnread:
		return decision{next: readServer}
	case f.server == serverFound && (f.named.Failed() || f.named.Deleting()):
		return decision{next: known, server: f.named, status: f.named.Status + " after its task had succeeded"}
	case f.server == serverFound:
		return decision{next: known, server: f.named}
	case f.server == serverMissing && f.resumed && f.overdue:
		return decision{next: known}
	}
	return decision{next: wait}
}

// listedFacts looks for the server in a list that all who wait share for a poll interval.
func (p *DefaultProvider) listedFacts(ctx context.Context, r *pending) facts {
	f := facts{resumed: r.resumed}
	servers, err := p.servers.get(ctx, p.clock.Now().Add(-p.config.Settings.Load().ServerPollInterval))
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing servers to find one that was requested", "server", r.intent.Name, "error",
			err.Error())
		return f
	}
	candidates := lo.Filter(servers.value.OfNodeClaim(r.nodeClaimUID), func(server *Instance, _ int) bool {
		return p.cluster.builtFor(server, r.nodeClaimUID, r.intent) && !server.Gone()
	})
	bad, good := lo.FilterReject(candidates, func(s *Instance, _ int) bool { return s.Failed() || s.Deleting() })
	f.listed, f.fresh = true, !servers.begun.Before(r.intent.RequestedAt)
	f.good, f.failed = oldest(good), oldest(bad)
	f.overdue = servers.begun.Sub(r.intent.RequestedAt) > p.config.Settings.Load().VisibilityWindow
	return f
}

// readTask reads the task of a create request when its turn comes.
func (p *DefaultProvider) readTask(ctx context.Context, r *pending) (taskState, *bizfly.Task, error) {
	if r.intent.TaskID == "" {
		return taskMissing, nil, nil
	}
	now, interval := p.clock.Now(), p.config.Settings.Load().ServerPollInterval
	p.tasks.SetLimitAt(now, rate.Limit(tasksPerInterval/interval.Seconds()))
	if !p.tasks.AllowN(now, 1) {
		return taskDeferred, nil, nil
	}
	// A list ends for all who wait at one moment, so that each has to wait for its turn.
	turn, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	if p.readingTasks.Acquire(turn, 1) != nil {
		return taskDeferred, nil, nil
	}
	defer p.readingTasks.Release(1)
	task, err := p.api.GetTask(ctx, r.intent.TaskID)
	switch {
	case bizfly.IsNotFound(err):
		return taskMissing, nil, nil
	case err != nil:
		return taskUnreadable, nil, nil
	case !task.Ready:
		return taskRunning, task, nil
	case task.Failure != nil:
		return taskFailed, task, task.Failure
	}
	return taskSucceeded, task, nil
}

// readNamed reads the server that a task names. It counts only if it is the one that was requested.
func (p *DefaultProvider) readNamed(ctx context.Context, r *pending, task *bizfly.Task) (serverState, *Instance) {
	if task == nil || task.Server == nil || task.Server.ID == "" {
		return serverMissing, nil
	}
	server, err := p.getServer(ctx, task.Server.ID)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && !p.cluster.builtFor(server, r.nodeClaimUID, r.intent):
		return serverMissing, nil
	case err != nil:
		return serverUnreadable, nil
	}
	return serverFound, server
}

// oldest returns the oldest of the servers of one create request, always the same: a gateway that repeats the request
// can create two. Garbage collection deletes the others.
func oldest(servers []*Instance) *Instance {
	if len(servers) == 0 {
		return nil
	}
	return slices.MinFunc(servers, func(a, b *Instance) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}
