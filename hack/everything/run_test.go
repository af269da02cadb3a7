// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A check", func() {
	var (
		runner  Runner
		output  *bytes.Buffer
		lacking map[string]string
	)
	BeforeEach(func() {
		lacking, output = map[string]string{}, &bytes.Buffer{}
		dir := GinkgoT().TempDir()
		runner = Runner{root: dir, logs: "logs", make: "make", prepare: func(_ context.Context, need string) string { return lacking[need] }}
		Expect(os.WriteFile(filepath.Join(dir, "Makefile"), []byte(
			"good:\n\t@echo done $(A)\nbad:\n\t@echo no >&2; exit 3\nlast:\n\t@echo '--- image: skipped: not root'\n"+
				"hangs:\n\t@echo started; sleep 600 & wait\nlies:\n\t@echo '--- x: skipped: y'; exit 1\n"+
				"long:\n\t@seq 100; exit 1\n"), 0o600)).To(Succeed())
	})

	DescribeTable("should report", func(ctx context.Context, check Check, outcome, reason, log string) {
		result := runner.Run(ctx, check, output)
		Expect(result.Outcome).To(Equal(outcome))
		Expect(result.Reason).To(Equal(reason))
		Expect(result.Log).To(Equal("logs/" + check.Name + ".log"))
		Expect(string(must(os.ReadFile(filepath.Join(runner.root, result.Log))))).To(ContainSubstring(log))
		Expect(output.String()).To(ContainSubstring(log))
		Expect(strings.ToLower(output.String())).To(ContainSubstring("===> make " + check.Name + ": " + outcome))
	},
		Entry("that it passed", Check{Name: "good"}, passed, "", "done"),
		Entry("that it passed with arguments", Check{Name: "part", Make: []string{"good", "A=of two words"}}, passed, "", "done of two words"),
		Entry("that it failed", Check{Name: "bad"}, failed, "", "no"),
		Entry("that it is skipped, with the reason of the target", Check{Name: "last"}, skipped, "not root", "--- image: skipped: not root"),
		Entry("that it failed, whatever it says of itself", Check{Name: "lies"}, failed, "", "skipped: y"),
		Entry("that there is no such target", Check{Name: "unknown"}, failed, "", "unknown"),
	)

	It("should show how its log ends beside the results where it failed", func(ctx context.Context) {
		good, bad := runner.Run(ctx, Check{Name: "good"}, io.Discard), runner.Run(ctx, Check{Name: "long"}, io.Discard)
		WriteResults(output, []Result{good, bad})
		shown, _, _ := strings.Cut(output.String(), "\n\ncheck ")
		lines := strings.Split(strings.TrimSpace(shown), "\n")
		Expect(lines).To(HaveLen(1 + lastLines))
		Expect(lines[0]).To(Equal("===> the end of logs/long.log:"))
		Expect(shown).To(MatchRegexp(`\n99\n100\nmake(\[\d\])?: \*\*\*`), "and what make says, which is more where another make runs the specs")
		Expect(output.String()).NotTo(ContainSubstring("done"))
	})

	It("should be skipped where its machine lacks what it needs", func(ctx context.Context) {
		lacking["browser"] = "there is no browser"
		result := runner.Run(ctx, Check{Name: "bad", Needs: []string{"root", "browser"}}, output)
		Expect(result.Outcome).To(Equal(skipped))
		Expect(result.Reason).To(Equal("there is no browser"))
		Expect(output.String()).To(ContainSubstring("--- bad: skipped: there is no browser"))
	})

	It("should be stopped, with all that it has started, when its time is over", func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		writer := &notify{text: "started", seen: func() { cancel(errors.New("no time is left")) }}
		began := time.Now()
		result := runner.Run(ctx, Check{Name: "hangs"}, writer)
		Expect(result.Outcome).To(Equal(failed))
		Expect(result.Reason).To(HaveSuffix("no time is left"))
		Expect(time.Since(began)).To(BeNumerically("<", 5*time.Minute), "the sleep of ten minutes was not waited for")
	})

	Describe("which needs an address", func() {
		It("should run where it answers, and say what it answers where it does not", func(ctx context.Context) {
			status := http.StatusUnauthorized
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			Expect(unreachable(ctx, server.URL)).To(BeEmpty())
			status = http.StatusBadGateway
			Expect(unreachable(ctx, server.URL)).To(Equal(server.URL + " answers 502 Bad Gateway"))
			server.Close()
			Expect(unreachable(ctx, server.URL)).To(ContainSubstring(server.URL + " does not answer"))
		})
	})

	It("should not be started without a command that cannot be installed", func(ctx context.Context) {
		Expect(Prepare(ctx, "no-such-command")).To(HavePrefix("there is no no-such-command"))
		Expect(Prepare(ctx, "make")).To(BeEmpty())
	})
})

