// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

var _ = Describe("A configuration that cannot work", func() {
	It("should stop the controller with one clear line when the cluster has no name", func() {
		expectExit(env, map[string]string{"CLUSTER_NAME": ""}, "CLUSTER_NAME")
	})
})

// One that has reached it starts all the same, so that neither an outage nor a missing key of a Secret blocks an upgrade or a drain.
var _ = Describe("A cluster that has never reached its cloud", func() {
	It("should stop the controller with one clear line when the endpoint is unreachable", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_API_URL": "http://127.0.0.1:1/api"}, "127.0.0.1:1", "connection refused")
	})
	It("should stop the controller with one clear line when the password is missing", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_PASSWORD": ""}, "BIZFLY_CLOUD_PASSWORD")
	})
	It("should stop the controller with one clear line when the password is wrong", func() {
		output := expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_PASSWORD": "not-the-password"}, "login", "BIZFLY_CLOUD_PASSWORD")
		Expect(output).NotTo(ContainSubstring("not-the-password"))
	})
	It("should stop the controller with one clear line when the region is unknown", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_REGION": "MARS"}, "BIZFLY_CLOUD_REGION", "MARS", "HN")
	})
	It("should be seen by the demo's proxy when the endpoint is another host", func() {
		expectExit(neverReached(), map[string]string{"BIZFLY_CLOUD_API_URL": "https://manage.bizflycloud.example/api"}, "cannot start")
		count, hosts := neverReached().ForeignRequests()
		Expect(count).To(BeNumerically(">", 0))
		Expect(hosts).To(ConsistOf(HavePrefix("manage.bizflycloud.example")))
	})
})

// expectExit runs the controller until it exits, and expects the reason in one log line that contains the words.
func expectExit(env *environment.Environment, overrides map[string]string, words ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	output, err := env.RunController(ctx, overrides)
	Expect(err).To(MatchError("exit status 1"), output)
	messages := lo.Filter(strings.Split(strings.TrimSpace(output), "\n"), func(line string, _ int) bool { return strings.Contains(line, "cannot start") })
	Expect(messages).To(HaveLen(1), output)
	for _, word := range words {
		Expect(messages[0]).To(ContainSubstring(word))
	}
	Expect(output).NotTo(Or(ContainSubstring("panic"), ContainSubstring("goroutine ")))
	return output
}

var _ = Describe("The log", func() {
	// lines are what a controller logs that exits because of its password.
	lines := func() []string {
		GinkgoHelper()
		ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
		defer cancel()
		output, err := neverReached().RunController(ctx, map[string]string{"BIZFLY_CLOUD_PASSWORD": markedWrong})
		Expect(err).To(MatchError("exit status 1"), output)
		return lo.Filter(strings.Split(strings.TrimSpace(output), "\n"), func(line string, _ int) bool { return !strings.Contains(line, "cannot start") })
	}

	It("should be JSON, and begin with what is being started", func() {
		logged := lines()
		for _, line := range logged {
			Expect(json.Valid([]byte(line))).To(BeTrue(), line)
		}
		Expect(logged).To(ContainElement(And(ContainSubstring(`"starting karpenter-provider-bizflycloud"`), ContainSubstring(`"version":`),
			ContainSubstring(`"revision":`))))
	})
})
