// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a cluster and a project before Karpenter is installed, and an installation afterwards. Each finding
// says what is wrong, why it matters and which command fixes it.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Severity is how much a finding matters.
type Severity string

// The severities. Errors keep nodes from being launched or from joining; warnings cost money or will hurt later.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

var rank = map[Severity]int{Error: 0, Warning: 1, Info: 2}

// Finding is one thing that is not as it should be.
type Finding struct {
	// Code is stable, in CamelCase.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// What is wrong, on which object; Why it matters; Fix is a command or the change to make.
	What string `json:"what"`
	Why  string `json:"why"`
	Fix  string `json:"fix"`
	// VNDPerMonth is what it costs, where it costs.
	VNDPerMonth float64 `json:"vndPerMonth,omitempty"`
}

// Report is what was checked.
type Report struct {
	Findings []Finding `json:"findings"`
	// Passed are the checks that found nothing, Skipped those that could not look, and NotApplicable those that have nothing to look at, with the
	// reason.
	Passed        []string          `json:"passed"`
	Skipped       map[string]string `json:"skipped,omitempty"`
	NotApplicable map[string]string `json:"notApplicable,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	// Facts are what a preflight has found out, in the order of a launch.
	Facts []Fact `json:"facts,omitempty"`
}

// Fact is one thing that a launch depends on.
type Fact struct {
	Name string `json:"name"`
	// Value is what was found; empty where only a launch shows it, for the reason in Unknown.
	Value   string `json:"value,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

// Failed reports whether the exit status is one of failure: for errors and, where the user is strict, for warnings and checks that could not look.
func (r *Report) Failed(strict bool) bool {
	return strict && len(r.Skipped) > 0 || lo.ContainsBy(r.Findings, func(f Finding) bool { return f.Severity == Error || strict && f.Severity == Warning })
}

// nothingToCheckError is the error of a check that has nothing to look at.
type nothingToCheckError string

// Error says why.
func (n nothingToCheckError) Error() string { return string(n) }

// check looks at one thing. An error says that it could not look, or that there is nothing to look at.
type check struct {
	name string
	look func(ctx context.Context, d *examination) ([]Finding, error)
}

// examination is what the checks share.
type examination struct {
	*connect.Session
	facts []Fact
}

// know remembers a fact.
func (d *examination) know(name, format string, args ...any) {
	d.facts = append(d.facts, Fact{Name: name, Value: fmt.Sprintf(format, args...)})
}

// leave remembers what only a launch shows.
func (d *examination) leave(name, why string) {
	d.facts = append(d.facts, Fact{Name: name, Unknown: why})
}

var checks = []check{
	{"cluster", checkCluster},
	{"API server version", checkVersion},
	{"custom resource definitions", checkDefinitions},
	{"controller", checkController},
	{"controller's rights", checkRights},
	{"other autoscalers", checkAutoscalers},
	{"capacity buffers", checkBuffers},
	{"cloud controller manager", checkCCM},
	{"volumes", checkCSI},
	{"credentials and endpoint", checkCredentials},
	{"project", checkScope},
	{"BKE cluster", checkBKE},
	{"worker pools", checkPools},
	{"NodeClasses", checkNodeClasses},
	{"NodePools", checkNodePools},
	{"firewalls", checkFirewalls},
	{"metadata service", checkMetadata},
	{"rejected launches", checkRejections},
	{"servers without owner", checkServers},
	{"disks without owner", checkDisks},
	{"addresses without owner", checkAddresses},
}

// Examine runs every check. What cannot be looked at is skipped, and the report says why.
func Examine(ctx context.Context, s *connect.Session) *Report {
	report := examine(ctx, s, checks)
	report.Facts = nil
	return report
}

// PreflightTime bounds a preflight: an endpoint that never answers is told instead of awaited.
var PreflightTime = time.Minute

var errPreflightTime = errors.New("the time of a preflight was over before BizFly Cloud or the cluster had answered")

// Preflight runs the checks that need no installation, and finds out what a launch depends on. Where neither an installation nor the user names
// the BKE cluster, it is learned from its pools, as the page on the installation lets the controller do.
func Preflight(ctx context.Context, s *connect.Session) *Report {
	ctx, cancel := context.WithTimeoutCause(ctx, PreflightTime, errPreflightTime)
	defer cancel()
	nodes := &corev1.NodeList{}
	if s.Deployment == nil && s.Settings.BKEClusterID == "" && s.List(ctx, nodes, client.HasLabels{bke.LabelPoolNode}, client.Limit(1)) == nil &&
		len(nodes.Items) > 0 {
		s.Settings.BKEDiscoverFromPool = true
	}
	report := examine(ctx, s, preflight)
	report.Facts = append(report.Facts, unseen...)
	return report
}

func examine(ctx context.Context, s *connect.Session, checks []check) *Report {
	report := &Report{Findings: []Finding{}, Passed: []string{}, Skipped: map[string]string{}, NotApplicable: map[string]string{}}
	d := &examination{Session: s}
	for _, c := range checks {
		found, err := c.look(ctx, d)
		switch _, nothing := errors.AsType[nothingToCheckError](err); {
		case nothing, connect.IsMissing(err):
			report.NotApplicable[c.name] = err.Error()
		case err != nil:
			report.Skipped[c.name] = lo.CoalesceOrEmpty(context.Cause(ctx), err).Error()
		case len(found) == 0:
			report.Passed = append(report.Passed, c.name)
		}
		report.Findings = append(report.Findings, found...)
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	report.Notes, report.Facts = s.Notes, d.facts
	return report
}

func one(code string, severity Severity, what, why, fix string) []Finding {
	return []Finding{{Code: code, Severity: severity, What: what, Why: why, Fix: fix}}
}

// notReady returns why an object is not ready at its present generation, as its controllers have stored it; empty if it is ready.
func notReady(object status.Object) string {
	conditions := object.StatusConditions(status.WithObservedOnly())
	if root := conditions.Root(); root.IsTrue() && root.ObservedGeneration == object.GetGeneration() {
		return ""
	}
	causes := lo.FilterMap(conditions.List(), func(c status.Condition, _ int) (string, bool) {
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message),
			!c.IsTrue() && c.Type != status.ConditionReady && conditions.IsDependentCondition(c.Type)
	})
	return lo.CoalesceOrEmpty(strings.Join(causes, "; "), "the controller has not checked it yet")
}

// effects are what it means that a condition is False on which Ready does not depend, and which only the controller can find out.
var effects = map[string]string{
	v1alpha1.ConditionTypeWithinSpendingLimits: "launches that would exceed the limit do not happen, and their pods stay pending",
	v1alpha1.ConditionTypeControlPlaneRecognized: "no server is launched, deleted or rebooted, and garbage collection only " +
		"reports, until a user confirms the control plane",
	v1alpha1.ConditionTypeLaunchesSucceeding:  "no server is launched with it while launches pause",
	v1alpha1.ConditionTypeBillingPlanSuitable: "each launch is prepaid, so nodes that come and go cost more",
}

// reported are these conditions of an object, as the controller has stored them.
func reported(kind string, object status.Object) []Finding {
	return lo.FilterMap(object.GetConditions(), func(c status.Condition, _ int) (Finding, bool) {
		return Finding{
			Code: "ConditionFalse", Severity: Warning, What: fmt.Sprintf("%s %s: %s is False: %s: %s", kind, object.GetName(), c.Type, c.Reason, c.Message),
			Why: effects[c.Type], Fix: fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), object.GetName()),
		}, c.IsFalse() && effects[c.Type] != ""
	})
}

