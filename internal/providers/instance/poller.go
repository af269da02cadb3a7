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
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

const (
	// roundTimeout bounds one look for all servers that were ordered.
	roundTimeout = time.Minute
	// taskReadsAtOnce is how many tasks are read side by side.
	taskReadsAtOnce = 4
	// faultRounds is how many rounds a server in ERROR waits for its task to say why, since the reason decides whether
	// the offering is taken out of sale.
	faultRounds = 3
)

// waiter is one order whose server is looked for.
type waiter struct {
	nodeClaimUID string
	intent       Intent
	// mayGiveUp allows the verdict that nobody will ever know.
	mayGiveUp bool
	found     chan finding

	// What follows belongs to the poller's goroutine.
	lastRead  time.Time
	errorSeen int
}

// finding is what became of an order: a server; a cause, with the server that is left if there is one; or neither,
// which means that it will never be known.
type finding struct {
	server *gobizfly.Server
	cause  error
}

// poller looks for the servers of all orders together: one list per round however many wait, then a bounded number of
// tasks. Its goroutine exists while somebody waits.
type poller struct {
	p *DefaultProvider

	mu      sync.Mutex
	waiters map[*waiter]struct{}
	running bool
	// left wakes the goroutine when somebody has stopped waiting, so that it ends with the last one.
	left chan struct{}
	// lastRound is when the last round began: a poller that starts anew keeps the pace.
	lastRound time.Time
}

func newPoller(p *DefaultProvider) *poller {
	return &poller{p: p, waiters: map[*waiter]struct{}{}, left: make(chan struct{}, 1)}
}

// wait returns what becomes of the order, or ErrAwaitingServerID when that is not known in time.
func (l *poller) wait(ctx context.Context, w *waiter) (finding, error) {
	w.found = make(chan finding, 1)
	timer := l.p.config.Clock.NewTimer(l.p.settings.Load().ServerIDWait)
	defer timer.Stop()
	l.join(w)
	defer l.leave(w)
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
		return finding{}, errors.Join(fmt.Errorf("%w: %s", ErrAwaitingServerID, w.intent.Name), ctx.Err())
	}
}

// deliver ends the wait of one order. Nobody may be there any more to take the finding; then the next call finds it.
func (l *poller) deliver(w *waiter, found finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, w)
	select {
	case w.found <- found:
	default:
	}
}

func (l *poller) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[w] = struct{}{}
	if !l.running {
		l.running = true
		go l.run()
	}
}

func (l *poller) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, w)
	select {
	case l.left <- struct{}{}:
	default:
	}
}

// run makes rounds until nobody waits any more.
func (l *poller) run() {
	for l.pause() {
		l.mu.Lock()
		waiters := lo.Keys(l.waiters)
		l.lastRound = l.p.config.Clock.Now()
		l.mu.Unlock()
		l.round(waiters)
	}
}

// pause waits until the next round is due, and says false, having signed off, when nobody waits for it.
func (l *poller) pause() bool {
	clk := l.p.config.Clock
	for {
		l.mu.Lock()
		if len(l.waiters) == 0 {
			l.running = false
			l.mu.Unlock()
			return false
		}
		due := l.p.settings.Load().ServerPollInterval - clk.Since(l.lastRound)
		l.mu.Unlock()
		if due <= 0 {
			return true
		}
		timer := clk.NewTimer(due)
		select {
		case <-timer.C():
		case <-l.left:
		}
		timer.Stop()
	}
}

// round looks once for the servers of all these orders. The list begins after each of them has joined.
func (l *poller) round(waiters []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), roundTimeout)
	defer cancel()
	servers, err := l.p.servers.get(ctx, 0)
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing servers to find those that were ordered", "error", err.Error())
		return
	}
	byName := lo.GroupBy(servers, func(server *gobizfly.Server) string { return server.Name })
	var open []*waiter
	broken := map[*waiter]*gobizfly.Server{}
	for _, w := range waiters {
		candidates := lo.Filter(byName[w.intent.Name], func(server *gobizfly.Server, _ int) bool {
			return l.p.builtFor(server, w.nodeClaimUID, w.intent)
		})
		if good := choose(lo.Reject(candidates, func(s *gobizfly.Server, _ int) bool { return s.Status == StatusError || leaving(s) })); good != nil {
			l.deliver(w, finding{server: good})
			continue
		}
		if bad := choose(lo.Reject(candidates, func(s *gobizfly.Server, _ int) bool { return gone(s) })); bad != nil {
			broken[w] = bad
			w.errorSeen++
		}
		open = append(open, w)
	}
	l.readTasks(ctx, open, broken)
}

