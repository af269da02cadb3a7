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

package chaos_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

// excuse is how long after the API server was away, or a replica stood still, a replica may end because of it.
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
	// crashes counts how often it has ended by itself since one of us has started it.
	crashes int
	frozen  bool
	ended   bool
}

// start starts the replica; when it ends by itself, it is started again after a second, later after five.
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
	running, err := env.StartReplica(ctx, nil, func(how error) { r.diedByItself(generation, how) })
	if err != nil {
		broken("replica %s cannot be started: %s", r.name, err)
		return
	}
	r.running, r.frozen = running, false
}

func (r *replica) diedByItself(generation int, how error) {
	said := how.Error()
	happened("replica %s ends by itself: %.120s", r.name, strings.SplitN(said, ";", 2)[0])
	if time.Now().UnixNano() > excusedUntil.Load() {
		broken("replica %s ended without an excuse: %s", r.name, said)
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

// thaw lets the replica go on, if it still stands still: it finishes what it was doing, and learns that another leads.
func (r *replica) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		excused()
		Expect(r.running.Thaw()).To(Succeed())
		r.frozen = false
	}
}

func (r *replica) standsStill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frozen
}

// end ends the replica for good.
func (r *replica) end() {
	r.mu.Lock()
	r.ended = true
	running := r.running
	r.mu.Unlock()
	if running != nil {
		_ = running.Kill()
	}
}

// leader is the replica that says to lead, nil while none does.
func leader() *replica {
	for _, r := range replicas {
		if !r.standsStill() && strings.Contains(r.metrics(), "leader_election_master_status{name=\"karpenter-leader-election\"} 1\n") {
			return r
		}
	}
	return nil
}

// metrics is the page of the replica, empty while it does not answer.
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

var collections = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="nodeclaim\.garbagecollection\.bizflycloud",result="(?:success|requeue|requeue_after)"\} (\S+)$`)

// passes is which process leads, and how many passes of the garbage collector have succeeded in it.
func passes() (process string, count int) {
	lead := leader()
	if lead == nil {
		return "", 0
	}
	for _, match := range collections.FindAllStringSubmatch(lead.metrics(), -1) {
		value, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return "", 0
		}
		count += int(value)
	}
	return fmt.Sprintf("%s %p", lead.name, lead.current()), count
}

// expected are the panics by which core ends a process that cannot go on: without the lease, or started without an API server.
var expected = regexp.MustCompile(`^panic: (leader election lost|failed to setup manager: .*connect(ion refused|: ))`)

// panics are the crashes that a log tells of.
func panics(log []byte) []string {
	return lo.FilterMap(strings.Split(string(log), "\n"), func(line string, _ int) (string, bool) {
		crash := strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		return line, crash && !expected.MatchString(line)
	})
}
