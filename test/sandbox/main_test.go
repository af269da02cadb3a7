// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func TestSandbox(t *testing.T) { suite.Run(t, "Sandbox") }

var _ = Describe("The sandbox", func() {
	// start runs it until the spec ends and returns where it listens.
	start := func(args ...string) (url string) {
		GinkgoHelper()
		out := gbytes.NewBuffer()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, args, out) }()
		Eventually(out).Should(gbytes.Say("listening on http://.+\n"))
		url = strings.TrimSpace(strings.TrimPrefix(string(out.Contents()), "listening on "))
		DeferCleanup(func() {
			cancel()
			Eventually(ended).Should(Receive(Succeed()))
			_, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(url, "http://"))
			Expect(err).To(HaveOccurred(), "it no longer listens")
		})
		return url
	}

	It("should write the environment that a controller needs", func() {
		file := filepath.Join(GinkgoT().TempDir(), "env")
		url := start("--print-env", file, "--cluster-name=it's mine")
		Expect(string(lo.Must(os.ReadFile(file)))).To(And(
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
	DescribeTable("should reject what makes no sense",
		func(text string, args ...string) {
			Expect(run(context.Background(), args, io.Discard)).To(MatchError(ContainSubstring(text)))
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
