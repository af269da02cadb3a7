// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// planFlags are the flags of plan and the commands below it.
type planFlags struct {
	input.Options
	failUnplaced bool
	// failAbove is VND per month.
	failAbove float64
}

func (a *App) plan() *cobra.Command {
	var shared planFlags
	cmd := &cobra.Command{
		Use: "plan", Args: cobra.NoArgs, Short: "Compute which nodes Karpenter would run, how full they are and what they cost",
		Long: `plan lets Karpenter's own scheduler and this provider's launch code decide in memory. Nothing is launched.

Without -f it plans the workloads of the cluster from empty, with its NodePools, and compares the result with the nodes that
run today. With -f it plans manifests (a file, a folder, "-" for the output of helm template) or a table of pods (.csv with the
columns name, cpu, memory and optionally namespace, count, gpu, zone, category).

With -f it needs neither a cluster nor credentials: without them it uses a catalog and prices that are built in, and says so.`,
		Example: `  # What the workloads of this cluster would cost on Karpenter
  kubectl bizfly plan
  # What a chart would cost, with the NodePools of the cluster
  helm template shop ./shop | kubectl bizfly plan -f -
  # What manifests would cost, with the catalog that is built in; exit status 1 above 20 million VND per month
  kubectl bizfly plan -f app.yaml --offline --fail-above 20000000`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPlan(cmd.Context(), shared, nil) },
	}
	flags := cmd.PersistentFlags()
	flags.StringSliceVarP(&shared.Files, "filename", "f", nil, `manifests, folders, tables of pods (.csv), or "-" for the standard input`)
	flags.BoolVar(&shared.failUnplaced, "fail-on-unplaced", false, "exit with status 1 if a pod fits nowhere")
	flags.Float64Var(&shared.failAbove, "fail-above", 0, "exit with status 1 if a plan costs more VND per month; 0 is no limit")
	flags.BoolVar(&a.options.Offline, "offline", false, "plan manifests with the catalog that is built in, without cluster and credentials")
	cmd.Flags().BoolVar(&shared.Pending, "pending", false, "keep the nodes of the cluster and plan only the pods that are pending")
	cmd.AddCommand(&cobra.Command{
		Use: "compare FILE...", Args: cobra.MinimumNArgs(1), Short: "Plan with each of several files of NodePools and BizflyNodeClasses, side by side",
		Example: `  kubectl bizfly plan compare basic.yaml premium.yaml`,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.runPlan(cmd.Context(), shared, args) },
	}, a.suggest(&shared), a.explain(&shared))
	return cmd
}

// connectPlan makes session and printer, and completes the options.
func (a *App) connectPlan(ctx context.Context, flags *planFlags) (context.Context, *connect.Session, *output.Printer, error) {
	flags.Stdin, flags.Namespace = a.In, a.namespace()
	a.options.AllowOffline = true
	return a.connect(ctx)
}

// runPlan plans with the NodePools of each file in place of those of the cluster; with those, where there is none.
func (a *App) runPlan(ctx context.Context, flags planFlags, files []string) error {
	ctx, s, printer, err := a.connectPlan(ctx, &flags)
	if err != nil {
		return err
	}
	defer func() { printer.Notes(s.Notes) }()
	show, end := progress(printer)
	plans, err := plan.Compute(ctx, s, plan.Options{Options: flags.Options, Alternatives: files, OnStart: func(pods int) { show("planning %d pods", pods) }})
	end()
	if err != nil {
		return err
	}
	if err := printPlans(printer, plans, len(files) > 0); err != nil {
		return err
	}
	return flags.failed(printer, lo.Map(plans, func(p *plan.Plan, _ int) bill { return bill{p.VNDPerMonth, len(p.Unplaced)} })...)
}

// bill is what decides about the exit status.
type bill struct {
	vndPerMonth float64
	unplaced    int
}

// failed returns the error of the exit status that the user asks for.
func (f *planFlags) failed(printer *output.Printer, bills ...bill) error {
	highest := lo.Max(lo.Map(bills, func(b bill, _ int) float64 { return b.vndPerMonth }))
	above := f.failAbove > 0 && highest > f.failAbove
	if above {
		printer.Notes([]string{fmt.Sprintf("%s VND per month are above %s (--fail-above)", output.VND(highest), output.VND(f.failAbove))})
	}
	if above || f.failUnplaced && lo.ContainsBy(bills, func(b bill) bool { return b.unplaced > 0 }) {
		return errFindings
	}
	return nil
}

func printPlans(printer *output.Printer, plans []*plan.Plan, compared bool) error {
	var value any = plans
	if !compared {
		value = plans[0]
	}
	if done, err := printer.Value(value); done {
		return err
	}
	for i, p := range plans {
		if i == 0 {
			printAssumed(printer, p.Catalog, p.Assumed)
		}
		if p.Name != "" {
			printer.Printf("== %s ==\n", p.Name)
		}
		printPlan(printer, p)
	}
	if len(plans) > 1 {
		printComparison(printer, plans)
	}
	return nil
}

