// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func TestSandbox(t *testing.T) { suite.Run(t, "Sandbox") }

// output is a buffer that may be read while it is written.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

var _ = Describe("The sandbox", func() {
	// start runs it until the spec ends and returns where it listens.
	start := func(args ...string) (url string, out *output) {
		GinkgoHelper()
		out = &output{}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, args, out) }()
		DeferCleanup(func() {
			cancel()
			Eventually(ended).Should(Receive(Succeed()))
			_, err := get(url + "/_sandbox/state")
			Expect(err).To(HaveOccurred(), "it no longer listens")
		})
		Eventually(out.String).Should(ContainSubstring("listening on http://"))
		_, line, _ := strings.Cut(out.String(), "listening on ")
		return strings.TrimSpace(line), out
	}

	It("should print in one line where it listens, and answer there until it is stopped", func() {
		url, out := start()
		Expect(out.String()).To(Equal("listening on " + url + "\n"))
		status, err := get(url + "/_sandbox/state")
		Expect(err).ToNot(HaveOccurred())
		Expect(status).To(Equal(http.StatusOK))
	})
	It("should print the environment that a controller needs", func() {
		url, out := start("--print-env", "--cluster-name=it's mine")
		Expect(out.String()).To(And(
			ContainSubstring("BIZFLY_CLOUD_API_URL="+url+"/api\n"), ContainSubstring("BKE_CLUSTER_TOKEN="), ContainSubstring(`CLUSTER_NAME='it'\''s mine'`),
		))
	})
	It("should have a cluster of the given Kubernetes, and images of the versions around it", func() {
		c, err := parse([]string{"--kubernetes-minor=30"})
		Expect(err).ToNot(HaveOccurred())
		Expect(c.cloud.Version).To(Equal("v1.30.4"))
		versions := lo.Map(c.cloud.Catalog.Versions, func(v cloud.KubernetesVersion, _ int) string { return v.KubernetesVersion })
		Expect(versions).To(ContainElements("v1.28.9", "v1.29.6", "v1.30.4", "v1.30.4.flatcar", "v1.31.0"))
		Expect(versions).To(HaveEach(Not(HavePrefix("v1.35"))))
	})
	DescribeTable("should write the environment to a file that a shell can read",
		func(arguments func(file string) []string) {
			file := filepath.Join(GinkgoT().TempDir(), "env")
			url, out := start(arguments(file)...)
			Expect(out.String()).ToNot(ContainSubstring("BIZFLY_CLOUD"))
			info, err := os.Stat(file)
			Expect(err).ToNot(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
			printed, err := exec.CommandContext(context.Background(), "sh", "-c", `. "$0" && echo "$BIZFLY_CLOUD_API_URL $BIZFLY_CLOUD_REGION $CLUSTER_NAME"`, file).
				Output()
			Expect(err).ToNot(HaveOccurred())
			Expect(string(printed)).To(Equal(url + "/api HN sandbox\n"))
		},
		Entry("after an equals sign", func(file string) []string { return []string{"--print-env=" + file, "--seed=3"} }),
		Entry("as the next argument", func(file string) []string { return []string{"--print-env", file, "--seed=3"} }),
	)
	DescribeTable("should reject what makes no sense",
		func(text string, args ...string) {
			Expect(run(context.Background(), args, &output{})).To(MatchError(ContainSubstring(text)))
		},
		Entry("unknown flags", "not defined", "--nonsense"),
		Entry("arguments", "unexpected argument", "extra"),
		Entry("guests that are none", "neither imitated nor real", "--guests=dreamt"),
		Entry("real guests without a folder for their disks", "--machine-dir", "--guests=real"),
		Entry("more than all memory", "--memory-overhead", "--memory-overhead=1.5"),
		Entry("a kubeconfig that is not there", "--kubeconfig", "--kubeconfig=/nonexistent"),
		Entry("an address that is none", "listen", "--listen=nowhere:x"),
	)
})

func get(url string) (int, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
