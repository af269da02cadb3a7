// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/monitoring"
)

const (
	root       = "../.."
	alertsFile = root + "/charts/karpenter-provider-bizflycloud/files/alerts.yaml"
	dashboards = root + "/charts/karpenter-provider-bizflycloud/files/dashboards"
	runbooks   = root + "/docs/operate/runbooks"
	runbookURL = "https://github.com/bizflycloud/karpenter-provider-bizflycloud/blob/main/docs/operate/runbooks/"
)

var scrapes *monitoring.Scrapes

func TestMonitoring(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Monitoring")
}

var _ = BeforeSuite(func() {
	var err error
	dir := os.Getenv("SCRAPES")
	Expect(dir).ToNot(BeEmpty(), "SCRAPES is the folder with the scrapes of a demo: run `make monitoring`")
	scrapes, err = monitoring.Load(dir, GinkgoT().TempDir())
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(func() { Expect(scrapes.Close()).To(Succeed()) })
	GinkgoWriter.Printf("%d metrics, %s of scrapes\n", len(scrapes.Names), scrapes.End.Sub(scrapes.Start))
})

// hasData expects that an expression reads metrics that exist and that numbers come out of it.
func hasData(ctx SpecContext, what, expr string) {
	GinkgoHelper()
	names, err := monitoring.MetricsOf(expr)
	Expect(err).ToNot(HaveOccurred(), what)
	for _, name := range names {
		Expect(scrapes.Names[name]).To(BeTrue(), "%s: the controller has no metric %s: %s", what, name, expr)
	}
	points, err := scrapes.Points(ctx, expr)
	Expect(err).ToNot(HaveOccurred(), what)
	Expect(points).To(BeNumerically(">", 0), "%s has no data: %s", what, expr)
}

var _ = Describe("The dashboards", func() {
	It("should have data in every panel after a demo", func(ctx SpecContext) {
		queries, err := monitoring.Queries(dashboards)
		Expect(err).ToNot(HaveOccurred())
		var failures []string
		for _, q := range queries {
			failures = append(failures, InterceptGomegaFailures(func() {
				hasData(ctx, fmt.Sprintf("%s, panel %q, %s", q.Dashboard, q.Panel, q.RefID), q.Expr)
			})...)
		}
		Expect(strings.Join(failures, "\n")).To(BeEmpty())
		Expect(len(queries)).To(BeNumerically(">=", 40))
	})
	It("should write their numbers where the pictures of the documentation are asked for", func(ctx SpecContext) {
		file := os.Getenv("PANELS")
		if file == "" {
			Skip("PANELS names the file for docs/.vitepress/dashboards.mjs")
		}
		queries, err := monitoring.Queries(dashboards)
		Expect(err).ToNot(HaveOccurred())
		type series struct {
			Dashboard, Panel, Name string
			// Points are seconds since the start and values.
			Points [][2]float64
		}
		var all []series
		label := regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
		for _, q := range queries {
			matrix, err := scrapes.Range(ctx, q.Expr)
			Expect(err).ToNot(HaveOccurred())
			for _, found := range matrix {
				s := series{Dashboard: q.Dashboard, Panel: q.Panel, Name: label.ReplaceAllStringFunc(q.Legend, func(text string) string {
					return found.Metric.Get(label.FindStringSubmatch(text)[1])
				})}
				for _, point := range found.Floats {
					if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
						s.Points = append(s.Points, [2]float64{float64(point.T-scrapes.Start.UnixMilli()) / 1000, point.F})
					}
				}
				all = append(all, s)
			}
		}
		text, err := json.Marshal(all)
		Expect(err).ToNot(HaveOccurred())
		Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	})
})

var _ = Describe("The alerts", func() {
	It("should each look at something that exists", func(ctx SpecContext) {
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		Expect(alerts).ToNot(BeEmpty())
		var failures []string
		for _, alert := range alerts {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(alert.Query().String())
			Expect(err).ToNot(HaveOccurred())
			operands := monitoring.Operands(expr)
			Expect(operands).ToNot(BeEmpty(), alert.Name())
			for _, operand := range operands {
				failures = append(failures, InterceptGomegaFailures(func() { hasData(ctx, alert.Name(), operand.String()) })...)
			}
			_, err = scrapes.Points(ctx, expr.String())
			Expect(err).ToNot(HaveOccurred(), alert.Name())
		}
		Expect(strings.Join(failures, "\n")).To(BeEmpty())
	})
	It("should each have a severity, words, and a page to turn to that shows the rule as it is", func() {
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		index, err := os.ReadFile(filepath.Join(runbooks, "README.md"))
		Expect(err).ToNot(HaveOccurred())
		pages := map[string]bool{"README.md": true}
		for _, alert := range alerts {
			Expect(alert.Labels().Get("severity")).To(BeElementOf("critical", "warning", "info"), alert.Name())
			for _, annotation := range []string{"summary", "description"} {
				Expect(alert.Annotations().Get(annotation)).ToNot(BeEmpty(), "%s of %s", annotation, alert.Name())
			}
			page := alert.Name() + ".md"
			pages[page] = true
			Expect(alert.Annotations().Get("runbook_url")).To(Equal(runbookURL+page), alert.Name())
			text, err := os.ReadFile(filepath.Join(runbooks, page))
			Expect(err).ToNot(HaveOccurred(), alert.Name())
			_, rule, found := strings.Cut(string(text), "```promql\n")
			Expect(found).To(BeTrue(), page)
			shown, err := parser.NewParser(parser.Options{}).ParseExpr(strings.Split(rule, "\n```")[0])
			Expect(err).ToNot(HaveOccurred(), page)
			Expect(shown.String()).To(Equal(alert.Query().String()), page)
			Expect(string(index)).To(ContainSubstring("("+page+")"), "the list of runbooks")
		}
		files, err := os.ReadDir(runbooks)
		Expect(err).ToNot(HaveOccurred())
		for _, file := range files {
			Expect(pages).To(HaveKey(file.Name()), "a page without an alert")
		}
	})
	It("should fire when they should, and only then", func() {
		tests, err := monitoring.ReadRuleTests("alerts_test.yaml")
		Expect(err).ToNot(HaveOccurred())
		fires, rests := map[string]bool{}, map[string]bool{}
		for _, test := range tests.Tests {
			Expect(test.Run(alertsFile, time.Duration(tests.EvaluationInterval))).To(Succeed(), test.Name)
			for _, check := range test.AlertRuleTest {
				if len(check.ExpAlerts) > 0 {
					fires[check.Alertname] = true
				} else {
					rests[check.Alertname] = true
				}
			}
		}
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		for _, alert := range alerts {
			Expect(fires).To(HaveKey(alert.Name()), "no test makes it fire")
			Expect(rests).To(HaveKey(alert.Name()), "no test keeps it from firing")
		}
	})
})
