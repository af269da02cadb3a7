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
)

// faultsRun is one run: the wanted state, its timeline, and the violated invariants.
type faultsRun struct {
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

	mu         sync.Mutex
	lines      []string
	violations []string
}

// now is the current run, nil between runs.
var now atomic.Pointer[faultsRun]

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

func (run *faultsRun) violated() []string {
	run.mu.Lock()
	defer run.mu.Unlock()
	return append([]string(nil), run.violations...)
}

func newRun(seed uint64) *faultsRun {
	return &faultsRun{seed: seed, random: rand.New(rand.NewPCG(seed, 2)), began: time.Now(), created: checker.Created()}
}

// execute runs it to its end.
func (run *faultsRun) execute() {
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
	stop()
	Expect(run.violated()).To(BeEmpty())
	Expect(panics(run.log())).To(BeEmpty())
	event("end")
	AddReportEntry(fmt.Sprintf("seed %d: %d servers were created in %.0f s", run.seed, checker.Created()-run.created, time.Since(run.began).Seconds()),
		ReportEntryVisibilityAlways)
}

// populate creates the workload and waits until some of it runs, since the actions need nodes.
func (run *faultsRun) populate() {
	GinkgoHelper()
	run.class, run.pool = nodeClass(run.seed), nodePool(run.seed)
	run.wanted = 3
	run.web = deployment(run.pool, run.wanted)
	Expect(env.Client().Create(ctx, run.class)).To(Succeed())
	Expect(env.Client().Create(ctx, run.pool)).To(Succeed())
	Expect(env.Client().Create(ctx, run.web)).To(Succeed())
	Eventually(func(g Gomega) {
		seen, err := observe()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(seen.Nodes).NotTo(BeEmpty())
	}).WithTimeout(patience).Should(Succeed())
	event("faults begin")
}

// trouble disturbs the processes, while the cloud fails in changing ways.
func (run *faultsRun) trouble() {
	GinkgoHelper()
	for n, disturb := range run.disturbances() {
		if n%(len(faults)+1) == len(faults) {
			run.inject()
		} else {
			run.inject(faults[n%(len(faults)+1)])
		}
		disturb()
		run.rest(time.Duration(1000+run.random.IntN(2000)) * time.Millisecond)
		Expect(run.violated()).To(BeEmpty())
	}
}

// insist repeats a call until the API server has answered it.
func insist(do func() error) {
	GinkgoHelper()
	Eventually(do).WithTimeout(time.Minute).Should(Succeed())
}

// rest waits.
func (run *faultsRun) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// eventually waits until nothing is open any more, or an invariant is violated. Meanwhile it does what users would do.
func (run *faultsRun) eventually(unsettled func() []string) {
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
func (run *faultsRun) report() {
	if !CurrentSpecReport().Failed() {
		return
	}
	text := fmt.Sprintf("replay it with: make e2e SUITE=%s SEED=%d RUNS=1\n", lo.Ternary(machines, "nodes-faults", "faults"), run.seed)
	run.mu.Lock()
	text += strings.Join(append([]string{"timeline:"}, run.lines...), "\n  ")
	run.mu.Unlock()
	AddReportEntry(fmt.Sprintf("seed %d", run.seed), text)
	directory := os.Getenv("CHAOS_LOGS")
	if directory == "" {
		return
	}
	for name, content := range map[string]string{"log": string(run.log()), "txt": text + "\n"} {
		file := filepath.Join(directory, fmt.Sprintf("processes-%d.%s", run.seed, name))
		if err := os.WriteFile(file, []byte(content), 0o600); err == nil {
			GinkgoWriter.Println("see " + file)
		}
	}
}

// log returns what the controllers logged in this run.
func (run *faultsRun) log() []byte {
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
