// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// patience is how long a run may take to settle: it needs a fraction of it where nothing is wrong.
	patience = 6 * time.Minute
	// calmEvery is how many phases there are to one without faults of the cloud.
	calmEvery = 4
	// mostTries is how often an action is tried that each run must perform: a leader that was frozen or lost the API server is replaced meanwhile.
	mostTries = 12
)

// chaosRun is one run: the wanted state, its timeline, and the violated invariants.
type chaosRun struct {
	seed   uint64
	random *rand.Rand
	began  time.Time
	logged int64 // the size of the controllers' log before it

	created int // servers of the runs before it
	class   *v1alpha1.BizflyNodeClass
	pool    *karpv1.NodePool
	web     *appsv1.Deployment
	// wanted is how many pods there shall be.
	wanted int32
	// later is what happens in later phases, by their number.
	later map[int][]func()
	phase int
	// quiet is true once all faults have ended: the garbage collector must then delete every orphan.
	quiet atomic.Bool

	orphans map[string]orphan

	mu         sync.Mutex
	lines      []string
	violations []string
}

// now is the current run, nil between runs.
var now atomic.Pointer[chaosRun]

// event adds a line to the timeline.
func event(format string, args ...any) {
	if run := now.Load(); run != nil {
		line := fmt.Sprintf("%6.1fs  %s", time.Since(run.began).Seconds(), fmt.Sprintf(format, args...))
		run.mu.Lock()
		run.lines = append(run.lines, line)
		run.mu.Unlock()
		GinkgoWriter.Println(line)
	}
}

// violated records a violated invariant, once.
func violated(format string, args ...any) {
	run := now.Load()
	if run == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	run.mu.Lock()
	known := lo.Contains(run.violations, text)
	if !known {
		run.violations = append(run.violations, text)
	}
	run.mu.Unlock()
	if !known {
		event("VIOLATION: %s", text)
	}
}

func (run *chaosRun) violated() []string {
	run.mu.Lock()
	defer run.mu.Unlock()
	return append([]string(nil), run.violations...)
}

func newRun(seed uint64) *chaosRun {
	return &chaosRun{seed: seed, random: rand.New(rand.NewPCG(seed, 2)), began: time.Now(), later: map[int][]func(){}, orphans: map[string]orphan{},
		created: checker.Created()}
}

// execute runs it to its end.
func (run *chaosRun) execute() {
	GinkgoHelper()
	now.Store(run)
	DeferCleanup(func() { now.Store(nil) })
	run.logged = logSize()
	DeferCleanup(run.report)
	run.populate()
	stop := run.watch()
	DeferCleanup(stop)

	run.trouble()
	run.inject()
	for _, phase := range run.phasesAhead() {
		for _, do := range run.later[phase] {
			do()
		}
	}
	plenty()
	run.quiet.Store(true)
	event("all faults have ended: %d pods are wanted", run.wanted)
	run.eventually(run.unsettled)

	event("Deployment and NodePool are deleted")
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, run.web)) })
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, run.pool)) })
	run.wanted = 0
	run.eventually(run.left)
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, run.class)) })
	run.eventually(func() []string {
		err := env.Client().Get(ctx, types.NamespacedName{Name: run.class.Name}, run.class)
		return lo.Ternary(apierrors.IsNotFound(err), nil, []string{fmt.Sprintf("the NodeClass still exists (%v)", err)})
	})
	// Where no pass is counted, no orphan is ever found to outlive one.
	Eventually(func() int { _, ended, _ := passes(); return ended }).WithTimeout(time.Minute).Should(BeNumerically(">", 0), "passes of the garbage collector")
	stop()
	Expect(run.violated()).To(BeEmpty())
	Expect(panics(run.log())).To(BeEmpty())
	event("end")
	AddReportEntry(fmt.Sprintf("seed %d: %d servers were created in %.0f s", run.seed, checker.Created()-run.created, time.Since(run.began).Seconds()),
		ReportEntryVisibilityAlways)
}

