// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs Karpenter core's own end-to-end suites against this provider: on a real control plane with KWOK and
// the sandbox of BizFly Cloud, several of them side by side. `make core-e2e` compiles the suites and starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/samber/lo"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
	// grace is what a suite that is past its time has to clean up.
	grace = 3 * time.Minute
	// mostRepeated is how many failed specs are run once more: where more fail, something is broken.
	mostRepeated = 5
)

// result is what became of a spec.
type result struct {
	spec
	outcome string
	took    time.Duration
	// message is why it failed, or how it passed after it had failed.
	message string
}

type runner struct {
	suites, reports, files string
	scheduler, thresholds  []byte
	parallel               int
	specTimeout            time.Duration

	mu      sync.Mutex
	queue   []spec
	results []result
	left    truth
	seed    int64
	// total is how many specs are to be run, done how many were.
	total, done int
}

func main() {
	log.SetLogger(klog.Logger{}) // or controller-runtime warns that no logger was set
	code, err := start()
	if err != nil {
		fmt.Println("FAILED:", err)
	}
	os.Exit(code)
}

// start reads the flags and runs until everything is done, interrupted or out of time.
func start() (int, error) {
	r := &runner{}
	var timeout time.Duration
	var only, focus, scheduler string
	var sample int
	flag.StringVar(&r.suites, "suites", ".cache/conformance", "where the compiled suites are, such as regression.test")
	flag.StringVar(&r.reports, "reports", ".cache/reports/conformance", "where reports, outputs and the logs of failed specs go")
	flag.StringVar(&r.files, "files", "test/e2e/core", "where the NodeClass, the NodePools and the thresholds are")
	flag.StringVar(&scheduler, "scheduler-config", "", "core's KubeSchedulerConfiguration, which its specs on default topology spread expect")
	flag.IntVar(&r.parallel, "parallel", max(2, runtime.NumCPU()*3/2), "how many control planes run side by side")
	flag.DurationVar(&r.specTimeout, "spec-timeout", 40*time.Minute, "how long one spec may take")
	flag.DurationVar(&timeout, "timeout", 100*time.Minute, "how long everything may take")
	flag.StringVar(&only, "only", strings.Join(suiteNames, ","), "run only these suites")
	flag.StringVar(&focus, "focus", "", "run only the specs whose text matches this regular expression")
	flag.IntVar(&sample, "sample", 0, "run so many of these specs, drawn at random; 0 is all")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %s", timeout))
	defer cancel()
	return r.run(ctx, strings.Split(only, ","), focus, scheduler, sample)
}

// readThresholds returns the thresholds of core's performance suite as it reads them: JSON.
func readThresholds(file string) ([]byte, error) {
	content, err := os.ReadFile(file) //nolint:gosec // the caller's own file
	if err != nil {
		return nil, fmt.Errorf("reading the thresholds of the performance suite: %w", err)
	}
	return yaml.YAMLToJSON(content)
}

