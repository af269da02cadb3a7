// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// tasksPerRound is the most tasks that one round reads, and tasksAtOnce how many of them in parallel.
const (
	tasksPerRound = 20
	tasksAtOnce   = 4
)

// pending is a create request whose server has no id yet.
type pending struct {
	nodeClaimUID string
	intent       Intent
	// resumed is true where an earlier call has waited for it: then its outcome may be reported as unknown, and a server in ERROR is not
	// given more time for its task to say why.
	resumed bool
	outcome chan outcome
	// lastRead is when its task was last read. It belongs to the poller's goroutine.
	lastRead time.Time
}

// outcome is what has become of a create request: a server; a cause, with the server that is left if there is one; or neither, which
// means that it will never be known.
type outcome struct {
	server *Instance
	cause  error
}

// poller looks for the servers of all create requests together: one list per round however many wait, then a bounded number of tasks. Its
// goroutine exists while a call waits, and one interval longer, so that the next call cannot raise the pace.
type poller struct {
	*inventory

	mu      sync.Mutex
	pending sets.Set[*pending]
	running bool
}

// wait returns the outcome of the create request, or ErrAwaitingServerID when it is not known in time.
func (p *poller) wait(ctx context.Context, request *pending) (outcome, error) {
	request.outcome = make(chan outcome, 1)
	timer := p.clock.NewTimer(p.settings.Load().ServerIDWait)
	defer timer.Stop()
	p.mu.Lock()
	p.pending.Insert(request)
	if !p.running {
		p.running = true
		go p.run()
	}
	p.mu.Unlock()
	defer p.remove(request)
	select {
	case found := <-request.outcome:
		return found, nil
	case <-timer.C():
	case <-ctx.Done():
	}
	select {
	case found := <-request.outcome:
		return found, nil
	default:
		return outcome{}, errors.Join(fmt.Errorf("%w: %s", ErrAwaitingServerID, request.intent.Name), ctx.Err())
	}
}

func (p *poller) remove(request *pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending.Delete(request)
}

// finish ends the wait for one create request. Its call may have ended already; then the next one finds the same.
func (p *poller) finish(request *pending, found outcome) {
	p.remove(request)
	request.outcome <- found
}

// run polls until no call waits any more.
func (p *poller) run() {
	for {
		p.mu.Lock()
		requests := p.pending.UnsortedList()
		p.running = len(requests) > 0
		p.mu.Unlock()
		if len(requests) == 0 {
			return
		}
		next := p.clock.After(p.settings.Load().ServerPollInterval)
		p.poll(requests)
		<-next
	}
}

// poll looks once for the servers of all these create requests, in a list that begins after each of them was sent. Where it shows none
// that is good, it reads the tasks of as many as one round may, longest unread first.
func (p *poller) poll(requests []*pending) {
	ctx, cancel := context.WithTimeout(context.Background(), ttl.PollRound)
	defer cancel()
	servers, err := p.servers.get(ctx, p.clock.Now())
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing servers to find those that were requested", "error", err.Error())
		return
	}
	failed := map[*pending]*Instance{}
	var open []*pending
	for _, r := range requests {
		candidates := lo.Filter(servers.value.OfNodeClaim(r.nodeClaimUID), func(server *Instance, _ int) bool {
			return p.builtFor(server, r.nodeClaimUID, r.intent) && !server.gone()
		})
		bad, good := lo.FilterReject(candidates, func(s *Instance, _ int) bool { return s.Failed() || s.Deleting() })
		if server := oldest(good); server != nil {
			p.finish(r, outcome{server: server})
			continue
		}
		failed[r], open = oldest(bad), append(open, r)
	}
	readable, taskless := lo.FilterReject(open, func(r *pending, _ int) bool { return r.intent.TaskID != "" })
	for _, r := range taskless {
		p.decide(ctx, r, nil, failed[r])
	}
	slices.SortStableFunc(readable, func(a, b *pending) int {
		return cmp.Or(a.lastRead.Compare(b.lastRead), a.intent.RequestedAt.Compare(b.intent.RequestedAt))
	})
	group := errgroup.Group{}
	group.SetLimit(tasksAtOnce)
	for _, r := range lo.Slice(readable, 0, tasksPerRound) {
		r.lastRead = p.clock.Now()
		group.Go(func() error {
			switch task, err := p.api.GetTask(ctx, r.intent.TaskID); {
			case err == nil:
				p.decide(ctx, r, task, failed[r])
			case bizfly.IsNotFound(err):
				p.decide(ctx, r, nil, failed[r])
			case failed[r] != nil && r.resumed:
				p.finish(r, outcome{server: failed[r], cause: unexplained(r.intent, "status "+failed[r].Status)})
			}
			return nil
		})
	}
	_ = group.Wait() // No read returns an error: a request whose read failed stays open.
}

// decide ends the wait for a create request for which the list shows no good server, as far as its task allows. The task is nil where there
// is none, and failed is the server in ERROR or being deleted, if there is one.
func (p *poller) decide(ctx context.Context, r *pending, task *bizfly.Task, failed *Instance) {
	switch ended := task == nil || task.Ready; {
	case ended && task != nil && task.Failure != nil:
		if failed == nil {
			// When this cannot be read, garbage collection finds the server by its metadata.
			failed, _ = p.named(ctx, r, task)
		}
		p.finish(r, outcome{server: failed, cause: task.Failure})
	case failed != nil:
		if ended || r.resumed {
			p.finish(r, outcome{server: failed, cause: unexplained(r.intent, "status "+failed.Status)})
		}
	case ended:
		p.decideUnlisted(ctx, r, task)
	}
}

// decideUnlisted ends the wait where the task has succeeded, or there is none, and no server is listed. The list may lag behind the task,
// and the task behind a deletion: only the server itself counts.
func (p *poller) decideUnlisted(ctx context.Context, r *pending, task *bizfly.Task) {
	server, err := p.named(ctx, r, task)
	switch {
	case err != nil:
	case server != nil && (server.Failed() || server.Deleting()):
		p.finish(r, outcome{server: server, cause: unexplained(r.intent, "status "+server.Status+" after its task had succeeded")})
	case server != nil:
		p.finish(r, outcome{server: server})
	case r.resumed && p.clock.Since(r.intent.RequestedAt) > p.settings.Load().VisibilityWindow:
		p.finish(r, outcome{})
	}
}

// named returns the server that a task names when it is the one that was requested; nil where it names none, or one that does not exist.
func (p *poller) named(ctx context.Context, r *pending, task *bizfly.Task) (*Instance, error) {
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