// installed reports whether a controller runs in the cluster.
func (d *examination) installed() bool { return d.Deployment != nil }

// namespace is that of the controller.
func (d *examination) namespace() string {
	if d.Deployment != nil {
		return d.Deployment.Namespace
	}
	return lo.CoalesceOrEmpty(d.Settings.Namespace, "karpenter")
}

// upgrade is the command that installs or upgrades a chart, in the release that the documentation names.
func (d *examination) upgrade(chart string) string {
	part := strings.TrimPrefix(chart, "karpenter-provider-bizflycloud")
	return fmt.Sprintf("helm upgrade --install karpenter%s charts/karpenter-provider-bizflycloud%s --namespace %s", part, part, d.namespace())
}

// set is the command that sets a value of the chart.
func (d *examination) set(value string) string {
	return fmt.Sprintf("helm upgrade karpenter charts/karpenter-provider-bizflycloud --namespace %s --reset-then-reuse-values --set %s", d.namespace(), value)
}

var severityColors = map[Severity]text.Color{Error: text.FgRed, Warning: text.FgYellow, Info: text.FgCyan}

// Print prints a report for users.
func Print(printer *output.Printer, r *Report) {
	for _, f := range r.Findings {
		printer.Printf("%s %s\n    %s\n    why: %s\n    fix: %s\n\n", printer.Paint(severityColors[f.Severity], fmt.Sprintf("%-7s", f.Severity)), f.Code, f.What,
			f.Why, f.Fix)
	}
	for _, fact := range r.Facts {
		if fact.Unknown != "" {
			printer.Printf("? %s: not known until the first launch: %s\n", fact.Name, fact.Unknown)
		} else {
			printer.Printf("  %s: %s\n", fact.Name, fact.Value)
		}
	}
	for _, name := range r.Passed {
		printer.Printf("%s %s\n", printer.Tick(true), name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		printer.Printf("- %s: not checked: %s\n", name, r.Skipped[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.NotApplicable)) {
		printer.Printf("- %s: nothing to check: %s\n", name, r.NotApplicable[name])
	}
	count := func(severity Severity) int {
		return lo.CountBy(r.Findings, func(f Finding) bool { return f.Severity == severity })
	}
	printer.Printf("\n%s, %s, %s passed, %d not checked\n", output.Plural(count(Error), "error"), output.Plural(count(Warning), "warning"),
		output.Plural(len(r.Passed), "check"), len(r.Skipped))
	if waste := lo.SumBy(r.Findings, func(f Finding) float64 { return f.VNDPerMonth }); waste > 0 {
		printer.Printf("Paid for without need: about %s VND per month\n", output.VND(waste))
	}
	printer.Notes(r.Notes)
}
