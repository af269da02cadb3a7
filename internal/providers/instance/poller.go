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

package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// taskReadsPerRound is the most tasks that one round reads, and taskReadsAtOnce how many of them in parallel.
	taskReadsPerRound = 20
	taskReadsAtOnce   = 4
	// faultRounds is how many rounds a server in ERROR waits for its task to say why, since the reason decides whether
	// the offering is marked unavailable.
	faultRounds = 3
)

// waiter is one create request whose server is looked for.
type waiter struct {
	nodeClaimUID string
	intent       Intent
	// allowUnknown permits reporting the outcome as unknown.
	allowUnknown bool
	found        chan result

	// What follows belongs to the poller's goroutine.
	lastRead  time.Time
	errorSeen int
}

// result is the outcome of a create request: a server; a cause, with the server that is left if there is one; or neither,
// which means that it will never be known.
type result struct {
	server *Instance
	cause  error
}

// poller looks for the servers of all create requests together: one list per round however many wait, then a bounded number
// of tasks. Its goroutine exists while a call waits, and one interval longer, so that the next call cannot raise the pace.
type poller struct {
	*inventory

	mu      sync.Mutex
	waiters sets.Set[*waiter]
	running bool
}

// wait returns the outcome of the create request, or ErrAwaitingServerID when it is not known in time.
func (p *poller) wait(ctx context.Context, w *waiter) (result, error) {
	w.found = make(chan result, 1)
	timer := p.clock.NewTimer(p.settings.Load().ServerIDWait)
	defer timer.Stop()
	p.join(w)
	defer p.leave(w)
	select {
	case found := <-w.found:
		return found, nil
	case <-timer.C():
	case <-ctx.Done():
	}
	select {
	case found := <-w.found:
		return found, nil
	default:
		return result{}, errors.Join(fmt.Errorf("%w: %s", ErrAwaitingServerID, w.intent.Name), ctx.Err())
	}
}

func (p *poller) join(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters.Insert(w)
	if !p.running {
		p.running = true
		go p.run()
	}
}

func (p *poller) leave(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters.Delete(w)
}

// deliver ends the wait of one create request. Its call may have ended already; then the next one finds the same.
func (p *poller) deliver(w *waiter, found result) {
	p.leave(w)
	w.found <- found
}

// run polls until no call waits any more.
func (p *poller) run() {
	for {
		p.mu.Lock()
		waiters := p.waiters.UnsortedList()
		p.running = len(waiters) > 0
		p.mu.Unlock()
		if len(waiters) == 0 {
			return
		}
		next := p.clock.After(p.settings.Load().ServerPollInterval)
		p.round(waiters)
		<-next
	}
}

// round looks once for the servers of all these create requests. The list begins after each of them has joined.
func (p *poller) round(waiters []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), ttl.PollRound)
	defer cancel()
	servers, err := p.servers.get(ctx, p.clock.Now())
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing servers to find those that were requested", "error", err.Error())
		return
	}
	var open []*waiter
	broken := map[*waiter]*Instance{}
	for _, w := range waiters {
		candidates := lo.Filter(servers.value.OfNodeClaim(w.nodeClaimUID), func(server *Instance, _ int) bool {
			return p.builtFor(server, w.nodeClaimUID, w.intent)
		})
		if good := choose(lo.Reject(candidates, func(s *Instance, _ int) bool { return s.Failed() || s.Deleting() })); good != nil {
			p.deliver(w, result{server: good})
			continue
		}
		if bad := choose(lo.Reject(candidates, func(s *Instance, _ int) bool { return s.gone() })); bad != nil {
			broken[w] = bad
			w.errorSeen++
		}
		open = append(open, w)
	}
	p.readTasks(ctx, open, broken)
}

// readTasks reads the tasks of as many create requests as one round may, longest unread first, and classifies these and
// those that have no task.
func (p *poller) readTasks(ctx context.Context, open []*waiter, broken map[*waiter]*Instance) {
	readable, taskless := lo.FilterReject(open, func(w *waiter, _ int) bool { return w.intent.TaskID != "" })
	for _, w := range taskless {
		p.classify(ctx, w, nil, nil, broken[w])
	}
	slices.SortStableFunc(readable, func(a, b *waiter) int {
		return cmp.Or(a.lastRead.Compare(b.lastRead), a.intent.RequestedAt.Compare(b.intent.RequestedAt))
	})
	group := errgroup.Group{}
	group.SetLimit(taskReadsAtOnce)
	for _, w := range lo.Slice(readable, 0, taskReadsPerRound) {
		w.lastRead = p.clock.Now()
		group.Go(func() error {
			task, err := p.api.GetTask(ctx, w.intent.TaskID)
			p.classify(ctx, w, task, err, broken[w])
			return nil
		})
	}
	_ = group.Wait() // No read returns an error: a request whose read failed stays open.
}

// classify decides about one create request for which the list shows no good server. broken is one in ERROR or deleting.
func (p *poller) classify(ctx context.Context, w *waiter, task *bizfly.Task, err error, broken *Instance) {
	hasTask := w.intent.TaskID != ""
	unknowable := !hasTask || bizfly.IsNotFound(err)
	ended := hasTask && err == nil && task.Ready
	switch {
	case ended && task.Failure() != nil:
		if broken == nil {
			// When this cannot be read, garbage collection finds the server by its metadata.
			broken, _ = p.verified(ctx, w, task.Server)
		}
		p.deliver(w, result{cause: task.Failure(), server: broken})
	case broken != nil:
		if unknowable || ended || w.errorSeen >= faultRounds {
			p.deliver(w, result{cause: unexplained(w.intent, "status "+broken.Status), server: broken})
		}
	case ended && task.Server != nil:
		p.follow(ctx, w, task.Server)
	case unknowable || ended:
		p.abandon(w)
	}
}

// follow decides by the server that a task claims to have built. The list may lag behind the task, and the task behind a
// deletion: only the server itself counts.
func (p *poller) follow(ctx context.Context, w *waiter, named *gobizfly.Server) {
	server, err := p.verified(ctx, w, named)
	switch {
	case err != nil:
	case server == nil:
		p.abandon(w)
	case server.Failed() || server.Deleting():
		p.deliver(w, result{cause: unexplained(w.intent, "status "+server.Status+" after its task had succeeded"), server: server})
	default:
		p.deliver(w, result{server: server})
	}
}

// verified returns the server that a task names when it is the one that was requested, and nil when that does not exist.
func (p *poller) verified(ctx context.Context, w *waiter, named *gobizfly.Server) (*Instance, error) {
	if named == nil || named.ID == "" {
		return nil, nil
	}
	server, err := p.getServer(ctx, named.ID)
	if errors.Is(err, ErrNotFound) || (err == nil && !p.builtFor(server, w.nodeClaimUID, w.intent)) {
		return nil, nil
	}
	return server, err
}

// abandon reports the outcome as unknown once the create request is older than the visibility window.
func (p *poller) abandon(w *waiter) {
	if w.allowUnknown && p.clock.Since(w.intent.RequestedAt) > p.settings.Load().VisibilityWindow {
		p.deliver(w, result{})
	}
}

// choose picks the oldest of the servers of one create request, always the same: a gateway that repeats the request can
// create two. Garbage collection deletes the others.
func choose(servers []*Instance) *Instance {
	if len(servers) == 0 {
		return nil
	}
	return slices.MinFunc(servers, func(a, b *Instance) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}
