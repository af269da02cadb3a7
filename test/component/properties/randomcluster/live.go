// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const (
	// build and boot are how long a server takes to become ACTIVE and then to join, drain how long an evicted pod takes to end.
	build, boot, drain = 30 * time.Second, 45 * time.Second, 10 * time.Second
	// longest is how long a cluster may take to settle.
	longest = 12 * time.Hour
)

// Bill is what a run costs, and what it does to the pods.
type Bill struct {
	// VND is the whole bill, VNDPerHour what exists at the end costs, VNDByHours the whole bill if each started hour of a server or disk
	// were charged in full. All are the sandbox's.
	VND        float64 `json:"vnd"`
	VNDPerHour float64 `json:"vnd_per_hour"`
	VNDByHours float64 `json:"vnd_by_hours"`
	// Launches counts servers, Evictions pods that had to move, Waited sums the seconds that pods waited for a node.
	Launches  int     `json:"launches"`
	Evictions int     `json:"evictions"`
	Waited    float64 `json:"waited_seconds"`
	// Lives are how long the servers lived that are gone, in the order of their launches.
	Lives []time.Duration `json:"-"`
	// Unserved counts pods that never had a node, Flavors the servers of the end by flavor.
	Unserved int            `json:"unserved"`
	Flavors  map[string]int `json:"flavors"`
}

// scaler makes and removes nodes: Karpenter, or a pool with a cluster-autoscaler.
type scaler interface {
	// pending, bound and gone report what has happened to a pod; the machine is nil where it had none.
	pending(ctx context.Context, p *pod)
	bound(ctx context.Context, p *pod)
	gone(ctx context.Context, p *pod, from *machine)
	// wanted reports that pods wait.
	wanted()
	// observe finds what another program has created.
	observe(ctx context.Context)
}

// Live is a cluster in which time passes: pods come and go, a kube-scheduler binds them, servers take their time to boot and are paid for
// meanwhile. It runs one event after the other, by a clock that nothing else moves.
type Live struct {
	*Simulation
	scaler   scaler
	start    time.Time
	agenda   agenda
	machines []*machine
	waiting  []*pod
	// changed is when a pod or a node came, moved or went.
	changed   time.Time
	evictions int
	waited    time.Duration
	launches  int
	unserved  int
	// guests counts the pods that another program runs.
	guests int
}

// pod is a pod of the workload, whose objects in the cluster follow one another when it is evicted.
type pod struct {
	bill.Pod
	evicted int
	since   time.Time
	on      *machine
	ran     bool
}

// object is the name of its present object.
func (p *pod) object() string { return fmt.Sprintf("%s-r%d", p.Name, p.evicted) }

// liveClock lets the cluster go on while core waits before it validates a disruption.
type liveClock struct {
	*clocktesting.FakeClock
	ctx  context.Context
	live *Live
}

