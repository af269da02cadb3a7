// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/explain"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

func (a *App) explain(shared *planFlags) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "explain", Args: cobra.NoArgs, Short: "Price the constraints of pods and NodePools: drop each kind, and plan again",
		Example: `  kubectl bizfly plan explain -f app.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connectPlan(cmd.Context(), shared)
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			show, end := progress(printer)
			result, err := explain.Compute(ctx, s, shared.Options, limit, func(passes int) { show("%d plans", passes) })
			end()
			if err := finish(printer, result, err, printExplanation); err != nil {
				return err
			}
			return shared.failed(printer, bill{result.VNDPerMonth, len(result.Unplaced)})
		},
	}
	cmd.Flags().DurationVar(&limit, "time-limit", 40*time.Second, "after how long it drops and splits nothing more")
	return cmd
}

func printExplanation(printer *output.Printer, result *explain.Explanation) {
	printAssumed(printer, result.Catalog, result.Assumed)
	printPlan(printer, result.Plan)
	printer.Printf("\n")
	if len(result.Constraints) > 0 {
		printer.Rows([]string{"Without", "Of", "Which", ">VND/month less", ">Of the bill", ">Pods more"},
			lo.Map(result.Constraints, func(c explain.Constraint, _ int) []string {
				return []string{
					c.Kind, c.Of, c.Detail, output.VND(c.VNDPerMonth), fmt.Sprintf("%.1f%%", 100*c.VNDPerHour/max(result.VNDPerHour, 1)),
					lo.Ternary(c.Placed > 0, fmt.Sprint(c.Placed), ""),
				}
			}))
		printer.Printf("\n")
	}
	printer.Printf("%s with a price; %d without an effect of 1%% of the bill. "+
		"Each line is dropped alone, so the prices do not add up.\n", output.Plural(len(result.Constraints), "constraint"), result.Free)
	if result.TimeOver {
		printer.Printf("The time was over before all were tried or told apart, the most expensive first: raise --time-limit.\n")
	}
}
