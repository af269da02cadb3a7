// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/suggest"
)

func (a *App) suggest(shared *planFlags) *cobra.Command {
	var limit time.Duration
	var write string
	cmd := &cobra.Command{
		Use: "suggest", Args: cobra.NoArgs, Short: "Find the NodePool with which the pods cost least, and print it",
		Example: `  kubectl bizfly plan suggest -f app.yaml --write nodepool.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connectPlan(cmd.Context(), shared)
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			show, end := progress(printer)
			result, err := suggest.Compute(ctx, s, suggest.Options{Options: shared.Options}, limit, func(plans int) { show("%d plans", plans) })
			end()
			if err != nil {
				return err
			}
			var suggested []byte
			if result.Suggested != nil {
				suggested = lo.Must(output.EncodeYAML(result.Suggested))
			}
			if write != "" && len(suggested) > 0 {
				if err := os.WriteFile(write, suggested, 0o600); err != nil {
					return fmt.Errorf("writing the NodePool: %w", err)
				}
			}
			if done, err := printer.Value(result); !done {
				printAssumed(printer, result.Catalog, result.Assumed)
				printSuggestion(printer, result)
				printSuggested(printer, result, suggested, write)
			} else if err != nil {
				return err
			}
			return shared.failed(printer, billOf(result))
		},
	}
	cmd.Flags().StringVar(&write, "write", "", "the file for the NodePool, in place of the standard output")
	cmd.Flags().DurationVar(&limit, "time-limit", 40*time.Second, "after how long it tries nothing more")
	return cmd
}

func printSuggested(printer *output.Printer, result *suggest.Suggestion, suggested []byte, file string) {
	switch {
	case len(result.Candidates) == 0 && result.TimeOver:
		printer.Printf("\nNo shape was settled in time: raise --time-limit.\n")
	case len(suggested) == 0:
		printer.Printf("\nNo shape saves %.0f%% of what NodePool %s costs as it is: keep it.\n", 100*suggest.LeastSaving, result.NodePool)
	case file != "":
		printer.Printf("\nThe first one is written to %s.\n", file)
	default:
		printer.Printf("\n%s", suggested)
	}
	printer.Notes(result.Notes)
}

// billOf is that with the NodePool that is suggested.
func billOf(result *suggest.Suggestion) bill {
	chosen := result.Now
	if result.Suggested != nil {
		chosen = result.Candidates[0]
	}
	return bill{chosen.VNDPerMonth, chosen.Unplaced}
}

func printSuggestion(printer *output.Printer, result *suggest.Suggestion) {
	row := func(c suggest.Candidate, _ int) []string {
		return []string{
			c.Name, strconv.Itoa(c.Nodes), strconv.Itoa(c.Unplaced), output.VND(c.VNDPerHour), output.VND(c.VNDPerMonth),
			fmt.Sprintf("%+.1f%%", 100*(c.VNDPerHour/result.Now.VNDPerHour-1)),
		}
	}
	printer.Rows([]string{"NodePool " + result.NodePool, ">Nodes", ">Unplaced", ">VND/hour", ">VND/month", ">To now"},
		lo.Map(append(slices.Clip(result.Candidates), result.Now), row))
	tried := fmt.Sprintf("%s, %d shapes planned.", output.Plural(result.Pods, "pod"), result.Tried)
	if result.Sample > 0 {
		tried = fmt.Sprintf("%s, %d shapes planned with %d of them, and the best with all.", output.Plural(result.Pods, "pod"), result.Tried, result.Sample)
	}
	if result.TimeOver {
		tried += " The time was over before more were planned (--time-limit)."
	}
	printer.Printf("\n%s\n", tried)
}