// After implements clock.Clock.
func (c *liveClock) After(d time.Duration) <-chan time.Time {
	c.live.pass(c.ctx, c.Now().Add(d))
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

// newLive makes an empty cluster without anything that scales it.
func newLive(ctx context.Context) *Live {
	// Whole minutes, so that runs are alike.
	fake := clocktesting.NewFakeClock(time.Now().Truncate(time.Minute))
	l := &Live{Simulation: newSimulation(ctx, 1, cloud.Options{Clock: fake, Latency: build})}
	l.start, l.changed = fake.Now(), fake.Now()
	return l
}

func (l *Live) now() time.Time { return l.Environment.Clock.Now() }

// after plans an event.
func (l *Live) after(d time.Duration, do func(context.Context)) {
	l.agenda.add(l.now().Add(d), do)
}

// pass lets time pass until then.
func (l *Live) pass(ctx context.Context, until time.Time) {
	for {
		next := l.agenda.pop(until)
		if next == nil {
			break
		}
		// An event that core waited through is late.
		if next.at.After(l.now()) {
			l.Environment.Clock.SetTime(next.at)
		}
		next.do(ctx)
	}
	if until.After(l.now()) {
		l.Environment.Clock.SetTime(until)
	}
}

// RunDay lets the pods come and go, and returns the bill of 24 hours. At a time of the day a program may run; nil runs none.
func (l *Live) RunDay(ctx context.Context, pods []bill.Pod, at time.Duration, program func()) *Bill {
	l.plan(pods)
	if program != nil {
		l.pass(ctx, l.start.Add(at))
		program()
	}
	l.pass(ctx, l.start.Add(bill.Day))
	return l.bill(ctx)
}

// Elapse lets time pass in a cluster in which another program has created something.
func (l *Live) Elapse(ctx context.Context, d time.Duration) {
	l.scaler.observe(ctx)
	l.pass(ctx, l.now().Add(d))
}

// Settle lets all pods come at once and waits until nothing has changed for so long. It can be called again without pods.
func (l *Live) Settle(ctx context.Context, pods []bill.Pod, quiet time.Duration) *Bill {
	l.plan(pods)
	for l.now().Sub(l.changed) < quiet || l.guests > 0 {
		if l.now().Sub(l.start) > longest {
			panic(fmt.Errorf("nothing has settled after %s", longest))
		}
		l.pass(ctx, l.now().Add(time.Minute))
	}
	return l.bill(ctx)
}

func (l *Live) plan(pods []bill.Pod) {
	for _, wanted := range pods {
		p := &pod{Pod: wanted}
		l.after(p.Arrives, func(ctx context.Context) { l.arrive(ctx, p) })
		if p.Leaves > 0 {
			l.after(p.Leaves, func(ctx context.Context) { l.leave(ctx, p) })
		}
	}
}

func (l *Live) arrive(ctx context.Context, p *pod) {
	p.since, l.changed = l.now(), l.now()
	l.waiting = append(l.waiting, p)
	l.scaler.pending(ctx, p)
	// All that arrive at this moment are bound together.
	l.after(0, l.schedule)
}

func (l *Live) leave(ctx context.Context, p *pod) {
	from := p.on
	l.changed = l.now()
	if from == nil {
		l.missed(p)
		l.waited += l.now().Sub(p.since)
		l.waiting = slices.DeleteFunc(l.waiting, func(other *pod) bool { return other == p })
	} else {
		from.remove(p)
	}
	l.scaler.gone(ctx, p, from)
	l.schedule(ctx)
}

// missed counts a pod that goes without ever having had a node.
func (l *Live) missed(p *pod) {
	if !p.ran {
		l.unserved++
	}
}

// evict makes all pods of a machine wait for another, as their controllers replace them at once.
func (l *Live) evict(ctx context.Context, m *machine) {
	m.blocked, l.changed = true, l.now()
	for _, p := range slices.Clone(m.pods) {
		m.remove(p)
		l.scaler.gone(ctx, p, m)
		p.evicted++
		l.evictions++
		l.arrive(ctx, p)
	}
}

// schedule binds the pods that wait, in their order, and asks for nodes for the others.
func (l *Live) schedule(ctx context.Context) {
	var still []*pod
	for _, p := range l.waiting {
		m := choose(l.machines, p)
		if m == nil {
			still = append(still, p)
			continue
		}
		m.add(p)
		p.ran, l.changed = true, l.now()
		l.waited += l.now().Sub(p.since)
		l.scaler.bound(ctx, p)
	}
	if l.waiting = still; len(still) > 0 {
		l.scaler.wanted()
	}
}

// removeMachine forgets a machine whose server is gone.
func (l *Live) removeMachine(m *machine) {
	l.changed = l.now()
	l.machines = slices.DeleteFunc(l.machines, func(other *machine) bool { return other == m })
}

// bill reads the bill of the sandbox.
func (l *Live) bill(ctx context.Context) *Bill {
	read := cloud.Bill{}
	request := lo.Must(http.NewRequestWithContext(ctx, http.MethodGet, l.Sandbox.URL+"/_sandbox/bill", nil))
	response := lo.Must(http.DefaultClient.Do(request)) //nolint:bodyclose // it is closed below
	defer func() { _ = response.Body.Close() }()
	lo.Must0(json.NewDecoder(response.Body).Decode(&read))
	for _, p := range l.waiting {
		l.missed(p)
		l.waited += l.now().Sub(p.since)
	}
	b := &Bill{VND: read.VND, VNDPerHour: read.VNDPerHour, Launches: l.launches, Evictions: l.evictions, Waited: l.waited.Seconds(),
		Unserved: l.unserved, Flavors: map[string]int{}}
	// A server that is stopped or resized has several lines; nothing here does that.
	for _, line := range read.Lines {
		b.VNDByHours += line.VNDPerHour * math.Ceil(line.To.Sub(line.From).Hours())
		if line.Open && line.State != cloud.BilledDisk {
			b.Flavors[line.Flavor]++
		}
		if !line.Open && line.State != cloud.BilledDisk {
			b.Lives = append(b.Lives, line.To.Sub(line.From))
		}
	}
	return b
}