// notify calls a function when a text is written.
type notify struct {
	text string
	seen func()
}

func (n *notify) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(n.text)) { // make may say where it is before
		n.seen()
	}
	return len(p), nil
}

var _ = Describe("A run of .ci/run", func() {
	var (
		mu      sync.Mutex
		elapsed time.Duration
		started []string
		output  *bytes.Buffer
		outcome map[string]string
		slower  int
		ci      CI
	)
	BeforeEach(func() {
		elapsed, started, output, outcome = 0, nil, &bytes.Buffer{}, map[string]string{}
		slower = 1
		ci = CI{out: output, elapsed: func() time.Duration { return elapsed }, run: func(_ context.Context, c Check, out io.Writer) Result {
			mu.Lock()
			defer mu.Unlock()
			started = append(started, c.Name)
			elapsed += time.Duration(slower*c.Seconds) * time.Second
			_, _ = io.WriteString(out, "output of "+c.Name+"\n")
			result := Result{Name: c.Name, Outcome: passed, Seconds: slower * c.Seconds}
			if outcome[c.Name] != "" {
				result.Outcome = outcome[c.Name]
			}
			return result
		}}
	})
	minutes := func(name string, n int) Check { return Check{Name: name, Seconds: n * 60} }

	It("should run every check, even if one fails, and fill the time that is left", func(ctx context.Context) {
		outcome["verify"] = failed
		results, waiting := ci.Run(ctx, []Check{minutes("verify", 10), minutes("test", 30)}, []Check{minutes("e2e", 20), minutes("bench", 6), minutes("docs", 9)})
		Expect(started).To(HaveExactElements("verify", "test", "bench", "docs"))
		Expect(ci.Report(results, waiting)).To(BeFalse())
		Expect(output.String()).To(ContainSubstring("commits): e2e (20 min)\nFAILED after 55 minutes: verify\n"))
	})

	It("should start what fits in on a machine as slow as the checks that passed have shown", func(ctx context.Context) {
		slower, outcome["verify"] = 2, failed
		results, waiting := ci.Run(ctx, []Check{minutes("verify", 5), minutes("test", 10)}, []Check{minutes("e2e", 20), minutes("bench", 12)})
		Expect(started).To(HaveExactElements("verify", "test", "bench"))
		Expect(waiting).To(HaveExactElements(HaveField("Name", "e2e")))
		Expect(slowness([]Check{minutes("verify", 5), minutes("test", 10)}, results)).To(Equal(2.0))
		Expect(slowness([]Check{minutes("test", 30)}, results)).To(Equal(1.0), "a fast machine")
		Expect(slowness(nil, nil)).To(Equal(1.0))
	})

	It("should pass where nothing failed, and name apart what was skipped", func(ctx context.Context) {
		outcome["image"] = skipped
		results, waiting := ci.Run(ctx, []Check{minutes("test", 30), minutes("image", 1)}, nil)
		Expect(ci.Report(results, waiting)).To(BeTrue())
		Expect(output.String()).To(HaveSuffix("skipped, for the reasons above: image\npassed after 31 minutes: test\n"))
	})

	It("should start what waits beside what computes, and keep their outputs apart", func(ctx context.Context) {
		demo := minutes("demo", 3)
		demo.Beside = true
		results, _ := ci.Run(ctx, []Check{demo, minutes("verify", 5), minutes("test", 5)}, nil)
		Expect(results).To(HaveExactElements(HaveField("Name", "verify"), HaveField("Name", "demo"), HaveField("Name", "test")))
		Expect(output.String()).To(HavePrefix("output of verify\noutput of demo\noutput of test\n"))
	})

	It("should stop a group that takes much longer than it should", func(ctx context.Context) {
		elapsed = limit - time.Nanosecond
		var cause error
		ci.run = func(ctx context.Context, _ Check, _ io.Writer) Result {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return Result{Outcome: failed}
		}
		ci.Run(ctx, nil, []Check{{Name: "hangs", Seconds: int((budget - limit).Seconds())}})
		Expect(cause).To(MatchError("no time is left"))
	})
})
