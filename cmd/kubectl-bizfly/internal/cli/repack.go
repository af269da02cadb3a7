// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
)

// repacked is what repack prints for programs.
type repacked struct {
	*repack.Proposal
	// Outcome is set where it was carried out.
	Outcome *repack.Outcome `json:"outcome,omitempty"`
}

func (a *App) repack() *cobra.Command {
	var runner repack.Runner
	var yes bool
	cmd := &cobra.Command{
		Use: "repack [NODEPOOL]", Args: cobra.MaximumNArgs(1),
		Short: "Replace nodes of a NodePool by cheaper ones where consolidation cannot, m nodes by n",
		Long: `repack shows which nodes of a NodePool would be replaced by which others, what that saves, which pods move, and which
PodDisruptionBudgets apply. With --yes it does it.

It only adds nodes and pods that hold them: Karpenter's own consolidation moves the pods. You can interrupt it at any point: it
comes to all of it, or to nothing (docs/how-to/repack.md).`,
		Example: `  # What would be replaced, and what it saves
  kubectl bizfly repack default
  # Do it
  kubectl bizfly repack default --yes -n karpenter`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			proposal, err := repack.Compute(ctx, s, lo.FirstOrEmpty(args), a.namespace())
			if err != nil {
				return err
			}
			result := repacked{Proposal: proposal}
			if printer.Format == output.Table {
				printProposal(printer, proposal)
			}
			if yes && len(proposal.Replaced) > 0 {
				outcome, failed := a.carryOut(ctx, s, printer, runner, proposal)
				// Without a price it has not begun.
				if outcome.VNDPerHour > 0 {
					result.Outcome = &outcome
				}
				if err = failed; failed == nil && len(outcome.Left) > 0 {
					err = errFindings
				}
			}
			if done, unwritten := printer.Value(result); done {
				return cmp.Or(err, unwritten)
			}
			switch {
			case result.Outcome != nil:
				printOutcome(printer, *result.Outcome)
			case err == nil && len(proposal.Replaced) > 0:
				printer.Printf("\n%s\n", a.doIt("repack", proposal.NodePool))
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it: create the NodeClaims, Jobs and pods")
	cmd.Flags().StringVar(&runner.Image, "hold-image", repack.HoldImage, "the image of the pods that it creates; their containers are never needed to start")
	return cmd
}

// carryOut runs a proposal and shows how far it is.
func (a *App) carryOut(ctx context.Context, s *connect.Session, printer *output.Printer, runner repack.Runner, p *repack.Proposal) (repack.Outcome, error) {
	writer, err := s.Writer()
	if err != nil {
		return repack.Outcome{}, err
	}
	runner.Client, runner.Namespace, runner.Clock = writer, a.namespace(), cmp.Or[clock.PassiveClock](a.Clock, clock.RealClock{})
	if runner.Wait = a.Wait; runner.Wait == nil {
		runner.Wait = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Second):
				return nil
			}
		}
	}
	last := ""
	runner.OnProgress = func(o repack.Outcome) {
		line := fmt.Sprintf("%d of %d new nodes are ready, %d of %d nodes are removed", len(o.Launched), len(p.New), len(o.Removed), len(p.Replaced))
		if line != last {
			output.Fprintf(printer.Err, "%s\n", line)
		}
		last = line
	}
	outcome, err := runner.Run(ctx, p)
	switch {
	case errors.Is(err, context.Canceled) && outcome.Committed:
		return outcome, fmt.Errorf("interrupted: Karpenter continues by itself, and the pods that hold nodes end within %s", p.Hold())
	case errors.Is(err, context.Canceled):
		return outcome, fmt.Errorf("interrupted: no pod is moved, and Karpenter removes the new nodes, because they stay empty")
	case err == nil && !outcome.Committed:
		return outcome, fmt.Errorf("only %d of %d new nodes are ready: no pod is moved, and Karpenter removes the new nodes, because they stay empty",
			len(outcome.Launched), len(p.New))
	}
	return outcome, err
}

func printProposal(printer *output.Printer, p *repack.Proposal) {
	if len(p.Replaced) == 0 {
		printer.Printf("NodePool %s: nothing to repack: %s\n", p.NodePool, p.Reason)
		printer.Notes(p.Notes)
		return
	}
	rows := func(nodes []repack.Node, name func(repack.Node) string) [][]string {
		return lo.Map(nodes, func(n repack.Node, _ int) []string {
			return []string{name(n), n.Flavor, n.Zone, output.VND(n.VNDPerHour), strconv.Itoa(len(n.Pods))}
		})
	}
	titles := []string{"Node", "Flavor", "Zone", ">VND/hour", ">Pods"}
	printer.Rows(titles, append(rows(p.Replaced, func(n repack.Node) string { return n.Name }), rows(p.New, func(repack.Node) string { return "(new)" })...))
	printer.Printf("\nNodePool %s: %s instead of %s, %s VND per hour instead of %s (%s less): saves %s VND per month\n", p.NodePool,
		output.Plural(p.NodesAfter, "node"), strconv.Itoa(p.Nodes), output.VND(p.VNDPerHourAfter), output.VND(p.VNDPerHour), output.Percent(p.Saves()),
		output.VND(p.SavesVNDPerMonth))
	pods := lo.FlatMap(p.Replaced, func(n repack.Node, _ int) []string { return n.Pods })
	slices.Sort(pods)
	printer.Printf("%s: %s\n", output.Plural(len(pods), "pod")+" would move", strings.Join(pods, ", "))
	for _, b := range p.Budgets {
		printer.Printf("PodDisruptionBudget %s/%s: %d of its pods move, %d at a time now\n", b.Namespace, b.Name, b.Pods, b.Allowed)
	}
	printer.Printf("Until they have moved, for %s at most, the new nodes are paid for besides: %s VND per hour\n", p.Hold(),
		output.VND(lo.SumBy(p.New, func(n repack.Node) float64 { return n.VNDPerHour })))
	printer.Notes(p.Notes)
}

func printOutcome(printer *output.Printer, o repack.Outcome) {
	printer.Printf("\n%s removed, %s launched: %s VND per hour\n", output.Plural(len(o.Removed), "node"), output.Plural(len(o.Launched), "node"),
		output.VND(o.VNDPerHour))
	if len(o.Left) > 0 {
		printer.Printf("Not removed yet: %s. Karpenter says why: kubectl bizfly why nodeclaim/%s\n", output.Plural(len(o.Left), "node"), o.Left[0])
	}
}
