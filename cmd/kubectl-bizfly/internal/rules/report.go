// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
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
	// name is what why calls it, where a rule has several things to say, and remedies are what may help a pod.
	name     string
	remedies []remedy
}

// Report is what was checked.
type Report struct {
	Findings []Finding `json:"findings"`
	// Passed is what is in order: every rule about it holds. Skipped is what is not known, and NotApplicable what there is
	// nothing to check of, with the reason.
	Passed        []string          `json:"passed"`
	Skipped       map[string]string `json:"skipped,omitempty"`
	NotApplicable map[string]string `json:"notApplicable,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	// Facts are what a preflight has found out, in the order of a launch.
	Facts []Known `json:"facts,omitempty"`
	// Read is what the report was made from.
	Read []Read `json:"read,omitempty"`
}

// Known is one thing that a launch depends on.
type Known struct {
	Name string `json:"name"`
	// Value is what was found; empty where only a launch shows it, for the reason in Unknown.
	Value   string `json:"value,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

// Read is when a fact was read, and why it is not known.
type Read struct {
	Name  string    `json:"name"`
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"`
}

// Failed reports whether the exit status is one of failure: for errors and, where the user is strict, for warnings and
// for what is not known.
func (r *Report) Failed(strict bool) bool {
	return strict && len(r.Skipped) > 0 || lo.ContainsBy(r.Findings, func(f Finding) bool {
		return f.Severity == Error || strict && f.Severity == Warning
	})
}

// Examine applies the rules about an installation.
func Examine(ctx context.Context, s *connect.Session) *Report {
	report := examine(ctx, newReading(s), installationRules)
	report.Facts = nil
	return report
}

// PreflightTime bounds a preflight: an endpoint that never answers is told instead of awaited.
var PreflightTime = time.Minute

var errPreflightTime = errors.New("the time of a preflight was over before BizFly Cloud or the cluster had answered")

// unseen is what no request shows.
var unseen = []Known{
	{Name: "quota of servers, vCPUs, memory, disks and addresses",
		Unknown: "BizFly Cloud has no request that shows it; kubectl bizfly doctor reports rejections"},
	{Name: "boot and join", Unknown: "no server was created"},
	{Name: "whether a started hour is charged in full", Unknown: "BizFly Cloud has no request that shows it; the line of a server that " +
		"lived 10 minutes in an invoice does (docs/concepts/pricing.md), and billingPeriod of the tuning is set by it"},
}

// Preflight applies the rules that need no installation, each request of which is a login or only reads, and finds out
// what a launch depends on. Where neither an installation nor the user names the BKE cluster, it is learned from its
// pools, as the page on the installation lets the controller do.
func Preflight(ctx context.Context, s *connect.Session) *Report {
	ctx, cancel := context.WithTimeoutCause(ctx, PreflightTime, errPreflightTime)
	defer cancel()
	nodes := &corev1.NodeList{}
	if s.Deployment == nil && s.Settings.BKEClusterID == "" && s.List(ctx, nodes, client.HasLabels{bke.LabelPoolNode},
		client.Limit(1)) == nil && len(nodes.Items) > 0 {
		s.Settings.BKEDiscoverFromPool = true
	}
	report := examine(ctx, newReading(s), preflightRules)
	report.Facts = append(report.Facts, unseen...)
	return report
}

// examine applies the rules, and reports what all rules about one thing come to.
func examine(ctx context.Context, facts *reading, rules []rule) *Report {
	report := &Report{Findings: []Finding{}, Passed: []string{}, Skipped: map[string]string{},
		NotApplicable: map[string]string{}}
	byAbout := map[string][]outcome{}
	for i := range rules {
		result := rules[i].apply(ctx, facts)
		byAbout[rules[i].about] = append(byAbout[rules[i].about], result)
		report.Findings, report.Facts = append(report.Findings, result.findings...), append(report.Facts, result.known...)
	}
	for _, about := range lo.Uniq(lo.Map(rules, func(r rule, _ int) string { return r.about })) {
		reasons := func(of state) string {
			return strings.Join(lo.Uniq(lo.FilterMap(byAbout[about], func(o outcome, _ int) (string, bool) {
				return o.reason, o.state == of
			})), "; ")
		}
		has := func(of state) bool {
			return lo.ContainsBy(byAbout[about], func(o outcome) bool { return o.state == of })
		}
		switch {
		case has(notKnown):
			report.Skipped[about] = reasons(notKnown)
		case has(fails):
		case has(holds):
			report.Passed = append(report.Passed, about)
		default:
			report.NotApplicable[about] = reasons(doesNotApply)
		}
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int {
		return cmp.Compare(rank[a.Severity], rank[b.Severity])
	})
	report.Notes = facts.Notes
	for _, name := range slices.Sorted(maps.Keys(facts.facts)) {
		fact := Read{Name: name, At: facts.facts[name].at}
		if err := facts.facts[name].err; err != nil {
			fact.Error = err.Error()
		}
		report.Read = append(report.Read, fact)
	}
	return report
}

var severityColors = map[Severity]text.Color{Error: text.FgRed, Warning: text.FgYellow, Info: text.FgCyan}

// Print prints a report for users.
func Print(printer *output.Printer, r *Report) {
	for _, f := range r.Findings {
		printer.Printf("%s %s\n    %s\n    why: %s\n    fix: %s\n\n", printer.Paint(severityColors[f.Severity],
			fmt.Sprintf("%-7s", f.Severity)), f.Code, f.What,
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
	printer.Printf("\n%s, %s, %s passed, %d not checked\n", output.Plural(count(Error), "error"),
		output.Plural(count(Warning), "warning"),
		output.Plural(len(r.Passed), "check"), len(r.Skipped))
	if waste := lo.SumBy(r.Findings, func(f Finding) float64 { return f.VNDPerMonth }); waste > 0 {
		printer.Printf("Paid for without need: about %s VND per month\n", output.VND(waste))
	}
	printer.Notes(r.Notes)
}

// list names some of many.
func list(names []string) string {
	return output.Names(names, 5)
}

// installationRules are what doctor checks, in the order of its report.
var installationRules = slices.Concat(
	clusterRules, installedRules, credentialRules, accountRules, scopeRules, bkeRules, workerPoolRules, autoscalerRules,
	ccmRules, nodeClassRules, storedRules, allPoolsRules, flavorRules, overlayRules, volumeRules,
	firewallRules, metadataRules, launchRules, serverRules, leftoverRules,
)

// preflightRules are those that need no installation.
var preflightRules = slices.Concat(
	clusterRules, credentialRules, accountRules, serviceRules, volumeTypeRules, bkeRules, joinRules, workerPoolRules,
	autoscalerRules, ccmRules, poolServerRules, nodeClassRules, flavorRules, volumeRules,
	lo.Map(flavorsOfPool, ofAll),
)

// Described is a rule as the page of the plugin lists it.
type Described struct {
	Code, About string
	Severity    Severity
	Why         string
}

// PodCodes are the rules by which why decides about a NodePool.
func PodCodes() []string {
	return lo.Uniq(lo.Map(podRules, func(r rule, _ int) string { return r.code }))
}

// Codes are the rules of doctor and its preflight, once each.
func Codes() []Described {
	all := lo.Filter(slices.Concat(installationRules, preflightRules), func(r rule, _ int) bool { return r.code != "" })
	return lo.Map(lo.UniqBy(all, func(r rule) string { return r.code }), func(r rule, _ int) Described {
		return Described{r.code, r.about, r.severity, r.why}
	})
}
