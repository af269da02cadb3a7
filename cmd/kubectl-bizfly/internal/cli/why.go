// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
)

func (a *App) why() *cobra.Command {
	return &cobra.Command{
		Use: "why POD | TYPE/NAME", Args: cobra.ExactArgs(1),
		Short: "Explain why a pod is pending, or show the timeline of a NodeClaim or Node",
		Example: `  kubectl bizfly why web-6f7d-abcde -n shop
  kubectl bizfly why deploy/web -n shop
  kubectl bizfly why nodepool/default
  kubectl bizfly why nodeclaim/default-x7k2p
  kubectl bizfly why node/default-x7k2p-1a2b3c`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			kind, name, qualified := strings.Cut(args[0], "/")
			if !qualified {
				kind, name = "pod", args[0]
			}
			switch strings.ToLower(kind) {
			case "pod", "pods", "po":
				answer, err := rules.ForPod(ctx, s, types.NamespacedName{Namespace: a.namespace(), Name: name})
				return finish(printer, answer, err, printPod)
			case "nodeclaim", "nodeclaims", "nodeclaims.karpenter.sh":
				answer, err := rules.ForNodeClaim(ctx, s, name)
				return finish(printer, answer, err, printLife)
			case "nodepool", "nodepools", "nodepools.karpenter.sh":
				answer, err := rules.ForNodePool(ctx, s, name)
				return finish(printer, answer, err, printNodePool)
			case "node", "nodes", "no":
				answer, err := rules.ForNode(ctx, s, name)
				return finish(printer, answer, err, printLife)
			}
			key := types.NamespacedName{Namespace: a.namespace(), Name: name}
			if answer, known, err := rules.ForWorkload(ctx, s, strings.ToLower(kind), key); known {
				return finish(printer, answer, err, printPod)
			}
			return fmt.Errorf("%q is neither a pod, nor deploy/NAME, sts/NAME, rs/NAME, job/NAME, nodepool/NAME, nodeclaim/NAME or node/NAME", args[0])
		},
	}
}

// namespace is that of the flag or of the kubeconfig's context.
func (a *App) namespace() string {
	if a.flags.Namespace != nil && *a.flags.Namespace != "" {
		return *a.flags.Namespace
	}
	if a.Connect == nil {
		if namespace, _, err := a.flags.ToRawKubeConfigLoader().Namespace(); err == nil && namespace != "" {
			return namespace
		}
	}
	return "default"
}

// finish prints an answer.
func finish[T any](printer *output.Printer, answer T, err error, table func(*output.Printer, T)) error {
	if err != nil {
		return err
	}
	if done, err := printer.Value(answer); done {
		return err
	}
	table(printer, answer)
	return nil
}

func printPod(printer *output.Printer, p *rules.Pod) {
	printer.Printf("Pod %s\n  %s\n", p.Name, p.State)
	if p.Outcome != "" {
		printer.Printf("  %s\n", p.Outcome)
	}
	alike := lo.GroupBy(p.Pools, rules.Pool.Obstacles)
	for _, pool := range lo.UniqBy(p.Pools, rules.Pool.Obstacles) {
		printer.Printf("\n")
		printPool(printer, pool, "it can run the pod", "it cannot run the pod")
		if others := alike[pool.Obstacles()][1:]; len(others) > 0 {
			names := lo.Map(others, func(other rules.Pool, _ int) string { return other.Name })
			printer.Printf("The same prevents %s: %s\n", output.Plural(len(others), "other NodePool"), strings.Join(names, ", "))
		}
	}
	printHelp(printer, p.Help)
	printTimeline(printer, p.Events)
	printer.Notes(p.Notes)
}

// printPool prints what a NodePool can do, cannot do, or may be able to do where not everything is known.
func printPool(printer *output.Printer, pool rules.Pool, can, cannot string) {
	known := lo.NoneBy(pool.Checks, func(c rules.Check) bool { return c.Unknown })
	failed := lo.ContainsBy(pool.Checks, func(c rules.Check) bool { return !c.OK && !c.Unknown })
	answer := lo.Ternary(failed, cannot, lo.Ternary(known, can, "what is known does not prevent it, and not everything is known"))
	printer.Printf("NodePool %s: %s\n", pool.Name, answer)
	// What is not known for the same reason is one line.
	byReason := lo.GroupBy(pool.Checks, func(c rules.Check) string { return lo.Ternary(c.Unknown, c.Detail, "") })
	for _, check := range pool.Checks {
		if !check.Unknown {
			printer.Printf("  %s %s: %s\n", printer.Tick(check.OK), check.Name, check.Detail)
		} else if same := byReason[check.Detail]; len(same) > 0 {
			names := lo.Uniq(lo.Map(same, func(c rules.Check, _ int) string { return c.Name }))
			printer.Printf("  ? %s: not known: %s\n", strings.Join(names, ", "), check.Detail)
			delete(byReason, check.Detail)
		}
	}
}

// printNodePool prints what why says of a NodePool.
func printNodePool(printer *output.Printer, pool *rules.NodePool) {
	printPool(printer, pool.Pool, "nodes can be launched for it", "no node can be launched for it")
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			printer.Printf("\n%s\n  - %s\n", title, strings.Join(lines, "\n  - "))
		}
	}
	section("Flavors:", pool.Filters)
	section("Unavailable offerings:", pool.Unavailable)
	section("Failures within an hour:", pool.Failures)
	section(fmt.Sprintf("Pods that went elsewhere (its weight is %d):", pool.Weight), pool.Elsewhere)
	section("Budgets that cannot be meant:", pool.Impossible)
	printer.Printf("\nHow many nodes its budgets let Karpenter disrupt in the next seven days, in local time:\n")
	const layout = "Mon 15:04"
	for _, reason := range slices.Sorted(maps.Keys(pool.Week)) {
		printer.Printf("  %s: %s\n", reason, strings.Join(lo.Map(pool.Week[reason], func(w rules.Window, _ int) string {
			return fmt.Sprintf("%d until %s", w.Allowed, w.To.Local().Format(layout))
		}), ", "))
	}
}

func printLife(printer *output.Printer, l *rules.Life) {
	printer.Printf("NodeClaim %s, node %s, server %s\n", lo.CoalesceOrEmpty(l.NodeClaim, "-"), lo.CoalesceOrEmpty(l.Node, "-"), lo.CoalesceOrEmpty(l.Server, "-"))
	printer.Printf("  Now: %s\n  Disruption: %s\n", l.Now, l.Disruption)
	printHelp(printer, l.Help)
	printTimeline(printer, l.Timeline)
}

func printHelp(printer *output.Printer, list []string) {
	if len(list) == 0 {
		return
	}
	printer.Printf("\nWhat would help:\n")
	for _, help := range list {
		printer.Printf("  - %s\n", help)
	}
}

func printTimeline(printer *output.Printer, entries []rules.Entry) {
	if len(entries) == 0 {
		return
	}
	printer.Printf("\n")
	printer.Rows([]string{"Time", "From", "", "What"}, lo.Map(entries, func(e rules.Entry, _ int) []string {
		at := lo.Ternary(e.Time.IsZero(), "now", e.Time.Local().Format(time.DateTime))
		return []string{at, e.From, lo.Ternary(e.Problem, printer.Paint(text.FgRed, "!"), ""), e.What}
	}))
}
