// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
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
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
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

// Run evaluates the rules of the file over the test's history, and reports what fired otherwise than expected.
func (t *RuleTest) Run(file string, interval time.Duration) (err error) {
	input := &strings.Builder{}
	fmt.Fprintf(input, "load %s\n", t.Interval)
	for _, series := range t.InputSeries {
		fmt.Fprintf(input, "  %s %s\n", series.Series, series.Values)
	}
	history, err := promqltest.NewLazyLoader(input.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
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
	for _, check := range t.AlertRuleTest {
		last = max(last, time.Duration(check.EvalTime))
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
		for _, check := range t.AlertRuleTest {
			if time.Duration(check.EvalTime) != at {
				continue
			}
			var expected []string
			for _, alert := range check.ExpAlerts {
				builder := labels.NewBuilder(labels.FromMap(alert.ExpLabels))
				expected = append(expected, builder.Set(labels.AlertName, check.Alertname).Labels().String())
			}
			errs = append(errs, compare(check.Alertname, at, expected, firing(groups, check.Alertname)))
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
