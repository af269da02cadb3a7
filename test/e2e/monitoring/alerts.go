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

// RuleTests is a file for `promtool test rules`. It is evaluated here with the packages that promtool is made of, since promtool itself
// takes many minutes to compile: it has the libraries of all clouds.
type RuleTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []RuleTest     `yaml:"tests"`
}

// RuleTest is one history of series, and what fires when.
type RuleTest struct {
	Name        string `yaml:"name"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertRuleTest []struct {
		EvalTime  model.Duration `yaml:"eval_time"`
		Alertname string         `yaml:"alertname"`
		ExpAlerts []struct {
			ExpLabels      map[string]string `yaml:"exp_labels"`
			ExpAnnotations map[string]string `yaml:"exp_annotations"`
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
	groups, err := load(&rules.ManagerOptions{Context: context.Background()}, time.Minute, file)
	if err != nil {
		return nil, err
	}
	var alerts []*rules.AlertingRule
	for _, group := range groups {
		if len(group.AlertingRules()) != len(group.Rules()) {
			return nil, fmt.Errorf("a rule of the group %s is no alert", group.Name())
		}
		alerts = append(alerts, group.AlertingRules()...)
	}
	return alerts, nil
}

func load(options *rules.ManagerOptions, interval time.Duration, files ...string) ([]*rules.Group, error) {
	options.Logger = slog.New(slog.DiscardHandler)
	options.Parser = parser.NewParser(parser.Options{})
	options.NotifyFunc = func(context.Context, string, ...*rules.Alert) {}
	byName, errs := rules.NewManager(options).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, files...)
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

// Run evaluates all rules over the test's history, as promtool does, and reports what fired otherwise than expected.
func (t *RuleTests) Run(test *RuleTest) (err error) {
	input, last, interval := "load "+t.EvaluationInterval.String()+"\n", time.Duration(0), time.Duration(t.EvaluationInterval)
	for _, series := range test.InputSeries {
		input += "  " + series.Series + " " + series.Values + "\n"
	}
	for _, check := range test.AlertRuleTest {
		last = max(last, time.Duration(check.EvalTime))
	}
	history, err := promqltest.NewLazyLoader(input, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return fmt.Errorf("reading the series: %w", err)
	}
	defer func() { err = errors.Join(err, history.Close()) }()
	groups, err := load(&rules.ManagerOptions{
		Context: history.Context(), Appendable: history.Storage(), Queryable: history.Queryable(),
		QueryFunc: rules.EngineQueryFunc(history.QueryEngine(), history.Storage()),
	}, interval, t.RuleFiles...)
	if err != nil {
		return err
	}
	var errs []error
	for at := time.Duration(0); at <= last; at += interval {
		history.WithSamplesTill(time.Unix(0, 0).UTC().Add(at), func(err error) { errs = append(errs, err) })
		for _, group := range groups {
			group.Eval(history.Context(), time.Unix(0, 0).UTC().Add(at))
			for _, rule := range group.Rules() {
				errs = append(errs, rule.LastError())
			}
		}
		for _, check := range test.AlertRuleTest {
			if time.Duration(check.EvalTime) != at {
				continue
			}
			var expected []string
			for _, alert := range check.ExpAlerts {
				of := labels.NewBuilder(labels.FromMap(alert.ExpLabels)).Set(labels.AlertName, check.Alertname).Labels()
				expected = append(expected, of.String()+" with "+labels.FromMap(alert.ExpAnnotations).String())
			}
			if got := firing(groups, check.Alertname); !slices.Equal(slices.Sorted(slices.Values(expected)), got) {
				errs = append(errs, fmt.Errorf("%s after %s: expected %v, and %v fired", check.Alertname, at, expected, got))
			}
		}
	}
	return errors.Join(errs...)
}

// firing are the alerts of the name that fire.
func firing(groups []*rules.Group, name string) []string {
	var all []string
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			for _, alert := range rule.ActiveAlerts() {
				if rule.Name() == name && alert.State == rules.StateFiring {
					all = append(all, alert.Labels.String()+" with "+alert.Annotations.String())
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