// populate creates the workload and waits until some of it runs, since the actions need nodes.
func (run *chaosRun) populate() {
	GinkgoHelper()
	run.class, run.pool = nodeClass(run.seed), nodePool(run.seed)
	run.wanted = 3
	run.web = deployment(run.pool, run.wanted)
	Expect(env.Client().Create(ctx, run.class)).To(Succeed())
	Expect(env.Client().Create(ctx, run.pool)).To(Succeed())
	Expect(env.Client().Create(ctx, run.web)).To(Succeed())
	Eventually(func() int { return len(run.registered()) }).WithTimeout(patience).Should(BeNumerically(">=", 2))
	expectRealNodes()
	event("faults begin")
}

// trouble performs one action in each phase, while the cloud fails in changing ways.
func (run *chaosRun) trouble() {
	GinkgoHelper()
	actions := run.actions()
	order := run.random.Perm(len(faults))
	skipped := map[string]int{}
	for run.phase = 0; len(actions) > 0; run.phase++ {
		for _, do := range run.later[run.phase] {
			do()
		}
		delete(run.later, run.phase)
		if run.phase%calmEvery == calmEvery-1 {
			run.inject()
		} else {
			one := order[run.phase%len(faults)]
			other := (one + 1 + run.random.IntN(len(faults)-1)) % len(faults)
			run.inject(faults[one], faults[other])
		}
		action := actions[0]
		actions = actions[1:]
		if pause := time.Duration(1000+run.random.IntN(2000)) * time.Millisecond; !action.do() {
			// Nothing exists yet that it could disturb.
			switch skipped[action.name]++; {
			case skipped[action.name] < lo.Ternary(action.must, mostTries, 4):
				actions = append(actions, action)
			case action.must:
				violated("there was nothing to %s", action.name)
			default:
				event("there was nothing to %s", action.name)
			}
			run.rest(pause / 2)
		} else {
			run.rest(pause)
		}
		Expect(run.violated()).To(BeEmpty())
	}
}

// insist repeats a call until the API server has answered it.
func insist(do func() error) {
	GinkgoHelper()
	Eventually(do).WithTimeout(time.Minute).Should(Succeed())
}

// rest waits.
func (run *chaosRun) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// in schedules something some phases later.
func (run *chaosRun) in(phases int, do func()) {
	run.later[run.phase+phases] = append(run.later[run.phase+phases], do)
}

func (run *chaosRun) phasesAhead() []int {
	phases := lo.Keys(run.later)
	return lo.Filter(phases, func(p int, _ int) bool { return p >= run.phase })
}

// eventually waits until nothing is open any more, or an invariant is violated. Meanwhile it does what users would do.
func (run *chaosRun) eventually(unsettled func() []string) {
	GinkgoHelper()
	var last string
	Eventually(func(g Gomega) {
		if violations := run.violated(); len(violations) > 0 {
			StopTrying("an invariant was violated: " + strings.Join(violations, "; ")).Now()
		}
		run.mend()
		what := strings.Join(unsettled(), "; ")
		if what != last {
			last = what
			event("open: %s", lo.CoalesceOrEmpty(what, "nothing"))
		}
		g.Expect(what).To(BeEmpty())
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// report prints how to replay a run that failed and its timeline, and keeps the controllers' log.
func (run *chaosRun) report() {
	if !CurrentSpecReport().Failed() {
		return
	}
	text := fmt.Sprintf("replay it with: make %s SEED=%d RUNS=1\n", lo.Ternary(machines, "chaos-nodes", "chaos-processes"), run.seed)
	run.mu.Lock()
	text += strings.Join(append([]string{"timeline:"}, run.lines...), "\n  ")
	run.mu.Unlock()
	AddReportEntry(fmt.Sprintf("seed %d", run.seed), text)
	directory := os.Getenv("CHAOS_LOGS")
	if directory == "" {
		return
	}
	text += "\n" + consoles()
	for name, content := range map[string]string{"log": string(run.log()), "txt": text + "\n"} {
		file := filepath.Join(directory, fmt.Sprintf("processes-%d.%s", run.seed, name))
		if err := os.WriteFile(file, []byte(content), 0o600); err == nil {
			GinkgoWriter.Println("see " + file)
		}
	}
}

// log returns what the controllers logged in this run.
func (run *chaosRun) log() []byte {
	all, err := os.ReadFile(logPath())
	if err != nil {
		return nil
	}
	return all[min(run.logged, int64(len(all))):]
}

func logPath() string { return filepath.Join(env.Dir(), "logs", "controller.log") }

func logSize() int64 {
	info, err := os.Stat(logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}