func (r *runner) run(ctx context.Context, only []string, focus, scheduler string, sample int) (int, error) {
	for _, path := range []*string{&r.suites, &r.reports, &r.files} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return 1, fmt.Errorf("finding %s: %w", *path, err)
		}
		*path = absolute
	}
	if err := os.RemoveAll(r.reports); err != nil {
		return 1, fmt.Errorf("removing the last reports: %w", err)
	}
	if err := os.MkdirAll(r.reports, 0o750); err != nil {
		return 1, fmt.Errorf("making the folder of reports: %w", err)
	}
	var err error
	if r.scheduler, err = os.ReadFile(scheduler); err != nil { //nolint:gosec // the caller's own file
		return 1, fmt.Errorf("reading core's configuration of kube-scheduler: %w", err)
	}
	if r.thresholds, err = readThresholds(filepath.Join(r.files, "thresholds.yaml")); err != nil {
		return 1, err
	}
	if unknown, _ := lo.Difference(only, suiteNames); len(unknown) > 0 {
		return 1, fmt.Errorf("--only names %q, which are no suites; there are %q", unknown, suiteNames)
	}
	specs, err := listSpecs(ctx, r.suites, r.reports)
	if err != nil {
		return 1, err
	}
	wanted, err := regexp.Compile(focus)
	if err != nil {
		return 1, fmt.Errorf("reading --focus: %w", err)
	}
	specs = slices.DeleteFunc(specs, func(s spec) bool { return !slices.Contains(only, s.suite) || !wanted.MatchString(s.text()) })
	if len(specs) == 0 {
		return 1, fmt.Errorf("--focus %q matches no spec of core's suites %q", focus, only)
	}
	if sample > 0 {
		specs = drawn(specs, sample)
	}
	for _, s := range specs {
		if s.skip != "" {
			r.results = append(r.results, result{spec: s, outcome: skipped})
		} else {
			r.queue = append(r.queue, s)
		}
	}
	slices.SortStableFunc(r.queue, func(a, b spec) int { return a.rank() - b.rank() })
	r.total = len(r.queue)
	start := time.Now()
	alone, together := lo.FilterReject(r.queue, func(s spec, _ int) bool { return s.suite == performance })
	r.workOn(ctx, together, r.parallel, lease)
	r.repeat(ctx)
	r.workOn(ctx, alone, 1, longLease)
	return r.conclude(ctx, specs, time.Since(start))
}

// workOn runs specs in that many clusters, and returns when all were run.
func (r *runner) workOn(ctx context.Context, queue []spec, parallel int, nodeLease time.Duration) {
	r.queue = queue
	var workers sync.WaitGroup
	for range min(parallel, len(queue)) {
		workers.Go(func() { r.work(ctx, nodeLease) })
	}
	workers.Wait()
}

// repeat runs the few specs that have failed once more, one at a time. On a busy machine core's own steps race with its controllers: an update
// takes away a label that was written between the read and it, and the spec waits for a node that core then never takes for initialized.
func (r *runner) repeat(ctx context.Context) {
	failures, others := lo.FilterReject(r.results, func(res result, _ int) bool { return res.outcome == failed })
	if len(failures) > mostRepeated {
		return
	}
	r.results = others
	r.total += len(failures)
	r.workOn(ctx, lo.Map(failures, func(res result, _ int) spec { return res.spec }), 1, lease)
	for i, first := range failures {
		if again := &r.results[len(others)+i]; again.outcome == passed {
			again.message = "the second time, alone; the first time: " + firstLine(first.message)
		}
	}
}

// work takes specs from the queue until it is empty, in one cluster as long as it is as good as new.
func (r *runner) work(ctx context.Context, nodeLease time.Duration) {
	var c *cluster
	stop := func(logs string) {
		if c == nil {
			return
		}
		if err := c.stop(logs); err != nil {
			fmt.Println("stopping a control plane:", err)
		}
		c = nil
	}
	defer func() { stop("") }()
	for {
		s, seed, ok := r.next()
		if !ok {
			return
		}
		dir := filepath.Join(r.reports, fmt.Sprintf("%03d", seed))
		res := result{spec: s, outcome: failed}
		var err error
		if ctx.Err() != nil {
			res.message = context.Cause(ctx).Error()
		} else if c == nil {
			if c, err = startCluster(ctx, r.scheduler, seed, nodeLease); err != nil {
				res.message = "starting a control plane: " + err.Error()
			}
		}
		if c != nil && ctx.Err() == nil {
			res = r.runSpec(ctx, c, s, dir)
		}
		r.finish(res, dir)
		if res.outcome == failed {
			stop(filepath.Join(dir, "logs"))
		}
	}
}

func (r *runner) next() (spec, int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return spec{}, 0, false
	}
	s := r.queue[0]
	r.queue = r.queue[1:]
	r.seed++
	return s, r.seed, true
}