func printPlan(printer *output.Printer, p *plan.Plan) {
	if len(p.Nodes) > 0 {
		printer.Rows([]string{"NodePool", "Flavor", "Zone", ">Nodes", ">VND/hour", ">VND/month", "CPU", "Memory", "Limited by"},
			lo.Map(p.Groups(), func(g plan.Group, _ int) []string {
				return []string{
					g.NodePool, g.Flavor, g.Zone, strconv.Itoa(g.Count), output.VND(g.VNDPerHour), output.VND(g.VNDPerHour * price.HoursPerMonth),
					printer.Bar(g.Used[corev1.ResourceCPU], 10), printer.Bar(g.Used[corev1.ResourceMemory], 10), string(g.LimitedBy),
				}
			}))
	}
	printer.Printf("\n%s on %s", output.Plural(p.Pods-p.OnExisting-len(p.Unplaced), "pod"), output.Plural(len(p.Nodes), "new node"))
	if p.OnExisting > 0 {
		printer.Printf(", %d on nodes that exist", p.OnExisting)
	}
	printer.Printf(": %s VND per hour, %s VND per month (720 h, without VAT)\n", output.VND(p.VNDPerHour), output.VND(p.VNDPerMonth))
	if t := p.Today; t != nil && t.Nodes > 0 {
		printer.Printf("Today: %s, %s VND per hour, %s VND per month%s", output.Plural(t.Nodes, "node"), output.VND(t.VNDPerHour),
			output.VND(t.VNDPerMonth), without(t.Unpriced))
		same := t.VNDPerHour + t.AddedVNDPerHour
		if t.Waiting > 0 {
			printer.Printf("; with %s for the %s without a node%s, %s VND per hour", output.Plural(t.AddedNodes, "more node"),
				output.Plural(t.Waiting, "pod"), lo.Ternary(t.Unplaced > 0, fmt.Sprintf(", %d of which fit nowhere", t.Unplaced), ""), output.VND(same))
		}
		if same > 0 && len(p.Unplaced)+t.Unplaced == 0 && t.Unpriced == 0 {
			staying := lo.Ternary(t.Staying > 0, " with "+output.Plural(t.Staying, "node")+lo.Ternary(t.Staying > 1, " that stay", " that stays"), "")
			printer.Printf("; the plan%s costs %+.0f%%", staying, ((p.VNDPerHour+t.StayingVNDPerHour)/same-1)*100)
		}
		printer.Printf("\n")
	}
	if len(p.Elsewhere) > 0 {
		printer.Printf("Not planned: %s that may not run on Karpenter's nodes (%s)\n", output.Plural(len(p.Elsewhere), "pod"),
			strings.Join(lo.Map(p.Elsewhere, func(u sim.Unplaced, _ int) string { return u.Namespace + "/" + u.Name }), ", "))
	}
	printUnplaced(printer, p.Unplaced)
	printer.Notes(p.Notes)
}

// printUnplaced prints each reason once: a hundred replicas have the same.
func printUnplaced(printer *output.Printer, unplaced []sim.Unplaced) {
	if len(unplaced) == 0 {
		return
	}
	printer.Printf("\n%s without a place:\n", output.Plural(len(unplaced), "pod"))
	byReason := lo.GroupBy(unplaced, func(u sim.Unplaced) string { return u.Reason })
	reasons := lo.Keys(byReason)
	slices.SortFunc(reasons, func(a, b string) int { return strings.Compare(byReason[a][0].Name, byReason[b][0].Name) })
	for _, reason := range reasons {
		names := lo.Map(byReason[reason], func(u sim.Unplaced, _ int) string { return u.Namespace + "/" + u.Name })
		printer.Printf("  %s: %s\n", output.Names(names, 1), reason)
	}
}

func printComparison(printer *output.Printer, plans []*plan.Plan) {
	cheapest := lo.MinBy(plans, func(a, b *plan.Plan) bool {
		return len(a.Unplaced) < len(b.Unplaced) || len(a.Unplaced) == len(b.Unplaced) && a.VNDPerHour < b.VNDPerHour
	})
	printer.Printf("\n")
	printer.Rows([]string{"Alternative", ">Nodes", ">VND/hour", ">VND/month", ">CPU used", ">Memory used", ">Unplaced", ""},
		lo.Map(plans, func(p *plan.Plan, _ int) []string {
			return []string{
				p.Name, strconv.Itoa(len(p.Nodes)), output.VND(p.VNDPerHour), output.VND(p.VNDPerMonth), output.Percent(p.Used(corev1.ResourceCPU)),
				output.Percent(p.Used(corev1.ResourceMemory)), strconv.Itoa(len(p.Unplaced)), lo.Ternary(p == cheapest, "cheapest", ""),
			}
		}))
}

// printAssumed says what a plan without cluster or credentials is made of.
func printAssumed(printer *output.Printer, catalog *connect.Catalog, assumed []string) {
	if catalog != nil {
		printer.Printf("Offline: the catalog that is built in, %d flavors in %s of region %s as public sources show them, with estimated prices of %s.\n",
			catalog.Flavors, strings.Join(catalog.Zones, " and "), catalog.Region, catalog.PricesAsOf)
	}
	if len(assumed) > 0 {
		printer.Printf("Assumed, since the manifests have none: %s of the default sample, without limits.\n", strings.Join(assumed, " and "))
	}
	if catalog != nil || len(assumed) > 0 {
		printer.Printf("\n")
	}
}