// readTasks reads the tasks of as many orders as one round may, longest unread first, and judges these orders and
// those that have no task.
func (l *poller) readTasks(ctx context.Context, open []*waiter, broken map[*waiter]*gobizfly.Server) {
	readable, taskless := lo.FilterReject(open, func(w *waiter, _ int) bool { return w.intent.TaskID != "" })
	for _, w := range taskless {
		l.judge(ctx, w, nil, nil, broken[w])
	}
	slices.SortStableFunc(readable, func(a, b *waiter) int {
		return cmp.Or(a.lastRead.Compare(b.lastRead), a.intent.OrderedAt.Compare(b.intent.OrderedAt))
	})
	group := errgroup.Group{}
	group.SetLimit(taskReadsAtOnce)
	for _, w := range lo.Slice(readable, 0, l.p.config.TaskReadsPerPoll) {
		w.lastRead = l.p.config.Clock.Now()
		group.Go(func() error {
			task, err := l.p.api.GetTask(ctx, w.intent.TaskID)
			l.judge(ctx, w, task, err, broken[w])
			return nil
		})
	}
	_ = group.Wait() // No read returns an error: one that failed leaves its order open.
}

// judge decides about one order that the list shows no good server for. broken is one in ERROR or on its way out.
func (l *poller) judge(ctx context.Context, w *waiter, task *bizfly.Task, err error, broken *gobizfly.Server) {
	hasTask := w.intent.TaskID != ""
	unknowable := !hasTask || bizfly.IsNotFound(err)
	ended := hasTask && err == nil && task.Ready
	switch {
	case ended && task.Failure() != nil:
		if broken == nil {
			// When this cannot be read, the server's metadata still tells garbage collection.
			broken, _ = l.verified(ctx, w, task.Server)
		}
		l.deliver(w, finding{cause: task.Failure(), server: broken})
	case broken != nil:
		if unknowable || ended || w.errorSeen >= faultRounds {
			l.deliver(w, finding{cause: unexplained(w.intent, "status "+broken.Status), server: broken})
		}
	case ended && task.Server != nil:
		l.follow(ctx, w, task.Server)
	case unknowable || ended:
		l.giveUp(w)
	}
}

// follow decides by the server that a task claims to have built. The list may lag behind the task, and the task behind a
// deletion: only the server itself counts.
func (l *poller) follow(ctx context.Context, w *waiter, named *gobizfly.Server) {
	server, err := l.verified(ctx, w, named)
	switch {
	case err != nil:
	case server == nil:
		l.giveUp(w)
	case server.Status == StatusError || leaving(server):
		l.deliver(w, finding{cause: unexplained(w.intent, "status "+server.Status+" after its task had succeeded"), server: server})
	default:
		l.deliver(w, finding{server: server})
	}
}

// verified returns the server that a task names when it is the one that was ordered, and nil when that does not exist.
func (l *poller) verified(ctx context.Context, w *waiter, named *gobizfly.Server) (*gobizfly.Server, error) {
	if named == nil || named.ID == "" {
		return nil, nil
	}
	server, err := l.p.api.GetServer(ctx, named.ID)
	if bizfly.IsNotFound(err) || (err == nil && !l.p.builtFor(server, w.nodeClaimUID, w.intent)) {
		return nil, nil
	}
	return server, err
}

// giveUp pronounces, once the order is older than the window, that its outcome will never be known.
func (l *poller) giveUp(w *waiter) {
	if w.mayGiveUp && l.p.config.Clock.Since(w.intent.OrderedAt) > l.p.settings.Load().VisibilityWindow {
		l.deliver(w, finding{})
	}
}

// choose picks, of the servers of one order, which a gateway that repeated it can have made two of, always the same:
// the oldest. Garbage collection takes the others.
func choose(servers []*gobizfly.Server) *gobizfly.Server {
	if len(servers) == 0 {
		return nil
	}
	return slices.MinFunc(servers, func(a, b *gobizfly.Server) int {
		return cmp.Or(created(a).Compare(created(b)), cmp.Compare(a.ID, b.ID))
	})
}