func (r *runner) finish(res result, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	r.done++
	fmt.Printf("[%3d/%d] %s %6s  %s: %s\n", r.done, r.total, res.outcome, res.took.Round(time.Second), res.suite, res.text())
	if res.message != "" {
		// What Gomega says about a list of objects is as long as the objects.
		lines := strings.Split(strings.TrimSpace(res.message), "\n")
		fmt.Printf("          %s\n          see %s\n", strings.Join(lines[:min(len(lines), 8)], "\n          "), dir)
	}
}

// runSpec runs one spec in a process of its own, and asks the cloud afterwards whether anything is left.
func (r *runner) runSpec(ctx context.Context, c *cluster, s spec, dir string) result {
	start := time.Now()
	res := result{spec: s, outcome: failed}
	err := r.execute(ctx, c, s, dir)
	res.took = time.Since(start)
	res.outcome, res.message = classify(s, filepath.Join(dir, "report.json"), err)
	left, truthErr := c.truth(ctx)
	r.mu.Lock()
	r.left = r.left.add(left.after(res.outcome))
	r.mu.Unlock()
	failure := c.failure()
	switch {
	case failure != nil:
		res.outcome, res.message = failed, failure.Error()
	case truthErr != nil:
		res.outcome, res.message = failed, truthErr.Error()
	case left != truth{} && res.outcome == passed:
		res.outcome, res.message = failed, "the cloud is not empty afterwards: "+left.String()
	}
	return res
}

func (r *runner) execute(ctx context.Context, c *cluster, s spec, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	output, err := os.Create(filepath.Join(dir, "output.log")) //nolint:gosec // a file of ours
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	defer func() { _ = output.Close() }()
	ctx, cancel := context.WithTimeout(ctx, r.specTimeout+2*grace)
	defer cancel()
	// A suite is killed when it hangs, when its cluster is gone, and when everything takes too long.
	defer context.AfterFunc(c.env.Context(), cancel)()
	cmd := exec.CommandContext(ctx, filepath.Join(r.suites, s.suite+".test"), //nolint:gosec // compiled by make core-e2e
		"--ginkgo.focus=^"+regexp.QuoteMeta(s.description+" "+s.text())+"$", "--ginkgo.v", "--ginkgo.no-color",
		"--ginkgo.json-report="+filepath.Join(dir, "report.json"), "--ginkgo.timeout="+r.specTimeout.String(), "--ginkgo.grace-period="+grace.String(),
		"--ginkgo.poll-progress-after=5m", "--ginkgo.poll-progress-interval=5m", "--test.timeout=0",
		"--default-nodeclass="+filepath.Join(r.files, "nodeclass.yaml"), "--default-nodepool="+filepath.Join(r.files, s.nodePool()),
		"--repair-condition=ReadonlyFilesystem=True", "--reboot-condition=KernelDeadlock=True")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.Env = []string{"KUBECONFIG=" + c.env.Kubeconfig(), "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "OUTPUT_DIR=" + dir,
		"KARPENTER_PERF_THRESHOLDS=" + string(r.thresholds)}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	return cmd.Run()
}

// classify returns the outcome of the one spec that was run, from the report of its suite.
func classify(s spec, file string, runErr error) (outcome, message string) {
	report, err := readReport(file)
	if err != nil {
		return failed, fmt.Sprintf("the suite did not report (%v): %v", runErr, err)
	}
	for _, r := range report.SpecReports {
		switch {
		case r.LeafNodeType != types.NodeTypeIt && r.State.Is(types.SpecStateFailureStates):
			return failed, r.FailureMessage()
		case r.LeafNodeType != types.NodeTypeIt || r.FullText() != s.text():
		case r.State.Is(types.SpecStatePassed) && runErr == nil:
			return passed, ""
		case r.State.Is(types.SpecStateSkipped):
			return failed, "it skipped itself, which the list of skips does not know: " + r.Failure.Message
		default:
			return failed, fmt.Sprintf("%s: %s (%s)", r.State, r.FailureMessage(), r.FailureLocation())
		}
	}
	return failed, fmt.Sprintf("the suite does not report on it: %v", runErr)
}
