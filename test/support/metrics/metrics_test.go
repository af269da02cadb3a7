// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestMetrics(t *testing.T) { suite.Run(t, "Metrics") }

var _ = Describe("A sample", func() {
	It("should be the same from a registry and from the text that it writes", func() {
		registry := prometheus.NewRegistry()
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "a", Help: "a."}, []string{"label", "other"})
		registry.MustRegister(gauge, prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total", Help: "b."}))
		gauge.WithLabelValues("quote \" comma, backslash \\ line \n brace }", "").Set(1.5e9)
		gauge.WithLabelValues("x", "y").Set(-2)

		gathered, err := metrics.Gather(registry, "a")
		Expect(err).ToNot(HaveOccurred())
		text := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
			ServeHTTP(text, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		Expect(gathered).To(HaveLen(2))
		Expect(metrics.Read(text.Body, "a")).To(ConsistOf(gathered))
		Expect(metrics.Read(strings.NewReader("a_total 1\n"), "a")).To(BeEmpty())
	})
	It("should not be read from text that is in another format", func() {
		Expect(metrics.Read(strings.NewReader("a{label=\"x\"}\n"), "a")).Error().To(MatchError(ContainSubstring("no sample")))
	})
})
