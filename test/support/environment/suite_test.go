// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	It("should not complain about a process that it stopped", func() {
		p, err := start(shell("exec sleep 60"), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.stop(10 * time.Second)).To(Succeed())
		Expect(p.exited()).To(BeTrue())
		Expect(p.failure()).To(Succeed())
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
	It("should quote no more than the end of a long log", func() {
		path := filepath.Join(GinkgoT().TempDir(), "long.log")
		Expect(os.WriteFile(path, []byte(strings.Repeat("noise\n", 50_000)+"the end\n"), 0o600)).To(Succeed())
		Expect(tail(path, 2)).To(Equal("  noise\n  the end"))
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

var _ = Describe("The API server's way to nodes and pods", func() {
	// get asks the address for its root, as the API server does.
	get := func(socket, address string) (int, string) {
		GinkgoHelper()
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		reader := bufio.NewReader(conn)
		send := func(method, target string) *http.Response {
			request, err := http.NewRequestWithContext(context.Background(), method, target, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(request.Write(conn)).To(Succeed())
			response, err := http.ReadResponse(reader, request)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(response.Body.Close)
			return response
		}
		if response := send(http.MethodConnect, "//"+address); response.StatusCode != http.StatusOK {
			return response.StatusCode, ""
		}
		response := send(http.MethodGet, "http://"+address)
		content, err := io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, string(content)
	}
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}

	It("should lead to the test for the metrics of any pod, and elsewhere for all else", func() {
		dir, err := os.MkdirTemp("", "") // the path of a socket has at most 103 bytes
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		e := &Environment{dir: dir, options: Options{Pods: says("a pod")}}
		apiServer, kwok, err := e.reachPods()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(e.egress.close)
		Expect(apiServer).To(ConsistOf(HavePrefix("--egress-selector-config-file=" + dir)))
		Expect(kwok).To(ConsistOf(HavePrefix(dir)))

		node := httptest.NewServer(says("a node"))
		DeferCleanup(node.Close)
		socket := filepath.Join(dir, "egress.sock")
		status, content := get(socket, "10.0.0.7:8080")
		Expect(status).To(Equal(http.StatusOK))
		Expect(content).To(Equal("a pod"))
		status, content = get(socket, node.Listener.Addr().String())
		Expect(status).To(Equal(http.StatusOK))
		Expect(content).To(Equal("a node"))
		node.Close()
		status, _ = get(socket, node.Listener.Addr().String())
		Expect(status).To(Equal(http.StatusBadGateway))
	})
	It("should not be set up where no test asks for it", func() {
		e := &Environment{dir: GinkgoT().TempDir()}
		apiServer, kwok, err := e.reachPods()
		Expect(err).NotTo(HaveOccurred())
		Expect(apiServer).To(BeEmpty())
		Expect(kwok).To(BeEmpty())
		Expect(e.egress).To(BeNil())
	})
})

var _ = Describe("Small things", func() {
	It("should never assign a port twice", func() {
		seen := map[int]bool{}
		for range 5 {
			found, err := freePorts(50)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(HaveLen(50))
			for _, port := range found {
				Expect(seen[port]).To(BeFalse())
				seen[port] = true
			}
		}
	})
	It("should let no other process take the ports of a block", func() {
		_, err := freePorts(1)
		Expect(err).NotTo(HaveOccurred())
		_, err = listen(portBlocks.held[0].Addr().(*net.TCPAddr).Port)
		Expect(err).To(MatchError(ContainSubstring("address already in use")))
	})
	It("should read what the sandbox writes for a shell", func() {
		path := filepath.Join(GinkgoT().TempDir(), "env")
		Expect(os.WriteFile(path, []byte("BIZFLY_CLOUD_API_URL=http://127.0.0.1:8080/api\nBKE_CLUSTER_TOKEN='a=b c'\n\n"), 0o600)).To(Succeed())
		Expect(readEnv(path)).To(Equal(map[string]string{"BIZFLY_CLOUD_API_URL": "http://127.0.0.1:8080/api", "BKE_CLUSTER_TOKEN": "a=b c"}))
	})
	It("should report what to do when a binary is missing", func() {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", GinkgoT().TempDir())
		_, err := (&Environment{root: GinkgoT().TempDir()}).asset("kwok")
		Expect(err).To(MatchError(ContainSubstring("make controlplane")))
	})
	It("should prefer the binaries that the user brings and fall back to ours", func() {
		users, root := GinkgoT().TempDir(), GinkgoT().TempDir()
		ours := filepath.Join(root, ".cache", "controlplane", "bin")
		Expect(os.MkdirAll(ours, 0o750)).To(Succeed())
		for _, file := range []string{filepath.Join(users, "etcd"), filepath.Join(ours, "etcd"), filepath.Join(ours, "kwok")} {
			Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		}
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", users)
		e := &Environment{root: root}
		Expect(e.asset("etcd")).To(Equal(filepath.Join(users, "etcd")))
		Expect(e.asset("kwok")).To(Equal(filepath.Join(ours, "kwok")))
	})
})
