// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// RuleTests is a file of tests of alerts, in the form of promtool's.
type RuleTests struct {
	// EvaluationInterval is how often the rules are evaluated.
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	// Tests are the tests.
	Tests []RuleTest `yaml:"tests"`
	// RuleFiles are for promtool alone.
	RuleFiles []string `yaml:"rule_files"`
}

// RuleTest is one history of series, and what fires when.
type RuleTest struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	// Alone is a Prometheus without any controller: the series are as they are, and no other cluster is there.
	Alone       bool `yaml:"alone"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertRuleTest []struct {
		EvalTime  model.Duration `yaml:"eval_time"`
		Alertname string         `yaml:"alertname"`
		ExpAlerts []struct {
			ExpLabels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// Rests reports whether the test is of an alert that never fires.
func (t *RuleTest) Rests() bool {
	for _, check := range t.AlertRuleTest {
		if len(check.ExpAlerts) > 0 {
			return false
		}
	}
	return !t.Alone
}

// ReadRuleTests reads a file of tests.
func ReadRuleTests(file string) (*RuleTests, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	tests := &RuleTests{}
	if err := decoder.Decode(tests); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tests, nil
}

// Alerts loads the alerting rules of a file with Prometheus's own manager, which also checks their templates.
func Alerts(file string) ([]*rules.AlertingRule, error) {
	groups, err := load(&rules.ManagerOptions{Context: context.Background()}, file, time.Minute)
	if err != nil {
		return nil, err
	}
	var alerts []*rules.AlertingRule
	for _, group := range groups {
		for _, rule := range group.Rules() {
			alert, ok := rule.(*rules.AlertingRule)
			if !ok {
				return nil, fmt.Errorf("%s is no alert", rule.Name())
			}
			alerts = append(alerts, alert)
		}
	}
	return alerts, nil
}

func load(options *rules.ManagerOptions, file string, interval time.Duration) ([]*rules.Group, error) {
	options.Logger = slog.New(slog.DiscardHandler)
	options.Parser = parser.NewParser(parser.Options{})
	options.NotifyFunc = func(context.Context, string, ...*rules.Alert) {}
	byName, errs := rules.NewManager(options).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("loading the rules: %w", err)
	}
	groups := make([]*rules.Group, 0, len(byName))
	for _, group := range byName {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b *rules.Group) int { return strings.Compare(a.Name(), b.Name()) })
	return groups, nil
}

// expected is what must fire at a time.
type expected struct {
	at     time.Duration
	name   string
	labels []string
}

// twoClusters returns the series of one Prometheus that scrapes two clusters, and what must fire. Cluster has the test's
// history, and thereafter that of rest, a history in which the alert rests. Late has that of rest all the time, so that
// nothing must ever fire for it.
func (t *RuleTest) twoClusters(rest *RuleTest) (input string, checks []expected, err error) {
	text := &strings.Builder{}
	fmt.Fprintf(text, "load %s\n", t.Interval)
	if t.Alone {
		for _, series := range t.InputSeries {
			fmt.Fprintf(text, "  %s %s\n", series.Series, series.Values)
		}
		return text.String(), t.expected(nil), nil
	}
	first, firstSteps, err := t.series(Cluster)
	if err != nil {
		return "", nil, err
	}
	then, restSteps, err := rest.series(Cluster)
	if err != nil {
		return "", nil, err
	}
	for series, values := range first {
		fmt.Fprintf(text, "  %s %s %s\n", series, values, cmp.Or(then[series], "stale"))
		delete(then, series)
	}
	for series, values := range then {
		fmt.Fprintf(text, "  %s _x%d %s\n", series, firstSteps, values)
	}
	other, _, err := rest.series(Late)
	if err != nil {
		return "", nil, err
	}
	for series, values := range other {
		fmt.Fprintf(text, "  %s %s\n", series, strings.Repeat(values+" ", (firstSteps+restSteps)/restSteps+1))
	}
	checks = t.expected(map[string]string{"cluster": Cluster, "job": target["job"], "namespace": target["namespace"]})
	end := time.Duration(t.Interval) * time.Duration(firstSteps+restSteps-1)
	return text.String(), append(checks, expected{at: end, name: checks[0].name}), nil
}

// series returns the values by series, with the labels of a cluster's target, and how many values the longest has.
// A cluster has a controller unless the test is about just that.
func (t *RuleTest) series(cluster string) (map[string]string, int, error) {
	all, steps, about := map[string]string{}, 0, false
	for _, in := range t.InputSeries {
		series, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in.Series + " " + in.Values)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", in.Series, err)
		}
		about = about || series.Get(labels.MetricName) == buildInfo
		all[labelled(series, cluster)] = in.Values
		steps = max(steps, len(values))
	}
	if !about {
		all[labelled(labels.FromStrings(labels.MetricName, buildInfo), cluster)] = fmt.Sprintf("1x%d", steps-1)
	}
	return all, steps, nil
}

// buildInfo is a metric that this controller alone has.
const buildInfo = "karpenter_bizfly_build_info"

// labelled adds the labels of the target. A series keeps its own namespace, as with honorLabels.
func labelled(series labels.Labels, cluster string) string {
	namespace := cmp.Or(series.Get("namespace"), target["namespace"])
	return labels.NewBuilder(series).Set("cluster", cluster).Set("job", target["job"]).Set("namespace", namespace).Labels().String()
}

// expected are the test's checks, with labels that every alert has.
func (t *RuleTest) expected(with map[string]string) []expected {
	var checks []expected
	for _, check := range t.AlertRuleTest {
		e := expected{at: time.Duration(check.EvalTime), name: check.Alertname}
		for _, alert := range check.ExpAlerts {
			builder := labels.NewBuilder(labels.FromMap(alert.ExpLabels)).Set(labels.AlertName, check.Alertname)
			for name, value := range with {
				builder.Set(name, value)
			}
			e.labels = append(e.labels, builder.Labels().String())
		}
		checks = append(checks, e)
	}
	return checks
}

// Run evaluates the rules of the file over the test's history in one of two clusters, followed by that of rest, and
// reports what fired otherwise than expected.
func (t *RuleTest) Run(file string, interval time.Duration, rest *RuleTest) (err error) {
	input, checks, err := t.twoClusters(rest)
	if err != nil {
		return err
	}
	history, err := promqltest.NewLazyLoader(input, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return fmt.Errorf("reading the series: %w", err)
	}
	defer func() { err = errors.Join(err, history.Close()) }()
	groups, err := load(&rules.ManagerOptions{
		Context: history.Context(), Appendable: history.Storage(), Queryable: history.Queryable(),
		QueryFunc: rules.EngineQueryFunc(history.QueryEngine(), history.Storage()),
	}, file, interval)
	if err != nil {
		return err
	}
	start, last := time.Unix(0, 0).UTC(), time.Duration(0)
	for _, check := range checks {
		last = max(last, check.at)
	}
	var errs []error
	for at := time.Duration(0); at <= last; at += interval {
		history.WithSamplesTill(start.Add(at), func(err error) { errs = append(errs, err) })
		for _, group := range groups {
			group.Eval(history.Context(), start.Add(at))
			for _, rule := range group.Rules() {
				errs = append(errs, rule.LastError())
			}
		}
		for _, check := range checks {
			if check.at == at {
				errs = append(errs, compare(check.name, at, check.labels, firing(groups, check.name)))
			}
		}
	}
	return errors.Join(errs...)
}

// firing are the labels of the alerts of the name that fire.
func firing(groups []*rules.Group, name string) []string {
	var all []string
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			for _, alert := range rule.ActiveAlerts() {
				if rule.Name() == name && alert.State == rules.StateFiring {
					all = append(all, alert.Labels.String())
				}
			}
		}
	}
	return all
}

func compare(name string, at time.Duration, expected, got []string) error {
	slices.Sort(expected)
	slices.Sort(got)
	if slices.Equal(expected, got) {
		return nil
	}
	return fmt.Errorf("%s after %s: expected %v, and %v fired", name, at, expected, got)
}
