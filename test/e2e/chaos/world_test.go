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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// patience is how long everything may take to come to rest: a run takes a fraction of it where nothing is wrong.
	patience = 6 * time.Minute
	// calmEvery is how many phases there are to one in which the cloud is well.
	calmEvery = 4
)

// world is one run: what is wanted, what has happened, and which promises were broken.
type world struct {
	seed   uint64
	random *rand.Rand
	began  time.Time
	logged int64 // how long the controllers' log was

	class *v1alpha1.BizflyNodeClass
	pool  *karpv1.NodePool
	web   *appsv1.Deployment
	// wanted is how many pods there shall be.
	wanted int32
	// later is what happens in phases to come, by their number.
	later map[int][]func()
	phase int
	// quiet is true once nothing goes wrong any more: the garbage collector may then leave nothing alone.
	quiet atomic.Bool

	observer observer

	mu         sync.Mutex
	lines      []string
	violations []string
}

// now is the run that is under way, nil between runs.
var now atomic.Pointer[world]

// happened notes what happens.
func happened(format string, args ...any) {
	if w := now.Load(); w != nil {
		line := fmt.Sprintf("%6.1fs  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
		w.mu.Lock()
		w.lines = append(w.lines, line)
		w.mu.Unlock()
		GinkgoWriter.Println(line)
	}
}

// broken notes that a promise was broken, once.
func broken(format string, args ...any) {
	w := now.Load()
	if w == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	known := lo.Contains(w.violations, text)
	if !known {
		w.violations = append(w.violations, text)
	}
	w.mu.Unlock()
	if !known {
		happened("BROKEN: %s", text)
	}
}

func (w *world) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.violations...)
}

func newWorld(seed uint64) *world {
	return &world{seed: seed, random: rand.New(rand.NewPCG(seed, 2)), began: time.Now(), later: map[int][]func(){}, observer: newObserver()}
}

// run lives through the world.
func (w *world) run() {
	GinkgoHelper()
	now.Store(w)
	DeferCleanup(func() { now.Store(nil) })
	w.logged = logSize()
	DeferCleanup(w.report)
	w.populate()
	stop := w.observe()
	DeferCleanup(stop)

	w.trouble()
	w.blow()
	for _, phase := range w.phasesAhead() {
		for _, do := range w.later[phase] {
			do()
		}
	}
	plenty()
	w.quiet.Store(true)
	happened("calm: %d pods are wanted", w.wanted)
	w.eventually(w.unsettled)

	happened("all have gone")
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, w.web)) })
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, w.pool)) })
	w.wanted = 0
	w.eventually(w.left)
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, w.class)) })
	w.eventually(func() []string {
		err := env.Client().Get(ctx, types.NamespacedName{Name: w.class.Name}, w.class)
		return lo.Ternary(err == nil, []string{"the NodeClass is still there"}, nil)
	})
	stop()
	Expect(panics(w.log())).To(BeEmpty())
	happened("over")
	AddReportEntry(fmt.Sprintf("seed %d: %d servers were built in %.0f s", w.seed, w.observer.count(), time.Since(w.began).Seconds()), ReportEntryVisibilityAlways)
}

// populate makes the workload, and waits until some of it runs: the rest of the story needs somebody to happen to.
func (w *world) populate() {
	GinkgoHelper()
	w.class, w.pool = nodeClass(w.seed), nodePool(w.seed)
	w.wanted = 3
	w.web = deployment(w.pool, w.wanted)
	Expect(env.Client().Create(ctx, w.class)).To(Succeed())
	Expect(env.Client().Create(ctx, w.pool)).To(Succeed())
	Expect(env.Client().Create(ctx, w.web)).To(Succeed())
	Eventually(func() int { return len(w.registered()) }).WithTimeout(patience).Should(BeNumerically(">=", 2))
	happened("trouble")
}

// trouble deals the deck: something happens in every phase, and the cloud fails in changing ways meanwhile.
func (w *world) trouble() {
	GinkgoHelper()
	deck := w.deck()
	blowing := w.random.Perm(len(storms))
	refused := map[string]int{}
	for w.phase = 0; len(deck) > 0; w.phase++ {
		for _, do := range w.later[w.phase] {
			do()
		}
		delete(w.later, w.phase)
		if w.phase%calmEvery == calmEvery-1 {
			w.blow()
		} else {
			one := blowing[w.phase%len(storms)]
			other := (one + 1 + w.random.IntN(len(storms)-1)) % len(storms)
			w.blow(storms[one], storms[other])
		}
		card := deck[0]
		deck = deck[1:]
		if pause := time.Duration(1000+w.random.IntN(2000)) * time.Millisecond; !card.do() {
			// There is nobody that it could happen to yet.
			if refused[card.name]++; refused[card.name] < 4 {
				deck = append(deck, card)
			} else {
				happened("nobody was there to %s", card.name)
			}
			w.rest(pause / 2)
		} else {
			w.rest(pause)
		}
		Expect(w.broken()).To(BeEmpty())
	}
}

// insist repeats what the API server may not have answered.
func insist(do func() error) {
	GinkgoHelper()
	Eventually(do).WithTimeout(time.Minute).Should(Succeed())
}

// rest lets time pass.
func (w *world) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// in lets something happen some phases later.
func (w *world) in(phases int, do func()) {
	w.later[w.phase+phases] = append(w.later[w.phase+phases], do)
}

func (w *world) phasesAhead() []int {
	phases := lo.Keys(w.later)
	return lo.Filter(phases, func(p int, _ int) bool { return p >= w.phase })
}

// eventually waits until nothing is open any more, or a promise is broken. It plays the people who read conditions.
func (w *world) eventually(open func() []string) {
	GinkgoHelper()
	var last string
	Eventually(func(g Gomega) {
		if violations := w.broken(); len(violations) > 0 {
			StopTrying("a promise was broken: " + strings.Join(violations, "; ")).Now()
		}
		w.mend()
		what := strings.Join(open(), "; ")
		if what != last {
			last = what
			happened("open: %s", lo.CoalesceOrEmpty(what, "nothing"))
		}
		g.Expect(what).To(BeEmpty())
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// report tells, of a run that failed, how to see it again and what happened in it, and keeps the controllers' log.
func (w *world) report() {
	if !CurrentSpecReport().Failed() {
		return
	}
	text := fmt.Sprintf("replay it with: make chaos-processes SEED=%d RUNS=1\n", w.seed)
	w.mu.Lock()
	text += strings.Join(append([]string{"what happened:"}, w.lines...), "\n  ")
	w.mu.Unlock()
	AddReportEntry(fmt.Sprintf("seed %d", w.seed), text)
	directory := os.Getenv("CHAOS_LOGS")
	if directory == "" {
		return
	}
	for name, content := range map[string]string{"log": string(w.log()), "txt": text + "\n"} {
		file := filepath.Join(directory, fmt.Sprintf("processes-%d.%s", w.seed, name))
		if err := os.WriteFile(file, []byte(content), 0o600); err == nil {
			GinkgoWriter.Println("see " + file)
		}
	}
}

// log is what the controllers have written in this run.
func (w *world) log() []byte {
	all, err := os.ReadFile(logPath())
	if err != nil {
		return nil
	}
	return all[min(w.logged, int64(len(all))):]
}

func logPath() string { return filepath.Join(env.Dir(), "logs", "controller.log") }

func logSize() int64 {
	info, err := os.Stat(logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}
