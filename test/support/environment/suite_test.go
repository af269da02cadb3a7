// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEnvironment(t *testing.T) { suite.Run(t, "Environment") }

// shell is a command that runs a script of sh.
func shell(script string) command {
	return command{
		name: "script", path: "/bin/sh", args: []string{"-c", script}, env: baseEnv(),
		log: filepath.Join(GinkgoT().TempDir(), "logs", "script.log"),
	}
}

func logged(p *process) func() string {
	return func() string {
		content, _ := os.ReadFile(p.log)
		return string(content)
	}
}

var _ = Describe("Processes", func() {
	It("should report how a process ended unexpectedly, with its last lines", func() {
		failures := make(chan error, 1)
		_, err := start(shell("echo first; echo out of luck >&2; exit 3"), func(err error) { failures <- err })
		Expect(err).NotTo(HaveOccurred())
		var failure error
		Eventually(failures).Should(Receive(&failure))
		Expect(failure).To(MatchError(And(ContainSubstring("script ended unexpectedly (exit status 3)"), ContainSubstring("  first\n  out of luck"))))
	})
	It("should kill a process that ignores SIGTERM", func() {
		p, err := start(shell("trap '' TERM; echo deaf; while :; do sleep 0.1; done"), nil)
		Expect(err).NotTo(HaveOccurred())
		Eventually(logged(p)).Should(ContainSubstring("deaf"))
		Expect(p.stop(200 * time.Millisecond)).To(Succeed())
		Expect(p.err).To(MatchError("signal: killed"))
	})
	It("should end what a process started, too", func() {
		p, err := start(shell("sleep 60 & echo child $!; wait"), nil)
		Expect(err).NotTo(HaveOccurred())
		Eventually(logged(p)).Should(ContainSubstring("child "))
		Expect(p.stop(10 * time.Second)).To(Succeed())
		// The group is gone when no process is left to be signalled; a dead child may remain a zombie for a moment.
		Eventually(func() error { return p.signal(syscall.Signal(0)) }).Should(MatchError(syscall.ESRCH))
	})
	It("should freeze a controller, and let it continue", func() {
		p, err := start(shell("while :; do echo tick; sleep 0.05; done"), nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.kill)
		c := &Controller{process: p}
		ticks := func() int { return strings.Count(logged(p)(), "tick") }
		Eventually(ticks).Should(BeNumerically(">", 0))
		Expect(c.Freeze()).To(Succeed())
		// The shell's own sleep may still end; nothing comes after it.
		var frozen int
		Eventually(func() bool {
			before := frozen
			frozen = ticks()
			return before == frozen
		}).WithPolling(300 * time.Millisecond).Should(BeTrue())
		Expect(c.Thaw()).To(Succeed())
		Eventually(ticks).Should(BeNumerically(">", frozen))
	})
	It("should start a process without variables that could be a credential", func() {
		GinkgoT().Setenv("BIZFLY_CLOUD_PASSWORD", "of-a-developer")
		p, err := start(shell("env"), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.wait(context.Background())).To(Succeed())
		Expect(logged(p)()).To(And(ContainSubstring("PATH="), Not(ContainSubstring("of-a-developer"))))
	})
})

var _ = Describe("The counting proxy", func() {
	var p *proxy
	BeforeEach(func() {
		var err error
		p, err = startProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.close)
	})
	DescribeTable("should count and reject what is meant for another host", func(target string) {
		through, err := url.Parse(p.env()["HTTPS_PROXY"])
		Expect(err).NotTo(HaveOccurred())
		transport := &http.Transport{Proxy: http.ProxyURL(through)}
		DeferCleanup(transport.CloseIdleConnections)
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, nil)
		Expect(err).NotTo(HaveOccurred())
		response, err := transport.RoundTrip(request)
		if err == nil {
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(http.StatusBadGateway))
		}
		count, hosts := p.seen()
		Expect(count).To(Equal(1))
		Expect(hosts).To(ConsistOf(HavePrefix("manage.bizflycloud.example")))
	},
		Entry("over http", "http://manage.bizflycloud.example/api/token"),
		Entry("over https", "https://manage.bizflycloud.example/api/token"),
	)
})
