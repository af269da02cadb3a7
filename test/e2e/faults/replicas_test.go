// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// excuse is how long after the API server was stopped, or a replica was frozen, a replica may end because of it.
const excuse = time.Minute

// excusedUntil is when a replica that ends by itself has no excuse any more, in Unix nanoseconds.
var excusedUntil atomic.Int64

func excused() { excusedUntil.Store(time.Now().Add(excuse).UnixNano()) }

// replica is one of the controllers, kept alive as a kubelet keeps it.
type replica struct {
	name string

	mu      sync.Mutex
	running *environment.Controller
	// generation counts the processes, so that the end of one that was replaced meanwhile starts nothing.
	generation int
	// crashes counts how often it has exited since the run has started it.
	crashes int
	frozen  bool
	ended   bool
}

// start starts the replica; when it exits, it is started again after a second, later after five.
func (r *replica) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashes = 0
	r.startLocked()
}

func (r *replica) startLocked() {
	if r.ended {
		return
	}
	r.generation++
	generation := r.generation
	running, err := env.StartReplica(ctx, nil, func(how error) { r.exited(generation, how) })
	if err != nil {
		violated("replica %s cannot be started: %s", r.name, err)
		return
	}
	r.running, r.frozen = running, false
}

func (r *replica) exited(generation int, how error) {
	said := how.Error()
	event("replica %s exits: %.120s", r.name, strings.SplitN(said, ";", 2)[0])
	// A busy machine may keep a leader from its lease for as long as that lasts.
	if time.Now().UnixNano() > excusedUntil.Load() && !strings.Contains(said, "leader election lost") {
		violated("replica %s exited without a reason: %s", r.name, said)
	}
	r.mu.Lock()
	r.crashes++
	pause := time.Duration(min(r.crashes, 5)) * time.Second
	r.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	<-timer.C
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation == generation {
		r.startLocked()
	}
}

// kill kills the replica, as a crash of its machine would, and starts another in its place.
func (r *replica) kill() {
	Expect(r.current().Kill()).To(Succeed())
	r.start()
}

// upgrade ends the replica as a rollout does, and starts another in its place.
func (r *replica) upgrade() {
	Expect(r.current().Stop()).To(Succeed())
	r.start()
}

func (r *replica) current() *environment.Controller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

func (r *replica) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	Expect(r.running.Freeze()).To(Succeed())
	r.frozen = true
}

// thaw lets a frozen replica continue: it finishes what it was doing, and learns that another leads.
func (r *replica) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		excused()
		Expect(r.running.Thaw()).To(Succeed())
		r.frozen = false
	}
}

func (r *replica) isFrozen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frozen
}

// end kills the replica and does not start it again.
func (r *replica) end() {
	r.mu.Lock()
	r.ended = true
	running := r.running
	r.mu.Unlock()
	if running != nil {
		_ = running.Kill()
	}
}

// leader returns the replica whose metrics report that it leads, nil while none does.
func leader() *replica {
	for _, r := range replicas {
		if !r.isFrozen() && leads.MatchString(r.metrics()) {
			return r
		}
	}
	return nil
}

// metrics returns the metrics page of the replica, empty while it does not respond.
func (r *replica) metrics() string {
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(asking, http.MethodGet, r.current().MetricsURL(), http.NoBody)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return ""
	}
	return string(page)
}

var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{[^}]*\} 1$`)

// expected are the panics by which core ends a process without the lease, or without an API server at its start.
var expected = regexp.MustCompile(`^panic: (leader election lost|failed to setup manager: .*connect(ion refused|: ))`)

// panics returns the crashes in a log.
func panics(log []byte) []string {
	return lo.FilterMap(strings.Split(string(log), "\n"), func(line string, _ int) (string, bool) {
		crash := strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		return line, crash && !expected.MatchString(line)
	})
}
