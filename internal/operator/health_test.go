// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
)

var _ = Describe("The liveness check", func() {
	var (
		clk      *clocktesting.FakeClock
		provider *config.DefaultProvider
		checks   *healthz.Handler
	)
	BeforeEach(func() {
		clk = clocktesting.NewFakeClock(time.Now())
		base := bizfly.Config{
			APIURL: "http://cloud.test/api", AllowHTTP: true, Region: "HN", AuthMethod: bizfly.AuthMethodPassword,
			Email: "a@example.com", Password: "none", Registerer: prometheus.NewRegistry(),
		}
		client, err := bizfly.NewClient(base)
		Expect(err).NotTo(HaveOccurred())
		provider = config.NewDefaultProvider(config.Options{Reader: env.Client, Client: client, Environment: base, Clock: clk})
		checks = &healthz.Handler{Checks: map[string]healthz.Checker{"configuration": operator.Alive(provider.Hung)}}
	})
	// probe is the kubelet's.
	probe := func() int {
		recorder := httptest.NewRecorder()
		checks.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
		return recorder.Code
	}

	It("should pass during an outage of the cloud, however long it lasts", func(ctx SpecContext) {
		provider.Probe = func(context.Context, bizfly.Config) (bizfly.Scope, error) {
			return bizfly.Scope{}, errors.New("no answer")
		}
		for range 90 {
			Expect(provider.Sync(ctx).EndpointErr).To(HaveOccurred())
			clk.Step(time.Minute)
			Expect(probe()).To(Equal(http.StatusOK))
		}
	})
	It("should fail when the look at the configuration does not come back, and pass when it has", func(ctx SpecContext) {
		begun, release := make(chan struct{}), make(chan struct{})
		provider.Probe = func(context.Context, bizfly.Config) (bizfly.Scope, error) {
			close(begun)
			<-release
			return bizfly.Scope{}, errors.New("too late")
		}
		done := make(chan *config.Result, 1)
		go func() { done <- provider.Sync(ctx) }()
		Eventually(begun).Should(BeClosed())
		clk.Step(10 * time.Minute)
		Expect(probe()).To(Equal(http.StatusOK))
		clk.Step(time.Second)
		Expect(probe()).To(Equal(http.StatusInternalServerError))
		close(release)
		Eventually(done).Should(Receive())
		Expect(probe()).To(Equal(http.StatusOK))
	})
})
