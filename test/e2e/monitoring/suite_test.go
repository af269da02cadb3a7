// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/e2e/monitoring"
)

const (
	root       = "../../.."
	alertsFile = root + "/charts/karpenter-provider-bizflycloud/files/alerts.yaml"
	dashboards = root + "/charts/karpenter-provider-bizflycloud/files/dashboards"
	valuesFile = root + "/charts/karpenter-provider-bizflycloud/values.yaml"
	runbooks   = root + "/docs/operate/troubleshooting.md"
	runbookURL = "https://github.com/bizflycloud/karpenter-provider-bizflycloud/blob/main/docs/operate/troubleshooting.md#"
)

// seldomScraped is served for a pod that core looks at, every 30 s, between its plan and its node. In a demo, that is chance.
const seldomScraped = "karpenter_pods_provisioning_unbound_time_seconds"

// clusterState are the metrics of the controllers of core that settings.disableClusterStateObservability leaves out.
var clusterState = regexp.MustCompile(`^(operator_(nodeclaim|nodepool|node)_|karpenter_(pods|nodepools)_|karpenter_nodes_(allocatable$|total_))`)

// sickStatus and sickReason are what an alert asks of a condition.
var (
	sickStatus = regexp.MustCompile(`status(="False"|!="True")`)
	sickReason = regexp.MustCompile(`reason="\w+"`)
)

var scrapes *monitoring.Scrapes

func TestMonitoring(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Monitoring")
}

var _ = BeforeSuite(func() {
	var err error
	dir := os.Getenv("SCRAPES")
	Expect(dir).ToNot(BeEmpty(), "SCRAPES is the folder with the scrapes of a demo: run `make e2e SUITE=monitoring`")
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

// shown is what a query shows, by the names of its legend, after a quarter of an hour of series with one value per minute.
func shown(ctx SpecContext, q monitoring.Query, series ...string) map[string]float64 {
	GinkgoHelper()
	storage := promqltest.LoadedStorage(GinkgoTB(), "load 1m\n  "+strings.Join(series, "\n  "))
	query, err := promqltest.NewTestEngine(GinkgoTB(), false, 5*time.Minute, 1000).NewInstantQuery(ctx, storage, nil, q.Expr, time.Unix(15*60, 0))
	Expect(err).ToNot(HaveOccurred())
	vector, err := query.Exec(ctx).Vector()
	Expect(err).ToNot(HaveOccurred())
	numbers := map[string]float64{}
	for _, sample := range vector {
		numbers[q.Name(sample.Metric)] = sample.F
	}
	return numbers
}

var _ = Describe("The dashboards", func() {
	It("should have data in every panel after a demo", func(ctx SpecContext) {
		queries, err := monitoring.Queries(dashboards, monitoring.Variables(monitoring.Cluster, "1m"))
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
	It("should show the numbers that the sandbox and the API server have, of the chosen cluster", func(ctx SpecContext) {
		comparisons, err := monitoring.ReadComparisons("panels.yaml")
		Expect(err).ToNot(HaveOccurred())
		var failures []error
		compared := map[string]bool{}
		for _, cluster := range []string{monitoring.Cluster, monitoring.Late} {
			queries, err := monitoring.Queries(dashboards, monitoring.Variables(cluster, monitoring.Window.String()))
			Expect(err).ToNot(HaveOccurred())
			byPanel := map[string][]monitoring.Query{}
			for _, q := range queries {
				byPanel[q.Panel] = append(byPanel[q.Panel], q)
			}
			for _, panel := range slices.Sorted(maps.Keys(byPanel)) {
				how, known := comparisons[panel]
				Expect(known).To(BeTrue(), "panels.yaml neither says how panel %q is compared nor why it cannot be", panel)
				report, err := scrapes.Compare(ctx, cluster, byPanel[panel], how)
				if err != nil {
					failures = append(failures, fmt.Errorf("%s of cluster %s: %w", panel, cluster, err))
				}
				compared[panel] = how.Why == ""
				GinkgoWriter.Printf("%s  %-55s %s\n", cluster, panel, report)
			}
			Expect(slices.Collect(maps.Keys(comparisons))).To(HaveEach(BeKeyOf(byPanel)), "panels.yaml has panels that no dashboard has")
		}
		Expect(errors.Join(failures...)).ToNot(HaveOccurred())
		Expect(scrapes.End.Sub(scrapes.Start)).To(BeNumerically("<", monitoring.Window), "what is counted would not be the complete demo")
	})
	It("should count what is new, also after a restart or a failed scrape", func(ctx SpecContext) {
		queries, err := monitoring.Queries(dashboards, monitoring.Variables(monitoring.Cluster, "5m"))
		Expect(err).ToNot(HaveOccurred())
		counting := slices.DeleteFunc(queries, func(q monitoring.Query) bool { return !strings.Contains(q.Expr, " offset ") })
		Expect(counting).To(HaveLen(4))
		for _, q := range counting {
			names, err := monitoring.MetricsOf(q.Expr)
			Expect(err).ToNot(HaveOccurred())
			counters := names[0] + `{cluster="a",job="karpenter-provider-bizflycloud",pod=`
			numbers := shown(ctx, q, counters+`"scrape-failed"} 7x9 stale 8x9`, counters+`"new"} _x12 2x8`,
				counters+`"restarted"} 9x12 3x8`, counters+`"ended"} 4x12 stale`)
			Expect(numbers).To(Equal(map[string]float64{q.Name(labels.EmptyLabels()): 1 + 2 + 3}), "%s, panel %q, %s", q.Dashboard, q.Panel, q.RefID)
		}
	})
	It("should count an offering once that several NodeClasses can use", func(ctx SpecContext) {
		queries, err := monitoring.Queries(dashboards, monitoring.Variables(monitoring.Cluster, "5m"))
		Expect(err).ToNot(HaveOccurred())
		offerings := `karpenter_cloudprovider_instance_type_offering_available{cluster="a",job="karpenter-provider-bizflycloud",instance_type=`
		numbers := map[string]map[string]float64{}
		for _, q := range queries {
			numbers[q.Panel] = shown(ctx, q, offerings+`"small",zone="HN1",nodeclass="default"} 1x20`, offerings+`"small",zone="HN1",nodeclass="gpu"} 1x20`,
				offerings+`"small",zone="HN2",nodeclass="default"} 1x20`, offerings+`"large",zone="HN2",nodeclass="default"} 0x20`,
				offerings+`"large",zone="HN2",nodeclass="gpu"} 1x20`)
		}
		Expect(numbers["Available offerings"]).To(Equal(map[string]float64{"": 3}))
		Expect(numbers["Available offerings by zone"]).To(Equal(map[string]float64{"HN1": 1, "HN2": 2}))
	})
	It("should write their numbers where the pictures of the documentation are asked for", func(ctx SpecContext) {
		file := os.Getenv("PANELS")
		if file == "" {
			Skip("PANELS names the file for docs/.vitepress/dashboards.mjs")
		}
		queries, err := monitoring.Queries(dashboards, monitoring.Variables(monitoring.Cluster, "1m"))
		Expect(err).ToNot(HaveOccurred())
		type series struct {
			Dashboard, Panel, Name string
			// Points are seconds since the start and values.
			Points [][2]float64
		}
		var all []series
		for _, q := range queries {
			matrix, err := scrapes.Range(ctx, q.Expr)
			Expect(err).ToNot(HaveOccurred())
			for _, found := range matrix {
				s := series{Dashboard: q.Dashboard, Panel: q.Panel, Name: q.Name(found.Metric)}
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
				if strings.Contains(operand.String(), seldomScraped) {
					continue
				}
				// While all is well, a condition exists and is True, or becomes so between two scrapes.
				healthy := sickReason.ReplaceAllString(sickStatus.ReplaceAllString(operand.String(), `status!=""`), `reason!=""`)
				failures = append(failures, InterceptGomegaFailures(func() { hasData(ctx, alert.Name(), healthy) })...)
			}
			Expect(scrapes.Points(ctx, expr.String())).Error().ToNot(HaveOccurred(), alert.Name())
		}
		Expect(strings.Join(failures, "\n")).To(BeEmpty())
	})
	It("should each fire without core's metrics of the cluster's state, or be named there", func() {
		values, err := os.ReadFile(valuesFile)
		Expect(err).ToNot(HaveOccurred())
		comment := regexp.MustCompile(`((?: +#.*\n)+) +disableClusterStateObservability:`).FindStringSubmatch(string(values))
		Expect(comment).To(HaveLen(2))
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		for _, alert := range alerts {
			names, err := monitoring.MetricsOf(alert.Query().String())
			Expect(err).ToNot(HaveOccurred())
			Expect(strings.Contains(comment[1], alert.Name())).To(Equal(slices.ContainsFunc(names, clusterState.MatchString)), alert.Name())
		}
	})
	It("should read nothing, like the dashboards, that the documentation drops", func() {
		queries, err := monitoring.Queries(dashboards, monitoring.Variables(monitoring.Cluster, "1m"))
		Expect(err).ToNot(HaveOccurred())
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		exprs := map[string]string{}
		for _, q := range queries {
			exprs[q.Dashboard+", "+q.Panel+", "+q.RefID] = q.Expr
		}
		for _, alert := range alerts {
			exprs[alert.Name()] = alert.Query().String()
		}
		page, err := os.ReadFile(root + "/docs/operate/monitoring.md")
		Expect(err).ToNot(HaveOccurred())
		dropped := regexp.MustCompile(`regex: (.*)`).FindAllStringSubmatch(string(page), -1)
		Expect(dropped).ToNot(BeEmpty())
		for _, regex := range dropped {
			drop := regexp.MustCompile("^(?:" + regex[1] + ")$")
			Expect(slices.ContainsFunc(slices.Collect(maps.Keys(scrapes.Names)), drop.MatchString)).To(BeTrue(), "the controller has no metric %s", regex[1])
			for where, expr := range exprs {
				names, err := monitoring.MetricsOf(expr)
				Expect(err).ToNot(HaveOccurred())
				Expect(slices.DeleteFunc(names, func(name string) bool { return !drop.MatchString(name) })).To(BeEmpty(), where)
			}
		}
	})
	It("should each have a severity, words, and a section that begins with what the rule has", func() {
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		page, err := os.ReadFile(runbooks)
		Expect(err).ToNot(HaveOccurred())
		_, sections, _ := strings.Cut(string(page), "\n## Alerts\n")
		sections, _, _ = strings.Cut(sections, "\n## ")
		_, sections, _ = strings.Cut(sections, "\n### ")
		byAlert := map[string]string{}
		for _, section := range strings.Split(sections, "\n### ") {
			name, text, _ := strings.Cut(section, "\n")
			byAlert[name] = text
		}
		for _, alert := range alerts {
			Expect(alert.Labels().Get("severity")).To(BeElementOf("critical", "warning", "info"), alert.Name())
			for _, annotation := range []string{"summary", "description"} {
				Expect(alert.Annotations().Get(annotation)).ToNot(BeEmpty(), "%s of %s", annotation, alert.Name())
			}
			anchor := strings.ToLower(alert.Name())
			Expect(alert.Annotations().Get("runbook_url")).To(Equal(runbookURL+anchor), alert.Name())
			after := "at once"
			if hold := alert.HoldDuration(); hold > 0 {
				after = fmt.Sprintf("after %dm", int(hold.Minutes()))
			}
			Expect(byAlert[alert.Name()]).To(HavePrefix("\n*%s, %s.* ", alert.Labels().Get("severity"), after), alert.Name())
			delete(byAlert, alert.Name())
		}
		Expect(byAlert).To(BeEmpty(), "sections without an alert")
	})
	It("should fire for the cluster that they are about and no other, while the cause lasts", func() {
		tests, err := monitoring.ReadRuleTests("alerts_test.yaml")
		Expect(err).ToNot(HaveOccurred())
		fires, rests := map[string]bool{}, map[string]bool{}
		for i := range tests.Tests {
			test := &tests.Tests[i]
			Expect(tests.Run(test)).To(Succeed(), test.Name)
			series := fmt.Sprint(test.InputSeries)
			for _, check := range test.AlertRuleTest {
				if len(check.ExpAlerts) == 0 {
					rests[check.Alertname] = true
				} else if strings.Contains(series, `cluster="a"`) && strings.Contains(series, `cluster="b"`) {
					fires[check.Alertname] = true
				}
			}
		}
		alerts, err := monitoring.Alerts(alertsFile)
		Expect(err).ToNot(HaveOccurred())
		Expect(alerts).ToNot(BeEmpty())
		for _, alert := range alerts {
			Expect(fires).To(HaveKey(alert.Name()), "no test makes it fire in one of two clusters")
			Expect(rests).To(HaveKey(alert.Name()), "no test keeps it from firing")
		}
	})
})
